//! Losses that the receiving end of a TCP connection sees: a segment that comes before an earlier one tells
//! that the earlier one was dropped on its way, or overtaken.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

/// Offset of `tcpi_rcv_ooopack` in the kernel's `struct tcp_info`, in words of 4 bytes. Kernels before 5.4 do
/// not have it, and return less.
const OUT_OF_ORDER: usize = 224 / 4;
/// Length that is asked for: up to and with that word.
const WORDS: usize = OUT_OF_ORDER + 1;
/// Losses since a look that is longer ago may be as old as that.
const LATELY: Duration = Duration::from_secs(5);

/// Number of segments that came out of order so far, modulo 2^32; `None` if the kernel does not tell.
pub(crate) fn out_of_order(stream: &TcpStream) -> Option<u32> {
    tcp_info(stream.as_raw_fd()).map(|words| words[OUT_OF_ORDER])
}

/// Notes a look, and returns true if segments were lost since the one before, and that was lately.
pub(crate) fn is_recent(looked: &mut (Instant, u32), now: Instant, count: u32) -> bool {
    let before = std::mem::replace(looked, (now, count));
    before.1 != count && now.duration_since(before.0) <= LATELY
}

fn tcp_info(socket: RawFd) -> Option<[u32; WORDS]> {
    let mut words = [0u32; WORDS];
    let whole = u32::try_from(size_of_val(&words)).ok()?;
    let mut length: libc::socklen_t = whole;
    #[expect(unsafe_code, reason = "no library wraps this socket option")]
    // SAFETY: the kernel writes at most `length` bytes to `words`, and the length to `length`. Both outlive
    // the call, which retains neither.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0 && length == whole).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_may_be_old_does_not_count() {
        let began = Instant::now();
        let mut looked = (began, 0);
        let looks = [(0, 0), (1, 5), (2, 5), (7, 6), (13, 7), (14, 7)];
        let seen =
            looks.map(|(after, count)| is_recent(&mut looked, began + Duration::from_secs(after), count));
        assert_eq!(seen, [false, true, false, true, false, false]);
    }

    #[tokio::test]
    async fn a_connection_that_lost_nothing_says_so() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        if let Some(words) = tcp_info(stream.as_raw_fd()) {
            // The first byte is the state: 1 is an established connection.
            assert_eq!(words[0].to_ne_bytes()[0], 1);
            assert_eq!(out_of_order(&stream), Some(0));
        }
    }
}
