//! Connections over UDP: the machine of `braid-datagram` on a socket, as streams of bytes.
//!
//! A [`Port`] is one socket with all its connections, and a task that carries datagrams between the machine
//! and the socket, many in one system call each way (GSO, GRO). An accepting side has one port for each
//! address; a connecting side has one for each connection, so that the system tells it when nothing listens
//! at the other end. The bytes of a connection go as messages of at most [`PIECE_BYTES`] on stream 0.
//!
//! The bounds are the machine's: what waits to be sent or taken, the number of connections, the time without
//! a sign of life.

mod called;
mod driver;
mod halves;
mod socket;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use braid_datagram::{Config, ConnectionId, EndReason, Endpoint, Event, Refused, Secret, Settings};
use braid_wire::capability::Key;
use tokio::net::lookup_host;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::datagrams::called::Called;
use crate::datagrams::socket::canonical;
use crate::slots::ConnectionSlot;
pub(crate) use halves::{DatagramRead, DatagramWrite};
pub(crate) use socket::DatagramSocket;

/// The stream that bytes go on.
const STREAM: u16 = 0;
/// The longest message that bytes go in.
const PIECE_BYTES: usize = 64 << 10;
/// The longest datagram: what IPv4 carries, and so the loopback. What other paths carry is found out.
const DATAGRAM_BYTES_MAX: u16 = 65_507;
/// Connections that wait to be accepted by the owner; more are closed.
const ACCEPTED_MAX: usize = 256;

/// Finds the secret of a peer that shows this identity; `None`: there is none.
pub type SecretOf = Arc<dyn Fn(&[u8]) -> Option<Secret> + Send + Sync>;

/// The settings of connections that carry sessions, with this policy.
pub fn session_config(policy: braid_datagram::policy::Kind) -> Config {
    let settings = Settings { streams: 1, datagram_bytes_max: DATAGRAM_BYTES_MAX, ..Settings::default() };
    Config { settings, policy, ..Config::default() }
}

/// The secret of a connection whose identity is the public part of the capability with this private part.
pub fn capability_secret(private: &Key) -> Secret {
    Secret::new(*private.derive("braid datagram secret 1", &[]).secret())
}

/// One UDP socket and its connections.
pub(crate) struct Port {
    socket: DatagramSocket,
    local: SocketAddr,
    begun: Instant,
    secret_of: Option<SecretOf>,
    inner: Mutex<Inner>,
    /// The machine may have something to send, or another deadline.
    work: Notify,
}

struct Inner {
    endpoint: Endpoint,
    lanes: BTreeMap<ConnectionId, Lane>,
    /// That which connections hold that nobody has any more and that are not over.
    leaving: BTreeMap<ConnectionId, Kept>,
    /// The addresses that peers have called, if the socket is at all of this machine's.
    called: Called,
    accepted: VecDeque<(ConnectionId, SocketAddr)>,
    accepting: Option<Waker>,
    /// False once nobody accepts connections of this port any more.
    is_listening: bool,
    /// True as long as somebody keeps the socket, whether it has connections or not.
    is_kept: bool,
    /// The task that waits until it has none.
    draining: Option<Waker>,
}

/// That which the owner of a connection waits for.
#[derive(Default)]
struct Lane {
    is_open: bool,
    ended: Option<EndReason>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    kept: Option<Kept>,
}

/// Places of a listener that a connection holds as long as the machine has it: its memory is the machine's.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) _permit: Arc<OwnedSemaphorePermit>,
    pub(crate) place: Arc<ConnectionSlot>,
}

/// A connection of a port, which ends when nobody has it any more.
pub(crate) struct Held {
    port: Arc<Port>,
    id: ConnectionId,
    peer: SocketAddr,
    /// The address of this machine that it is at.
    local: SocketAddr,
    /// The rate that it is paced by; 0: as the policy does.
    rate: AtomicU64,
    /// The window that the peer was told last; 0: none.
    window: AtomicU64,
}

/// A connection, whole.
#[derive(Debug)]
pub(crate) struct DatagramStream(Arc<Held>);

/// The accepting side of a port.
#[derive(Debug)]
pub(crate) struct DatagramListener {
    port: Arc<Port>,
    /// The task that serves the port.
    task: JoinHandle<()>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("local", &self.local).finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Port {
    /// A port with this socket, which nobody serves yet.
    fn new(socket: DatagramSocket, config: Config, secret_of: Option<SecretOf>) -> io::Result<Arc<Port>> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        let is_listening = secret_of.is_some();
        let inner = Inner {
            endpoint: Endpoint::new(config, is_listening, seed),
            lanes: BTreeMap::new(),
            leaving: BTreeMap::new(),
            called: Called::new(),
            accepted: VecDeque::new(),
            accepting: None,
            is_listening,
            is_kept: is_listening,
            draining: None,
        };
        Ok(Arc::new(Port {
            local: socket.local()?,
            socket,
            begun: Instant::now(),
            secret_of,
            inner: Mutex::new(inner),
            work: Notify::new(),
        }))
    }

    /// Starts the task that serves the port. It ends once the port has no connection and nobody keeps it.
    fn serve(self: &Arc<Port>) -> JoinHandle<()> {
        tokio::spawn(driver::run(Arc::clone(self)))
    }

    /// The machine's time.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Hands the machine's events to those who wait for them.
    fn tell_events(&mut self, now_ns: u64) {
        while let Some(event) = self.endpoint.poll_event() {
            let id = event.connection();
            if let Event::Accepted(..) = event {
                let Some(peer) = self.endpoint.peer(id) else { continue };
                if !self.is_listening || self.accepted.len() >= ACCEPTED_MAX {
                    self.endpoint.abort(now_ns, id, 0, "the peer accepts no connections now");
                    self.endpoint.release(now_ns, id);
                    continue;
                }
                self.lanes.insert(id, Lane { is_open: true, ..Lane::default() });
                self.accepted.push_back((id, peer));
                self.accepting.take().into_iter().for_each(Waker::wake);
                continue;
            }
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let is_writer = matches!(event, Event::Writable(..) | Event::Ended(..));
            let is_reader = !matches!(event, Event::Writable(..));
            match event {
                Event::Opened(_) => lane.is_open = true,
                Event::Ended(_, why) => lane.ended = Some(why),
                _ => {}
            }
            let wakers = [lane.reader.take_if(|_| is_reader), lane.writer.take_if(|_| is_writer)];
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }

    /// Frees what connections hold that are over. One whose place went to another ends now.
    fn settle(&mut self, now_ns: u64) {
        let Inner { endpoint, leaving, .. } = self;
        leaving.retain(|id, kept| {
            if kept.place.has_given_way() {
                endpoint.abort(now_ns, *id, 0, "its place went to another connection");
            }
            endpoint.has(*id)
        });
    }
}

impl DatagramListener {
    /// Serves a socket of [`DatagramSocket::bind_shared`], for peers whose secrets are known.
    pub(crate) fn start(
        socket: DatagramSocket,
        config: Config,
        secret_of: SecretOf,
    ) -> io::Result<DatagramListener> {
        let port = Port::new(socket, config, Some(secret_of))?;
        let task = port.serve();
        Ok(DatagramListener { port, task })
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.port.local
    }

    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<DatagramStream> {
        let mut inner = self.port.lock();
        match inner.accepted.pop_front() {
            Some((id, peer)) => {
                let called = inner.called.by(peer).map_or(self.port.local.ip(), |ip| ip.to_canonical());
                let local = SocketAddr::new(called, self.port.local.port());
                Poll::Ready(DatagramStream(Arc::new(Held::new(Arc::clone(&self.port), id, peer, local))))
            }
            None => {
                inner.accepting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Accepts nothing more. The connections go on, and the socket stays even if it has none: if it left, the
    /// system would share out the peers of the sockets at its address anew.
    pub(crate) fn close(&self) {
        let mut inner = self.port.lock();
        let now_ns = self.port.now_ns();
        inner.is_listening = false;
        for (id, _) in std::mem::take(&mut inner.accepted) {
            inner.endpoint.abort(now_ns, id, 0, "the peer ends");
            inner.endpoint.release(now_ns, id);
            inner.lanes.remove(&id);
        }
        drop(inner);
        self.port.work.notify_one();
    }

    /// Polls until the port has no connections: all that was sent on them has arrived, or cannot.
    pub(crate) fn poll_drained(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.port.lock();
        if inner.endpoint.connections() == 0 {
            return Poll::Ready(());
        }
        inner.draining = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the port, whatever its connections have left to say: its address is free then.
    pub(crate) async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for DatagramListener {
    fn drop(&mut self) {
        self.port.lock().is_kept = false;
        self.close();
    }
}

impl DatagramStream {
    /// Opens a connection with who listens at `address` and knows the identity's secret.
    pub(crate) async fn connect(
        address: &str,
        config: Config,
        identity: &[u8],
        secret: Secret,
    ) -> io::Result<DatagramStream> {
        DatagramStream::connect_first(lookup_host(address).await?, &config, identity, &secret).await
    }

    /// Opens a connection at the first of a name's addresses where somebody answers, be it by a refusal.
    async fn connect_first(
        peers: impl Iterator<Item = SocketAddr>,
        config: &Config,
        identity: &[u8],
        secret: &Secret,
    ) -> io::Result<DatagramStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for peer in peers {
            let socket = match DatagramSocket::connect(peer).await {
                Ok(socket) => socket,
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            let port = Port::new(socket, config.clone(), None)?;
            match DatagramStream::open(port, peer, identity, secret.clone()).await {
                Err(error) if !is_of_somebody(&error) => failed = error,
                ended => return ended,
            }
        }
        Err(failed)
    }

    async fn open(
        port: Arc<Port>,
        peer: SocketAddr,
        identity: &[u8],
        secret: Secret,
    ) -> io::Result<DatagramStream> {
        let peer = canonical(peer);
        let id = {
            let mut inner = port.lock();
            let id = inner.endpoint.open(port.now_ns(), peer, identity, secret);
            inner.lanes.insert(id, Lane::default());
            id
        };
        let stream = DatagramStream(Arc::new(Held::new(Arc::clone(&port), id, peer, port.local)));
        // Not before there is a connection: the task would end at once.
        port.serve();
        std::future::poll_fn(|context| {
            let mut inner = port.lock();
            match inner.lanes.get_mut(&id) {
                Some(lane) if lane.is_open => Poll::Ready(Ok(())),
                Some(Lane { ended: Some(why), .. }) => Poll::Ready(Err(in_words(why))),
                Some(lane) => {
                    lane.reader = Some(context.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            }
        })
        .await?;
        Ok(stream)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.0.local
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// Sends bytes that are taken at once, if they are, and nothing after them.
    pub(crate) fn send_last(&self, bytes: &[u8]) {
        let Held { port, id, .. } = &*self.0;
        let mut inner = port.lock();
        // Who cannot be told sees the connection's end.
        let _ = inner.endpoint.send(*id, STREAM, bytes.to_vec().into());
        let _ = inner.endpoint.finish(*id, STREAM);
    }

    pub(crate) fn into_split(self) -> (DatagramRead, DatagramWrite) {
        (DatagramRead::new(Arc::clone(&self.0)), DatagramWrite::new(self.0))
    }
}

impl Held {
    fn new(port: Arc<Port>, id: ConnectionId, peer: SocketAddr, local: SocketAddr) -> Held {
        Held { port, id, peer, local, rate: AtomicU64::new(0), window: AtomicU64::new(0) }
    }

    /// Has the connection keep its places until it is over.
    pub(crate) fn keep(&self, kept: Kept) {
        if let Some(lane) = self.port.lock().lanes.get_mut(&self.id) {
            lane.kept = Some(kept);
        }
    }

    /// Paces what this side sends by this rate, in bytes per second; `None`: as the policy does.
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        let told = rate.map_or(0, |rate| rate.max(1));
        if self.rate.swap(told, Ordering::Relaxed) == told {
            return;
        }
        self.port.lock().endpoint.set_rate(self.id, rate);
        self.port.work.notify_one();
    }

    /// Tells the peer how many bytes may be on their way here; `None`: no bound any more.
    pub(crate) fn set_window(&self, bytes: Option<u64>) {
        let told = bytes.map_or(0, |bytes| bytes.max(1));
        if self.window.swap(told, Ordering::Relaxed) == told {
            return;
        }
        let bytes = bytes.unwrap_or(u64::MAX);
        self.port.lock().endpoint.set_window(self.id, bytes);
        self.port.work.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.port.lock();
        let now_ns = self.port.now_ns();
        let kept = inner.lanes.remove(&self.id).and_then(|lane| lane.kept);
        inner.leaving.extend(kept.map(|kept| (self.id, kept)));
        inner.endpoint.release(now_ns, self.id);
        drop(inner);
        if self.port.secret_of.is_none() {
            // The process may end now; the peer is to know that this side has.
            driver::flush(&self.port);
        }
        self.port.work.notify_one();
    }
}

/// Returns true if a handshake failed by what somebody at the address said.
fn is_of_somebody(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ResourceBusy, Unsupported};
    matches!(error.kind(), PermissionDenied | ResourceBusy | Unsupported)
}

/// The reason as an error of a socket.
fn in_words(why: &EndReason) -> io::Error {
    let kind = match why {
        EndReason::Closed | EndReason::Unfinished | EndReason::ClosedByPeer { .. } => {
            io::ErrorKind::ConnectionReset
        }
        EndReason::NotOpened | EndReason::Silent(_) | EndReason::Stuck(_) => io::ErrorKind::TimedOut,
        EndReason::Refused(Refused::Unproved) => io::ErrorKind::PermissionDenied,
        EndReason::Refused(Refused::Busy) => io::ErrorKind::ResourceBusy,
        EndReason::Version { .. } => io::ErrorKind::Unsupported,
        EndReason::Violated(_) => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, why.clone())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;

    fn config() -> Config {
        session_config(braid_datagram::policy::Kind::Cubic)
    }

    /// A listener that knows this secret.
    fn listener(secret: u8) -> DatagramListener {
        let address = "127.0.0.1:0".parse().unwrap();
        let socket = DatagramSocket::bind_shared(address, 1).unwrap().remove(0);
        let secret_of: SecretOf = Arc::new(move |_| Some(Secret::new([secret; 32])));
        DatagramListener::start(socket, config(), secret_of).unwrap()
    }

    /// A name may have several addresses, and the drive listen at the last: `localhost` is ::1 first.
    #[tokio::test]
    async fn a_name_is_connected_to_at_the_address_where_somebody_answers() {
        let here = listener(7);
        let there = here.local();
        let nobody = SocketAddr::new([127, 0, 0, 2].into(), there.port());
        let secret = Secret::new([7; 32]);
        let config = config();
        let stream = DatagramStream::connect_first([nobody, there].into_iter(), &config, b"me", &secret);
        assert_eq!(stream.await.unwrap().peer(), there);

        // Who answers is taken, as by TCP: the refusal is told.
        let other = listener(8);
        let both = [other.local(), there].into_iter();
        let refused = DatagramStream::connect_first(both, &config, b"me", &secret).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    }

    /// The system may have shared out a peer to a socket that has no connections. It is not to wait there.
    #[tokio::test]
    async fn a_closed_listener_s_socket_ends_what_comes() {
        let listener = listener(7);
        listener.close();
        poll_fn(|context| listener.poll_drained(context)).await;
        let there = std::iter::once(listener.local());
        let stream = DatagramStream::connect_first(there, &config(), b"me", &Secret::new([7; 32])).await;
        let (mut read, _write) = stream.unwrap().into_split();
        assert_eq!(read.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
