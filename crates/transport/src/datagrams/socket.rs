//! The socket of a port: the system's, or a simulated host's.

#[cfg(feature = "simulated")]
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{PoisonError, RwLock};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

#[cfg(feature = "simulated")]
use crate::host::simulated;

/// Bytes of the socket's buffers, if the system gives them.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A socket that sends and receives datagrams, many at a time.
#[derive(Debug)]
pub(crate) enum DatagramSocket {
    System(UdpSocket, RwLock<UdpSocketState>),
    #[cfg(feature = "simulated")]
    Simulated(Box<dyn simulated::DatagramSocket>),
}

/// The one form of a peer's address, whoever tells it: the system says more or less with one than a caller.
/// The link of an address that is good on one link alone is kept.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = address else { return address };
    match v6.ip().to_canonical() {
        IpAddr::V4(_) => SocketAddr::new(v6.ip().to_canonical(), v6.port()),
        IpAddr::V6(ip) => {
            let link = if ip.is_unicast_link_local() { v6.scope_id() } else { 0 };
            SocketAddrV6::new(ip, v6.port(), 0, link).into()
        }
    }
}

impl DatagramSocket {
    /// Sockets at one address, among which the system shares out the peers, by a hash of both sides'
    /// addresses and ports: all datagrams of a peer come to one of them, as long as no socket joins or
    /// leaves. So a machine with several processors serves several peers at a time. What comes before a
    /// socket is served waits. A simulated host has one.
    pub(crate) fn bind_shared(address: SocketAddr, count: usize) -> io::Result<Vec<DatagramSocket>> {
        #[cfg(feature = "simulated")]
        if let Some(host) = simulated::host() {
            return Ok(vec![DatagramSocket::Simulated(host.datagrams(address, None)?)]);
        }
        // Sockets that share an address let any process of this user join them: one alone says whether it is
        // free.
        drop(std::net::UdpSocket::bind(address)?);
        let bind = |_| {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
            socket.set_reuse_port(count > 1)?;
            socket.bind(&address.into())?;
            socket.set_nonblocking(true)?;
            DatagramSocket::of_system(UdpSocket::from_std(socket.into())?)
        };
        (0..count.max(1)).map(bind).collect()
    }

    /// A socket that hears this peer alone, and also that nothing listens there.
    pub(crate) async fn connect(peer: SocketAddr) -> io::Result<DatagramSocket> {
        let peer = canonical(peer);
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        #[cfg(feature = "simulated")]
        if let Some(host) = simulated::host() {
            let any = any.parse().map_err(io::Error::other)?;
            return Ok(DatagramSocket::Simulated(host.datagrams(any, Some(peer))?));
        }
        let socket = UdpSocket::bind(any).await?;
        socket.connect(peer).await?;
        DatagramSocket::of_system(socket)
    }

    fn of_system(socket: UdpSocket) -> io::Result<DatagramSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Smaller buffers lose more, but work.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER_BYTES);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), SOCKET_BUFFER_BYTES);
        Ok(DatagramSocket::System(socket, RwLock::new(state)))
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        match self {
            DatagramSocket::System(socket, _) => socket.local_addr(),
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(socket) => Ok(socket.address()),
        }
    }

    /// Waits until something can be received, at the latest; it may be less.
    pub(crate) async fn readable(&self) {
        match self {
            // An error is met again by the call that receives.
            DatagramSocket::System(socket, _) => _ = socket.readable().await,
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(socket) => poll_fn(|context| socket.poll_readable(context)).await,
        }
    }

    /// Waits until something can be sent, at the latest.
    pub(crate) async fn writable(&self) {
        match self {
            DatagramSocket::System(socket, _) => _ = socket.writable().await,
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(_) => {}
        }
    }

    /// Takes what has come into the buffers, and notes in `meta` what is in each. Returns the number of those
    /// that were used. Never waits.
    pub(crate) fn receive(&self, buffers: &mut [Vec<u8>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        match self {
            DatagramSocket::System(socket, state) => {
                let state = state.read().unwrap_or_else(PoisonError::into_inner);
                let mut slices: Vec<IoSliceMut<'_>> =
                    buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
                socket.try_io(Interest::READABLE, || state.recv(UdpSockRef::from(socket), &mut slices, meta))
            }
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(socket) => {
                let buffer = buffers.first_mut().ok_or(io::ErrorKind::InvalidInput)?;
                let meta = meta.first_mut().ok_or(io::ErrorKind::InvalidInput)?;
                let (length, from) = socket.receive(buffer)?;
                (meta.addr, meta.len, meta.stride) = (from, length, length);
                Ok(1)
            }
        }
    }

    /// Sends datagrams. Never waits.
    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self {
            DatagramSocket::System(socket, state) => {
                let send = || {
                    let state = state.read().unwrap_or_else(PoisonError::into_inner);
                    state.try_send(UdpSockRef::from(socket), transmit)
                };
                let sent = socket.try_io(Interest::WRITABLE, send);
                let is_alone = transmit.segment_size.is_none();
                if is_alone && matches!(&sent, Err(error) if error.kind() == io::ErrorKind::InvalidInput) {
                    renew(socket, state);
                }
                sent
            }
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(socket) => {
                let length = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
                let datagrams = transmit.contents.chunks(length);
                datagrams.for_each(|datagram| socket.send(transmit.destination, datagram));
                Ok(())
            }
        }
    }

    /// Number of datagrams that one call sends at most.
    pub(crate) fn segments_max(&self) -> usize {
        match self {
            DatagramSocket::System(_, state) => {
                state.read().unwrap_or_else(PoisonError::into_inner).max_gso_segments().max(1)
            }
            #[cfg(feature = "simulated")]
            DatagramSocket::Simulated(_) => 64,
        }
    }
}

/// Has the library forget what it took an error for. If the system refuses a datagram, the library sends no
/// more runs of them in one call, and none with ECN bits, for as long as the socket is there. But where one
/// that went alone is refused, it is for its addresses: a peer that cannot be, or an own address that has
/// gone.
fn renew(socket: &UdpSocket, state: &RwLock<UdpSocketState>) {
    if let Ok(renewed) = UdpSocketState::new(UdpSockRef::from(socket)) {
        *state.write().unwrap_or_else(PoisonError::into_inner) = renewed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_the_system_refuses_slows_nobody_else() {
        let any = "127.0.0.1:0".parse().unwrap();
        let socket = DatagramSocket::bind_shared(any, 1).unwrap().remove(0);
        let before = socket.segments_max();
        socket.writable().await;
        let transmit =
            Transmit { destination: any, ecn: None, contents: b"x", segment_size: None, src_ip: None };
        let refused = socket.send(&transmit).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(socket.segments_max(), before);
    }

    #[test]
    fn an_address_has_one_form() {
        let check = |told: &str, expected: &str| {
            assert_eq!(canonical(told.parse().unwrap()), expected.parse().unwrap(), "{told}");
        };
        check("10.0.0.1:7", "10.0.0.1:7");
        check("[::ffff:10.0.0.1]:7", "10.0.0.1:7");
        check("[fd00::1]:7", "[fd00::1]:7");
        check("[fd00::1%3]:7", "[fd00::1]:7");
        check("[fe80::1%3]:7", "[fe80::1%3]:7");
        let with_flow = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 9, 3);
        assert_eq!(canonical(with_flow.into()), "[fe80::1%3]:7".parse().unwrap());
    }
}
