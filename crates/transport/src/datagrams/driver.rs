//! The task of one port: carries datagrams between its socket and its machine, and keeps its time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use braid_datagram::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::datagrams::Port;

/// Buffers of one system call that receives; each holds many datagrams of one peer.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 64 << 10;
/// Calls that receive before something is sent.
const CALLS_MAX: usize = 8;
/// Runs that are sent before something is received.
const RUNS_MAX: usize = 32;
/// The longest run, in bytes: what one system call takes.
const RUN_BYTES_MAX: usize = 65_507;

/// Datagrams of one length, but for the last, which may be shorter, to one peer. A probe is alone.
#[derive(Debug)]
struct Run {
    how: braid_datagram::Transmit,
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

/// Serves the port until it has no connections and accepts none.
pub(crate) async fn run(port: Arc<Port>) {
    let mut buffers: Vec<Vec<u8>> = (0..BUFFERS).map(|_| vec![0; BUFFER_BYTES]).collect();
    let mut outbox = Outbox::default();
    loop {
        let is_drained = receive(&port, &mut buffers);
        // After what has come: a process that was stopped for long finds that its peers were not silent.
        keep_time(&port);
        let left = transmit(&port, &mut outbox);
        let deadline = {
            let inner = port.lock();
            if !inner.is_listening && inner.lanes.is_empty() && inner.endpoint.connections() == 0 {
                return;
            }
            inner.endpoint.next_deadline()
        };
        if !is_drained || left == Left::More {
            // There may be more; other tasks have their turn meanwhile.
            tokio::task::yield_now().await;
            continue;
        }
        let until = deadline.map(|at| port.begun + Duration::from_nanos(at));
        let far = Instant::now() + Duration::from_secs(3600);
        tokio::select! {
            () = port.socket.readable() => {}
            () = port.socket.writable(), if left == Left::Blocked => {}
            () = port.work.notified() => {}
            () = sleep_until(until.unwrap_or(far)) => {}
        }
    }
}

/// Does what is due.
fn keep_time(port: &Port) {
    let mut inner = port.lock();
    let now_ns = port.now_ns();
    inner.endpoint.handle_timeout(now_ns);
    inner.tell_events(now_ns);
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
    for (buffer, meta) in buffers.iter_mut().zip(meta) {
        let mut inner = port.lock();
        let now_ns = port.now_ns();
        let from = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
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
            src_ip: None,
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
                    self.odd = Some(Run { how: of, segment: length, bytes: bytes.split_off(begin) });
                    break;
                }
                segments += 1;
            }
            self.run = Some(Run { how, segment, bytes });
        } else {
            self.spare = bytes;
        }
        inner.tell_events(now_ns);
    }
}
