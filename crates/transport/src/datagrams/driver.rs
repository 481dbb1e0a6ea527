//! The task of one port: carries datagrams between its socket and its machine, and keeps its time.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use braid_datagram::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::datagrams::socket::canonical;
use crate::datagrams::{Inner, Port};

/// Buffers of one system call that receives; each holds many datagrams of one peer.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 64 << 10;
/// Calls that receive before something is sent.
const CALLS_MAX: usize = 8;
/// Runs that are sent before something is received.
const RUNS_MAX: usize = 32;
/// The longest run, in bytes: what one system call takes.
const RUN_BYTES_MAX: usize = 65_507;

/// A turn that comes so late finds that this process was stopped.
const LATE: Duration = Duration::from_secs(1);
/// Turns that empty the socket's buffer after that, whatever is in it.
const TURNS_BEHIND_MAX: u32 = 1024;

/// Datagrams of one length, but for the last, which may be shorter, to one peer. A probe is alone.
#[derive(Debug)]
struct Run {
    how: braid_datagram::Transmit,
    /// The address of this machine that it leaves from; `None`: what the system chooses.
    from: Option<IpAddr>,
    segment: usize,
    bytes: Vec<u8>,
}

/// That which is to be sent next.
#[derive(Debug, Default)]
struct Outbox {
    /// A run that the socket has not taken yet.
    run: Option<Run>,
    /// A datagram that does not belong to the run before: of another length, to another peer, or a probe.
    odd: Option<Run>,
    /// A buffer that is free again.
    spare: Vec<u8>,
}

/// That which is left after the machine was asked for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The socket takes no more now.
    Blocked,
    /// There may be more; others have their turn first.
    More,
}

/// Tells whether the machine may be told the time. A process that was stopped for long finds that its peers
/// were not silent: what they have sent waits in the socket, and is taken first.
#[derive(Debug)]
struct CatchingUp {
    /// The moment at which the next turn comes at the latest, if the process runs.
    due: Instant,
    /// Turns that the time may wait for what has come.
    behind: u32,
}

impl CatchingUp {
    /// After a turn's receiving, at `now`; `is_drained`: nothing is left to receive.
    fn is_done(&mut self, now: Instant, is_drained: bool) -> bool {
        if now >= self.due + LATE {
            self.behind = TURNS_BEHIND_MAX;
        }
        self.behind = if is_drained { 0 } else { self.behind.saturating_sub(1) };
        self.behind == 0
    }
}

/// Serves the port until it has no connections and nobody keeps it.
pub(crate) async fn run(port: Arc<Port>) {
    let mut buffers: Vec<Vec<u8>> = (0..BUFFERS).map(|_| vec![0; BUFFER_BYTES]).collect();
    let mut outbox = Outbox::default();
    let mut catching_up = CatchingUp { due: Instant::now(), behind: 0 };
    loop {
        let is_drained = receive(&port, &mut buffers);
        if catching_up.is_done(Instant::now(), is_drained) {
            keep_time(&port);
        }
        let left = transmit(&port, &mut outbox);
        let deadline = {
            let mut inner = port.lock();
            if inner.endpoint.connections() == 0 {
                inner.draining.take().into_iter().for_each(Waker::wake);
                if !inner.is_kept && inner.lanes.is_empty() {
                    return;
                }
            }
            inner.endpoint.next_deadline()
        };
        if !is_drained || left == Left::More {
            // There may be more; other tasks have their turn meanwhile.
            catching_up.due = Instant::now();
            tokio::task::yield_now().await;
            continue;
        }
        let until = deadline.map(|at| port.begun + Duration::from_nanos(at));
        catching_up.due = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            () = port.socket.readable() => {}
            () = port.socket.writable(), if left == Left::Blocked => {}
            () = port.work.notified() => {}
            () = sleep_until(catching_up.due) => {}
        }
    }
}

/// Does what is due.
fn keep_time(port: &Port) {
    let mut inner = port.lock();
    let now_ns = port.now_ns();
    inner.endpoint.handle_timeout(now_ns);
    inner.tell_events(now_ns);
    inner.settle(now_ns);
}

/// Sends what there is at once, as the port's task may have no other turn.
pub(crate) fn flush(port: &Port) {
    transmit(port, &mut Outbox::default());
}

/// Takes what has come. Returns false if there may be more.
fn receive(port: &Port, buffers: &mut [Vec<u8>]) -> bool {
    for _ in 0..CALLS_MAX {
        let mut meta = [RecvMeta::default(); BUFFERS];
        match port.socket.receive(buffers, &mut meta) {
            Ok(count) => handle(port, buffers, &meta[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) => handle_error(port, &error),
        }
    }
    false
}

/// Gives the machine what was received.
fn handle(port: &Port, buffers: &mut [Vec<u8>], meta: &[RecvMeta]) {
    let received = buffers.iter_mut().zip(meta).filter(|(_, meta)| is_between_hosts(meta));
    for (buffer, meta) in received {
        let mut inner = port.lock();
        let now_ns = port.now_ns();
        let from = canonical(meta.addr);
        if let Some(ip) = meta.dst_ip
            && port.local.ip().is_unspecified()
        {
            let Inner { called, endpoint, .. } = &mut *inner;
            called.note(from, ip, |peer| endpoint.has_peer(peer));
        }
        let ecn = match meta.ecn {
            Some(EcnCodepoint::Ce) => Ecn::Marked,
            Some(EcnCodepoint::Ect0 | EcnCodepoint::Ect1) => Ecn::Capable,
            None => Ecn::Unaware,
        };
        for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
            let mut secret_of = |identity: &[u8]| port.secret_of.as_ref().and_then(|find| find(identity));
            inner.endpoint.handle_datagram(now_ns, from, ecn, datagram, &mut secret_of);
        }
        inner.tell_events(now_ns);
    }
}

/// Returns true if the datagrams come from where one can be, and to this host alone: others are forged, and
/// cannot be answered.
fn is_between_hosts(meta: &RecvMeta) -> bool {
    let is_of_one = |ip: IpAddr| {
        let ip = ip.to_canonical();
        !(ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST)
    };
    meta.addr.port() != 0 && is_of_one(meta.addr.ip()) && meta.dst_ip.is_none_or(is_of_one)
}

/// The system says that nothing listens at a peer's address: of a port with one peer it is known whose.
fn handle_error(port: &Port, error: &io::Error) {
    debug!(local = %port.local, %error, "a datagram could not be sent or received");
    if error.kind() == io::ErrorKind::ConnectionRefused && port.secret_of.is_none() {
        let mut inner = port.lock();
        let now_ns = port.now_ns();
        let ids: Vec<_> = inner.lanes.keys().copied().collect();
        ids.into_iter().for_each(|id| inner.endpoint.handle_unreachable(now_ns, id));
        inner.tell_events(now_ns);
    }
}

/// Sends what the machine has.
fn transmit(port: &Port, outbox: &mut Outbox) -> Left {
    for _ in 0..RUNS_MAX {
        if outbox.run.is_none() {
            outbox.collect(port);
        }
        let Some(run) = &outbox.run else { return Left::Nothing };
        let transmit = Transmit {
            destination: run.how.to,
            ecn: (run.how.ecn == Ecn::Capable).then_some(EcnCodepoint::Ect0),
            contents: &run.bytes,
            segment_size: (run.bytes.len() > run.segment).then_some(run.segment),
            src_ip: run.from,
        };
        match port.socket.send(&transmit) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Left::Blocked,
            // What is too long for the path, or cannot be sent otherwise, counts as lost.
            Err(error) => handle_error(port, &error),
            Ok(()) => {}
        }
        outbox.spare = outbox.run.take().map(|run| run.bytes).unwrap_or_default();
    }
    Left::More
}

impl Outbox {
    /// Takes the next run of datagrams from the machine, which seals them where they are sent from. The lock
    /// is held for one run only: who writes and reads meanwhile waits no longer.
    fn collect(&mut self, port: &Port) {
        if let Some(odd) = self.odd.take() {
            self.run = Some(odd);
            return;
        }
        let segments_max = port.socket.segments_max();
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        bytes.reserve(RUN_BYTES_MAX);
        let mut inner = port.lock();
        // Read under the lock: for the machine, time never goes back.
        let now_ns = port.now_ns();
        if let Some(how) = inner.endpoint.poll_transmit(now_ns, &mut bytes) {
            let from = inner.called.by(how.to);
            let segment = bytes.len();
            let mut segments = 1;
            // A shorter datagram ends the run.
            while !how.is_probe
                && bytes.len() == segments * segment
                && segments < segments_max
                && bytes.len() + segment <= RUN_BYTES_MAX
            {
                let begin = bytes.len();
                let Some(of) = inner.endpoint.poll_transmit(now_ns, &mut bytes) else { break };
                let length = bytes.len() - begin;
                if of != how || length > segment {
                    let from = inner.called.by(of.to);
                    let bytes = bytes.split_off(begin);
                    self.odd = Some(Run { how: of, from, segment: length, bytes });
                    break;
                }
                segments += 1;
            }
            self.run = Some(Run { how, from, segment, bytes });
        } else {
            self.spare = bytes;
        }
        inner.tell_events(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::{DatagramSocket, SecretOf, session_config};

    #[tokio::test]
    async fn what_no_host_can_have_sent_is_not_answered() {
        let socket = DatagramSocket::bind_shared("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let config = session_config(braid_datagram::policy::Kind::Cubic);
        let secret_of: SecretOf = Arc::new(|_| None);
        let port = Port::new(socket, config, Some(secret_of)).unwrap();
        let check = |from: &str, to: Option<&str>, is_answered: bool| {
            let mut data = vec![0; 25];
            data[..5].copy_from_slice(&[0xb7, 1, 2, 3, 4]);
            let mut meta = RecvMeta::default();
            (meta.addr, meta.dst_ip) = (from.parse().unwrap(), to.map(|ip| ip.parse().unwrap()));
            (meta.len, meta.stride) = (data.len(), data.len());
            handle(&port, &mut [data], &[meta]);
            let answer = port.lock().endpoint.poll_transmit(0, &mut Vec::new());
            assert_eq!(answer.is_some(), is_answered, "{from} to {to:?}");
        };
        check("10.0.0.1:7", None, true);
        check("10.0.0.1:7", Some("10.0.0.2"), true);
        check("[::ffff:10.0.0.1]:7", Some("::ffff:10.0.0.2"), true);
        check("[fe80::1%2]:7", Some("fe80::2"), true);
        let nobody = ["10.0.0.1:0", "0.0.0.0:7", "224.0.0.1:7", "255.255.255.255:7"];
        for from in nobody.into_iter().chain(["[::]:7", "[ff02::1]:7", "[fd00::1]:0", "[::ffff:224.0.0.1]:7"])
        {
            check(from, None, false);
        }
        check("10.0.0.1:7", Some("255.255.255.255"), false);
        check("[fe80::1%2]:7", Some("ff02::1"), false);
    }

    #[tokio::test]
    async fn after_a_stop_the_time_waits_for_what_has_come() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut catching_up = CatchingUp { due: at(9000), behind: 0 };
        for ms in [100, 9000, 9900] {
            assert!(catching_up.is_done(at(ms), false), "a busy socket alone is no reason");
        }
        assert!(!catching_up.is_done(at(10_000), false));
        catching_up.due = at(10_000);
        for _ in 2..TURNS_BEHIND_MAX {
            assert!(!catching_up.is_done(at(10_001), false));
        }
        assert!(catching_up.is_done(at(10_001), false), "nor is a stop for ever");
        assert!(!catching_up.is_done(at(19_000), false));
        catching_up.due = at(19_000);
        assert!(catching_up.is_done(at(19_001), true));
        assert!(catching_up.is_done(at(19_002), false));
    }
}
