//! The task of one port: carries datagrams between its socket and its machine, and keeps its time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use crate::datagrams::Port;

/// Buffers of one system call that receives; each holds many datagrams of one peer.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 64 << 10;
/// Calls that receive before something is sent.
const CALLS_MAX: usize = 8;
/// Runs of datagrams that are taken from the machine at a time.
const RUNS_MAX: usize = 8;
/// The longest run, in bytes: what one system call takes.
const RUN_BYTES_MAX: usize = 60_000;

/// Datagrams of one length, but for the last, which may be shorter, to one peer.
struct Run {
    to: SocketAddr,
    segment: usize,
    bytes: Vec<u8>,
}

/// Serves the port until it has no connections and accepts none.
pub(crate) async fn run(port: Arc<Port>) {
    let mut buffers: Vec<Vec<u8>> = (0..BUFFERS).map(|_| vec![0; BUFFER_BYTES]).collect();
    let mut runs = VecDeque::new();
    loop {
        let is_drained = receive(&port, &mut buffers);
        let is_sent = transmit(&port, &mut runs);
        let deadline = {
            let inner = port.lock();
            if !inner.is_listening && inner.lanes.is_empty() && inner.endpoint.connections() == 0 {
                return;
            }
            inner.endpoint.next_deadline()
        };
        if !is_drained {
            // There may be more; other tasks have their turn meanwhile.
            tokio::task::yield_now().await;
            continue;
        }
        let until = deadline.map(|at| port.begun + Duration::from_nanos(at));
        let far = Instant::now() + Duration::from_secs(3600);
        tokio::select! {
            () = port.socket.readable() => {}
            () = port.socket.writable(), if !is_sent => {}
            () = port.work.notified() => {}
            () = sleep_until(until.unwrap_or(far)) => {}
        }
        let now_ns = port.now_ns();
        let mut inner = port.lock();
        inner.endpoint.handle_timeout(now_ns);
        inner.tell_events(now_ns);
    }
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
    let now_ns = port.now_ns();
    let mut inner = port.lock();
    for (buffer, meta) in buffers.iter_mut().zip(meta) {
        let from = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
        for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
            let mut secret_of = |identity: &[u8]| port.secret_of.as_ref().and_then(|find| find(identity));
            inner.endpoint.handle_datagram(now_ns, from, datagram, &mut secret_of);
        }
    }
    inner.tell_events(now_ns);
}

/// The system says that nothing listens at a peer's address: of a port with one peer it is known whose.
fn handle_error(port: &Port, error: &io::Error) {
    debug!(local = %port.local, %error, "a datagram could not be sent or received");
    if error.kind() == io::ErrorKind::ConnectionRefused && port.secret_of.is_none() {
        let now_ns = port.now_ns();
        let mut inner = port.lock();
        let ids: Vec<_> = inner.lanes.keys().copied().collect();
        ids.into_iter().for_each(|id| inner.endpoint.handle_unreachable(now_ns, id));
        inner.tell_events(now_ns);
    }
}

/// Sends what the machine has. Returns false if the socket takes no more now.
fn transmit(port: &Port, runs: &mut VecDeque<Run>) -> bool {
    loop {
        if runs.is_empty() {
            collect(port, runs);
        }
        let Some(run) = runs.front() else { return true };
        let transmit = Transmit {
            destination: run.to,
            ecn: None,
            contents: &run.bytes,
            segment_size: (run.bytes.len() > run.segment).then_some(run.segment),
            src_ip: None,
        };
        match port.socket.send(&transmit) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // What is too long for the path, or cannot be sent otherwise, counts as lost.
            Err(error) => handle_error(port, &error),
            Ok(()) => {}
        }
        runs.pop_front();
    }
}

/// Takes some runs of datagrams from the machine.
fn collect(port: &Port, runs: &mut VecDeque<Run>) {
    let segments_max = port.socket.segments_max();
    let now_ns = port.now_ns();
    let mut inner = port.lock();
    let mut datagram = Vec::new();
    while runs.len() < RUNS_MAX {
        let Some(to) = inner.endpoint.poll_transmit(now_ns, &mut datagram) else { break };
        let fits = runs.back().is_some_and(|run| {
            let is_whole = run.bytes.len() % run.segment == 0;
            let segments = run.bytes.len() / run.segment;
            let has_room = segments < segments_max && run.bytes.len() + datagram.len() <= RUN_BYTES_MAX;
            run.to == to && is_whole && has_room && datagram.len() <= run.segment
        });
        match runs.back_mut().filter(|_| fits) {
            Some(run) => run.bytes.append(&mut datagram),
            None => {
                let bytes = std::mem::take(&mut datagram);
                runs.push_back(Run { to, segment: bytes.len(), bytes });
            }
        }
    }
    inner.tell_events(now_ns);
}
