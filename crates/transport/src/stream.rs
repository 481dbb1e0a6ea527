//! Listening, accepting, connecting, over TCP or datagrams. No other module of Braid knows TCP, except for
//! the kinds of sockets (`net`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use braid_datagram::{Config, Secret};
use socket2::{SockRef, TcpKeepalive};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::allowance::Allowance;
use crate::bodies::Bodies;
use crate::datagrams::{DatagramListener, DatagramSocket, DatagramStream, SecretOf};
use crate::error::{Result, TransportError};
use crate::hello;
use crate::limits::Limits;
use crate::net::{Listening, Socket};
use crate::receiver::{ConnectionResources, Receiver};
use crate::seldom::Seldom;
use crate::sender::Sender;
use crate::slots::{Bounds, ConnectionSlot, ConnectionSlots, GivesWay, Holder, Origin};

/// Default maximum number of connections held at once. Each costs a socket, a task and a few KiB.
const CONNECTIONS_MAX: usize = 1024;
/// Silence before the first keepalive probe, and interval between probes: a dead peer is noticed after about
/// a minute and a half of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(7);
/// Congestion control of all connections. The system's default may be made for long distances (BBR), which
/// sends on into the full queue of a switch: where many peers send to one drive, most of the time then goes
/// into retransmissions.
const CONGESTION: &[u8] = b"cubic";

/// Maximum number of sockets for datagrams at one address.
const PORTS_MAX: usize = 4;
/// The least window that the datagram format has.
const DATAGRAM_WINDOW_BYTES_MIN: u32 = 4096;
/// Number of further tries to find a port that is free for TCP and for UDP.
const BIND_TRIES: usize = 16;

/// Maximum number of unauthenticated peers in total. An honest peer is one of them for a round trip.
const STRANGERS_MAX: usize = 256;
/// Maximum number of unauthenticated peers per address.
const STRANGERS_EACH: usize = 64;
/// Maximum number of unauthenticated peers on this machine, where many processes share an address.
const STRANGERS_EACH_HERE: usize = 128;
/// Minimum interval between two log lines about one address that is at its share of unauthenticated peers.
const SHARE_LOGGED: Duration = Duration::from_secs(60);

/// Maximum number of connections of a listener, and its message to peers beyond that.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// Maximum number of connections of all kinds, including those about to end. The server bounds
    /// authenticated connections separately, below this number.
    pub connections: usize,
    /// Bounds on unauthenticated connections. The oldest give way to new ones.
    pub strangers: Bounds,
    /// The message for refused peers: which server is full, and what to do about it.
    pub full: String,
    /// Bounds of each connection, if a scheduler shares out the link; `None`: the system decides.
    pub link: Option<LinkBounds>,
}

/// Bounds on what a connection has in a link that a scheduler shares out: what is in the system's buffers can
/// no longer be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBounds {
    /// Bytes that the peer may have on their way here. (The system's own bound, `net.core.rmem_max`, may be
    /// less.)
    pub window_bytes: usize,
    /// Bytes that the system takes for sending and has not sent yet. (It takes one more write.) By datagrams,
    /// both bounds are the connection's own.
    pub unsent_bytes: u32,
}

/// Accepts a bounded number of connections, on one address or on several: the bounds are of all together.
#[derive(Debug)]
pub struct Listener {
    /// The sockets with their addresses; at least one.
    inner: Vec<(Listening, SocketAddr)>,
    /// Those of datagrams, if any: at the same addresses.
    datagrams: Vec<(Listening, SocketAddr)>,
    /// Those of datagrams that nobody serves yet.
    bound: Vec<(DatagramSocket, SocketAddr)>,
    /// The socket that is asked first for the next connection: each in its turn.
    first: AtomicUsize,
    limits: Limits,
    connections: Arc<Semaphore>,
    strangers: ConnectionSlots,
    bodies: Bodies,
    full: String,
    link: Option<LinkBounds>,
    /// Rate limit of log lines about peers that were told to come back later.
    refused: Seldom,
    /// Rate limit of log lines about addresses at their share of unauthenticated connections.
    greedy: Seldom,
}

/// That which is left of a listener that accepts nothing more: its sockets for datagrams, which its
/// connections are on.
#[derive(Debug)]
pub struct Draining {
    datagrams: Vec<Listening>,
}

/// A connection. Its two halves can be used at the same time.
#[derive(Debug)]
pub struct Stream {
    inner: Socket,
    address: String,
    limits: Limits,
    /// Resources of an accepted connection; `None` if this side connected.
    accepted: Option<Accepted>,
}

/// Resources that an accepted connection holds until it is authenticated.
#[derive(Debug)]
struct Accepted {
    slot: OwnedSemaphorePermit,
    place: ConnectionSlot,
    until: Instant,
    bodies: Bodies,
}

impl Default for Capacity {
    fn default() -> Capacity {
        let full = "too many connections: end some, or try again later";
        Capacity {
            connections: CONNECTIONS_MAX,
            strangers: Bounds {
                all: STRANGERS_MAX,
                each: STRANGERS_EACH,
                each_here: STRANGERS_EACH_HERE,
                kept_here: 0,
            },
            full: full.to_owned(),
            link: None,
        }
    }
}

impl Listener {
    /// Listens on `address` (`host:port`; port 0 picks a free one) with the default limits and at most 1024
    /// connections.
    pub async fn bind(address: &str) -> Result<Listener> {
        Listener::bind_with(address, Limits::default(), Capacity::default()).await
    }

    /// Listens on `address` with the given limits and capacity.
    pub async fn bind_with(address: &str, limits: Limits, capacity: Capacity) -> Result<Listener> {
        Listener::bind_all(&[address], limits, capacity).await
    }

    /// Listens on all of `addresses`, at least one, with the given limits and capacity.
    pub async fn bind_all(
        addresses: &[impl AsRef<str>],
        limits: Limits,
        capacity: Capacity,
    ) -> Result<Listener> {
        let link = capacity.link;
        let mut inner = Vec::with_capacity(addresses.len());
        for address in addresses.iter().map(AsRef::as_ref) {
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::AddrInUse => TransportError::InUse { address: address.to_owned() },
                _ => TransportError::Bind { address: address.to_owned(), source },
            };
            let socket = Listening::bind(address).await.map_err(failed)?;
            let local = socket.local_addr().map_err(failed)?;
            if let Some(bounds) = &link {
                socket.set_receive_buffer(bounds.window_bytes).map_err(failed)?;
            }
            inner.push((socket, local));
        }
        if inner.is_empty() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "no address is given");
            return Err(TransportError::Bind { address: String::new(), source });
        }
        let first = AtomicUsize::new(0);
        let datagrams = Vec::new();
        let bound = Vec::new();
        let connections = Arc::new(Semaphore::new(capacity.connections.clamp(1, Semaphore::MAX_PERMITS)));
        let strangers = ConnectionSlots::new(capacity.strangers, GivesWay::Anyone);
        let bodies = Bodies::new();
        let full = capacity.full;
        let refused = Seldom::default();
        let greedy = Seldom::each(SHARE_LOGGED);
        Ok(Listener {
            inner,
            datagrams,
            bound,
            first,
            limits,
            connections,
            strangers,
            bodies,
            full,
            link,
            refused,
            greedy,
        })
    }

    /// Listens on all of `addresses`, and for datagrams too, at the same addresses and ports. Where any free
    /// port will do, it is one that is free for both. The datagrams wait for [`Listener::serve_datagrams`].
    pub async fn bind_both(
        addresses: &[impl AsRef<str>],
        limits: Limits,
        capacity: Capacity,
    ) -> Result<Listener> {
        let takes_any = addresses.iter().any(|address| address.as_ref().ends_with(":0"));
        // They keep ports that are taken, so that the next try gets others.
        let mut tried = Vec::new();
        loop {
            let mut listener = Listener::bind_all(addresses, limits, capacity.clone()).await?;
            match listener.bind_datagrams() {
                Err(TransportError::InUse { .. }) if takes_any && tried.len() < BIND_TRIES => {
                    tried.push(listener);
                }
                bound => return bound.map(|()| listener),
            }
        }
    }

    /// Takes the sockets for datagrams, at the addresses that it listens on.
    fn bind_datagrams(&mut self) -> Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for (_, address) in &self.inner {
            let sockets = DatagramSocket::bind_shared(*address, cores.min(PORTS_MAX))
                .map_err(|source| at_udp(address, source))?;
            self.bound.extend(sockets.into_iter().map(|socket| (socket, *address)));
        }
        Ok(())
    }

    /// Serves datagrams from now on: of peers that show an identity whose secret `secret_of` finds, and prove
    /// that they know it.
    pub fn serve_datagrams(&mut self, config: &Config, secret_of: &SecretOf) -> Result<()> {
        for (socket, address) in std::mem::take(&mut self.bound) {
            let mut config = Config { connections: self.connections.available_permits(), ..config.clone() };
            if let Some(bounds) = &self.link {
                bounds.apply(&mut config);
            }
            let listener = DatagramListener::start(socket, config, Arc::clone(secret_of))
                .map_err(|source| at_udp(&address, source))?;
            self.datagrams.push((Listening::Datagrams(listener), address));
        }
        Ok(())
    }

    /// Listens for datagrams too, at the same addresses and ports, and serves them as
    /// [`Listener::serve_datagrams`] does.
    pub fn add_datagrams(&mut self, config: &Config, secret_of: &SecretOf) -> Result<()> {
        self.bind_datagrams()?;
        self.serve_datagrams(config, secret_of)
    }

    /// Accepts nothing more, and ends what nobody has accepted. The connections go on.
    pub fn close(self) -> Draining {
        let datagrams: Vec<Listening> = self.datagrams.into_iter().map(|(socket, _)| socket).collect();
        datagrams.iter().filter_map(Listening::as_datagrams).for_each(DatagramListener::close);
        Draining { datagrams }
    }

    /// Returns true if it listens for datagrams too.
    pub fn has_datagrams(&self) -> bool {
        !self.bound.is_empty() || !self.datagrams.is_empty()
    }

    /// The first address that the listener listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.inner[0].1
    }

    /// All addresses that the listener listens on, in the order in which they were asked for.
    pub fn local_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.inner.iter().map(|(_, address)| *address)
    }

    /// The next connection of any socket, and the address of that socket.
    async fn next(&self) -> (io::Result<(Socket, SocketAddr)>, SocketAddr) {
        std::future::poll_fn(|context| {
            let first = self.first.load(Ordering::Relaxed);
            let all = self.inner.len() + self.datagrams.len();
            for at in (0..all).map(|at| (first + at) % all) {
                let mut sockets = self.inner.iter().chain(&self.datagrams);
                let Some((socket, address)) = sockets.nth(at) else { continue };
                if let Poll::Ready(accepted) = socket.poll_accept(context) {
                    self.first.store(at + 1, Ordering::Relaxed);
                    return Poll::Ready((accepted, *address));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next connection. It is unauthenticated: it may be displaced by a newer one, and has `limits.proof`
    /// to authenticate ([`Receiver::admit`]). A peer beyond the limit of all connections is told so, and its
    /// connection is closed. Cancel-safe.
    ///
    /// An error means that the system lacks a resource (descriptors, memory): wait a little and call again.
    pub async fn accept(&self) -> Result<Stream> {
        loop {
            let (accepted, address) = self.next().await;
            let (inner, peer) = match accepted {
                Ok(accepted) => accepted,
                // The peer left before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(source) => return Err(TransportError::io(&address.to_string(), source)),
            };
            let Ok(slot) = Arc::clone(&self.connections).try_acquire_owned() else {
                if let Some(left_out) = self.refused.due(Holder::at(peer.ip())) {
                    warn!(%peer, left_out, "too many connections: told the peer to come back later");
                }
                hello::refuse_busy(&inner, &self.full);
                continue;
            };
            if let Err(error) = set_up(&inner) {
                debug!(%peer, %error, "gone before it was served");
                continue;
            }
            if let (Some(bounds), Some(stream)) = (&self.link, inner.as_tcp())
                && let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(bounds.unsent_bytes)
            {
                debug!(%peer, %error, "what the connection leaves unsent is not bounded");
            }
            let mut stream = Stream { inner, address: peer.to_string(), limits: self.limits, accepted: None };
            let Some(place) = self.strangers.take(Holder::at(peer.ip()), stream.origin()) else { continue };
            self.say_displaced(&place);
            let until = Instant::now() + self.limits.proof;
            let bodies = self.bodies.clone();
            stream.accepted = Some(Accepted { slot, place, until, bodies });
            return Ok(stream);
        }
    }
}

impl Listener {
    /// Logs, seldom, that an address had so many unauthenticated connections that one was closed.
    fn say_displaced(&self, place: &ConnectionSlot) {
        let Some(displaced @ Holder::Address(address)) = place.displaced() else { return };
        if let Some(left_out) = self.greedy.due(displaced) {
            info!(%address, left_out,
                "connections of this address prove nothing and hold its share of places: its oldest is closed");
        }
    }
}

impl LinkBounds {
    /// Sets the same bounds for connections by datagrams.
    fn apply(&self, config: &mut Config) {
        let settings = &mut config.settings;
        let window = u32::try_from(self.window_bytes).unwrap_or(u32::MAX);
        settings.window_bytes = settings.window_bytes.min(window.max(DATAGRAM_WINDOW_BYTES_MIN));
        config.unsent_bytes_max = config.unsent_bytes_max.min(u64::from(self.unsent_bytes));
    }
}

impl Draining {
    /// Waits until all that was sent by datagrams has arrived, or cannot, and the peers know that their
    /// connections have ended; for `most` at most. Then the addresses are free. (What was sent over TCP is
    /// the system's.)
    pub async fn drained(self, most: Duration) {
        let ports = self.datagrams.iter().filter_map(Listening::as_datagrams);
        let all = async {
            for port in ports {
                std::future::poll_fn(|context| port.poll_drained(context)).await;
            }
        };
        if timeout(most, all).await.is_err() {
            debug!("peers have not acknowledged all that was sent to them by datagrams");
        }
        for socket in self.datagrams {
            if let Listening::Datagrams(listener) = socket {
                listener.end().await;
            }
        }
    }
}

impl Stream {
    /// Connects to `address` (`host:port`) within `limits.connect`.
    pub async fn connect(address: &str, limits: &Limits) -> Result<Stream> {
        let inner = match timeout(limits.connect, Socket::connect(address)).await {
            Err(_) => {
                return Err(TransportError::Timeout { what: "to connect", address: address.to_owned() });
            }
            Ok(Err(source)) if source.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(TransportError::Refused { address: address.to_owned() });
            }
            Ok(Err(source)) => return Err(TransportError::Connect { address: address.to_owned(), source }),
            Ok(Ok(inner)) if is_own_echo(&inner) => {
                return Err(TransportError::Refused { address: address.to_owned() });
            }
            Ok(Ok(inner)) => inner,
        };
        set_up(&inner).map_err(|source| TransportError::io(address, source))?;
        Ok(Stream { inner, address: address.to_owned(), limits: *limits, accepted: None })
    }

    /// Connects to `address` by datagrams, within `limits.connect`. The peer must know the secret of this
    /// identity.
    pub async fn connect_by_datagrams(
        address: &str,
        limits: &Limits,
        config: Config,
        identity: &[u8],
        secret: Secret,
    ) -> Result<Stream> {
        let connecting = DatagramStream::connect(address, config, identity, secret);
        let inner = match timeout(limits.connect, connecting).await {
            Err(_) => {
                return Err(TransportError::Timeout { what: "to connect", address: address.to_owned() });
            }
            Ok(Err(source)) if source.kind() == io::ErrorKind::TimedOut => {
                return Err(TransportError::Timeout { what: "to connect", address: address.to_owned() });
            }
            Ok(Err(source)) => return Err(TransportError::Connect { address: address.to_owned(), source }),
            Ok(Ok(stream)) => Socket::Datagrams(stream),
        };
        Ok(Stream { inner, address: address.to_owned(), limits: *limits, accepted: None })
    }

    /// The peer's address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The same connection under another form of its address.
    pub(crate) fn named(self, address: &str) -> Stream {
        Stream { address: address.to_owned(), ..self }
    }

    /// Returns true if the peer is on this machine, judging by addresses: it calls from loopback or from the
    /// address that it called.
    pub fn is_local(&self) -> bool {
        match (self.inner.local_addr(), self.inner.peer_addr()) {
            (Ok(local), Ok(peer)) => is_same_machine(local.ip(), peer.ip()),
            _ => false,
        }
    }

    /// Returns true if the system sends bytes of files over the connection.
    pub fn takes_files(&self) -> bool {
        self.inner.as_tcp().is_some()
    }

    /// The address of this machine's link that the connection is over; `None` if the peer is on this machine,
    /// or if the connection is simulated.
    pub fn link(&self) -> Option<IpAddr> {
        let local = match &self.inner {
            Socket::Tcp(stream) => stream.local_addr().ok()?,
            Socket::Datagrams(stream) => stream.local(),
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => return None,
        };
        (!self.is_local()).then_some(local.ip())
    }

    /// The peer's location as an [`Origin`], for slots.
    pub fn origin(&self) -> Origin {
        if self.is_local() { Origin::Here } else { Origin::Elsewhere }
    }

    /// The holder of the connection's slot, judging by the peer's address.
    pub fn holder(&self) -> Result<Holder> {
        let peer = self.inner.peer_addr().map_err(|source| TransportError::io(&self.address, source))?;
        Ok(Holder::at(peer.ip()))
    }

    /// The bounds of this connection's waits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Splits the connection into its two directions. It ends when both are dropped; the peer sees the end of
    /// this side's direction when [`Sender`] is dropped.
    pub fn into_halves(self) -> (Sender, Receiver) {
        let (read, write) = self.inner.into_split();
        let address = Arc::<str>::from(self.address);
        let held = self.accepted.map(|Accepted { slot, place, until, bodies }| ConnectionResources {
            slot: Arc::new(slot),
            place: Arc::new(place),
            stranger_until: Some(until),
            allowance: Allowance::new(),
            bodies,
            share: None,
            work: None,
        });
        if let Some(held) = &held {
            held.share_with(&read);
        }
        let slot = held.as_ref().map(|held| Arc::clone(&held.slot));
        let sender = Sender::new(write, Arc::clone(&address), self.limits, slot);
        (sender, Receiver::new(read, address, self.limits, held))
    }
}

/// The error of a socket for datagrams at this address.
fn at_udp(address: &SocketAddr, source: io::Error) -> TransportError {
    let address = format!("UDP {address}");
    match source.kind() {
        io::ErrorKind::AddrInUse => TransportError::InUse { address },
        _ => TransportError::Bind { address, source },
    }
}

fn is_same_machine(local: IpAddr, peer: IpAddr) -> bool {
    let local = local.to_canonical();
    let peer = peer.to_canonical();
    peer.is_loopback() || peer == local
}

/// Returns true if the connection is connected to itself. On loopback, the ephemeral port chosen for a new
/// connection can be the called port. If nothing listens there, the connection reaches itself and would keep
/// the port from the server that returns to it. Such a connection is reset at once, to free the port.
fn is_own_echo(stream: &Socket) -> bool {
    let own = matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer);
    if own
        && let Some(stream) = stream.as_tcp()
        && let Err(error) = SockRef::from(stream).set_linger(Some(Duration::ZERO))
    {
        debug!(%error, "the socket had connected to itself, and its port stays in use for a while");
    }
    own
}

/// Disables Nagle's algorithm, enables keepalive to notice a dead peer, and chooses how the kernel shares a
/// link. Buffer sizes are left to the kernel, as setting them would disable its autotuning, unless the link
/// has bounds ([`LinkBounds`]).
fn set_up(stream: &Socket) -> io::Result<()> {
    let Some(stream) = stream.as_tcp() else { return Ok(()) };
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    // A kernel built without this congestion control goes on with its own.
    if let Err(error) = socket.set_tcp_congestion(CONGESTION) {
        debug!(%error, "the connection keeps the system's congestion control");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_connection_uses_cubic_whatever_the_systems_is() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        SockRef::from(&stream).set_tcp_congestion(b"reno").unwrap();
        let stream = Socket::Tcp(stream);
        set_up(&stream).unwrap();
        let chosen = SockRef::from(stream.as_tcp().unwrap()).tcp_congestion().unwrap();
        assert!(chosen.starts_with(CONGESTION), "{chosen:?}");
    }

    #[tokio::test]
    async fn a_link_with_bounds_has_little_in_the_systems_buffers() {
        // A number that no default has.
        let bounds = LinkBounds { window_bytes: 40_960, unsent_bytes: 12_345 };
        for link in [Some(bounds), None] {
            let capacity = Capacity { link, ..Capacity::default() };
            let listener = Listener::bind_with("127.0.0.1:0", Limits::default(), capacity).await.unwrap();
            let (_peer, accepted) =
                tokio::join!(TcpStream::connect(listener.local_address()), listener.accept());
            let stream = accepted.unwrap();
            let socket = SockRef::from(stream.inner.as_tcp().unwrap());
            let is_bounded = socket.recv_buffer_size().unwrap() == 2 * bounds.window_bytes
                && socket.tcp_notsent_lowat().unwrap() == bounds.unsent_bytes;
            assert_eq!(is_bounded, link.is_some());
        }
    }

    #[tokio::test]
    async fn by_datagrams_a_link_with_bounds_has_little_in_a_connection_s_buffers() {
        let bounds = LinkBounds { window_bytes: 40_960, unsent_bytes: 12_345 };
        let mut config = Config::default();
        bounds.apply(&mut config);
        assert_eq!((config.settings.window_bytes, config.unsent_bytes_max), (40_960, 12_345));
        let secret = || Secret::new([7; 32]);
        let secret_of: SecretOf = Arc::new(move |_| Some(secret()));
        for link in [Some(bounds), None] {
            let capacity = Capacity { link, ..Capacity::default() };
            let mut listener = Listener::bind_with("127.0.0.1:0", Limits::default(), capacity).await.unwrap();
            listener.add_datagrams(&Config::default(), &secret_of).unwrap();
            let address = listener.local_address().to_string();
            let limits = Limits::default();
            let connecting =
                Stream::connect_by_datagrams(&address, &limits, Config::default(), b"", secret());
            let (connected, _accepted) = tokio::join!(connecting, listener.accept());
            // One write is at most the longest message that the other side takes.
            let (_read, mut write) = connected.unwrap().inner.into_split();
            let written = write.write(&[7; 64 << 10]).await.unwrap();
            assert_eq!(written, if link.is_some() { 40_960 / 2 - 4 } else { 64 << 10 });
        }
    }

    #[tokio::test]
    async fn a_connection_with_itself_is_nobodys() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let stream = Socket::Tcp(socket.connect(address).await.unwrap());
        assert!(is_own_echo(&stream));
        drop(stream);
        // The port is free for a server again.
        let listener = Listener::bind(&address.to_string()).await.unwrap();
        let stream = Socket::Tcp(TcpStream::connect(listener.local_address()).await.unwrap());
        assert!(!is_own_echo(&stream));
        assert!(listener.accept().await.unwrap().is_local());
    }

    #[test]
    fn a_peer_with_a_loopback_or_our_own_address_is_on_this_machine() {
        for (local, peer, expected) in [
            ("127.0.0.1", "127.0.0.2", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.77.0.1", "10.77.0.1", true),
            ("::ffff:10.77.0.1", "10.77.0.1", true),
            ("10.77.0.1", "10.77.0.2", false),
            ("::ffff:10.77.0.1", "::ffff:10.77.0.2", false),
            ("fe80::1", "fe80::2", false),
        ] {
            let is_local = is_same_machine(local.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(is_local, expected, "{local} called by {peer}");
        }
    }
}
