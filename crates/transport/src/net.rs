//! Sockets: TCP, TLS over it ([`crate::tls`]), datagrams ([`crate::datagrams`]), or those of a simulated host
//! ([`crate::host`]).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsStream;

use crate::datagrams::{DatagramListener, DatagramRead, DatagramStream, DatagramWrite, Held};
#[cfg(feature = "simulated")]
use crate::host::simulated;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listening {
    Tcp(TcpListener),
    Datagrams(DatagramListener),
    #[cfg(feature = "simulated")]
    Simulated(Box<dyn simulated::Listener>),
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Datagrams(DatagramStream),
    #[cfg(feature = "simulated")]
    Simulated(simulated::Socket),
}

/// The receiving direction of a connection.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(OwnedReadHalf),
    Tls(tokio::io::ReadHalf<Box<TlsStream<TcpStream>>>),
    Datagrams(DatagramRead),
    #[cfg(feature = "simulated")]
    Simulated(Box<dyn simulated::Read>),
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(OwnedWriteHalf),
    Tls(tokio::io::WriteHalf<Box<TlsStream<TcpStream>>>),
    Datagrams(DatagramWrite),
    #[cfg(feature = "simulated")]
    Simulated(Box<dyn simulated::Write>),
}

/// Does the same with a half of either kind.
macro_rules! of_either {
    ($half:expr, $kind:ident, $inner:ident => $done:expr) => {
        match $half {
            $kind::Tcp($inner) => $done,
            $kind::Tls($inner) => $done,
            $kind::Datagrams($inner) => $done,
            #[cfg(feature = "simulated")]
            $kind::Simulated($inner) => $done,
        }
    };
}

impl Listening {
    pub(crate) async fn bind(address: &str) -> io::Result<Listening> {
        #[cfg(feature = "simulated")]
        if let Some(host) = simulated::host() {
            return Ok(Listening::Simulated(host.listen(address)?));
        }
        Ok(Listening::Tcp(TcpListener::bind(address).await?))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Listening::Tcp(listener) => listener.local_addr(),
            Listening::Datagrams(listener) => Ok(listener.local()),
            #[cfg(feature = "simulated")]
            Listening::Simulated(listener) => Ok(listener.address()),
        }
    }

    /// Bounds the receive buffers of the connections that are accepted from now on. The system gives twice
    /// what it is asked for, half of it for what keeping the bytes takes beside, up to a bound of its own.
    pub(crate) fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        match self {
            Listening::Tcp(listener) => SockRef::from(listener).set_recv_buffer_size(bytes),
            Listening::Datagrams(_) => Ok(()),
            #[cfg(feature = "simulated")]
            Listening::Simulated(_) => Ok(()),
        }
    }

    /// The listener, if it is of datagrams.
    pub(crate) fn as_datagrams(&self) -> Option<&DatagramListener> {
        if let Listening::Datagrams(listener) = self { Some(listener) } else { None }
    }

    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Socket, SocketAddr)>> {
        match self {
            Listening::Tcp(listener) => {
                listener.poll_accept(context).map_ok(|(stream, peer)| (Socket::Tcp(stream), peer))
            }
            Listening::Datagrams(listener) => listener.poll_accept(context).map(|stream| {
                let peer = stream.peer();
                Ok((Socket::Datagrams(stream), peer))
            }),
            #[cfg(feature = "simulated")]
            Listening::Simulated(listener) => listener.poll_accept(context).map_ok(|socket| {
                let peer = socket.peer;
                (Socket::Simulated(socket), peer)
            }),
        }
    }
}

impl Socket {
    pub(crate) async fn connect(address: &str) -> io::Result<Socket> {
        #[cfg(feature = "simulated")]
        if let Some(host) = simulated::host() {
            return host.connect(address).await.map(Socket::Simulated);
        }
        TcpStream::connect(address).await.map(Socket::Tcp)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(stream) => stream.local_addr(),
            Socket::Datagrams(stream) => Ok(stream.local()),
            #[cfg(feature = "simulated")]
            Socket::Simulated(socket) => Ok(socket.local),
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr(),
            Socket::Datagrams(stream) => Ok(stream.peer()),
            #[cfg(feature = "simulated")]
            Socket::Simulated(socket) => Ok(socket.peer),
        }
    }

    /// The system's socket, to set its options; `None` if simulated, or of datagrams.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            Socket::Tcp(stream) => Some(stream),
            Socket::Datagrams(_) => None,
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => None,
        }
    }

    /// Sends bytes that are taken at once, if they are, on a connection that nothing else is sent on.
    pub(crate) fn send_last(&self, bytes: &[u8]) {
        match self {
            Socket::Tcp(stream) => _ = stream.try_write(bytes),
            Socket::Datagrams(stream) => stream.send_last(bytes),
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => {}
        }
    }

    pub(crate) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Socket::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Socket::Datagrams(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Datagrams(read), WriteHalf::Datagrams(write))
            }
            #[cfg(feature = "simulated")]
            Socket::Simulated(socket) => {
                (ReadHalf::Simulated(socket.read), WriteHalf::Simulated(socket.write))
            }
        }
    }
}

impl ReadHalf {
    /// The system's socket, to look at it; `None` if simulated, within TLS, or of datagrams.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            ReadHalf::Tcp(half) => Some(half.as_ref()),
            ReadHalf::Tls(_) | ReadHalf::Datagrams(_) => None,
            #[cfg(feature = "simulated")]
            ReadHalf::Simulated(_) => None,
        }
    }

    /// The connection of datagrams, to steer it; `None` if it is of another kind.
    pub(crate) fn as_datagrams(&self) -> Option<&Held> {
        if let ReadHalf::Datagrams(half) = self { Some(half.held()) } else { None }
    }
}

impl WriteHalf {
    /// Returns true if what was written may wait for a flush.
    pub(crate) fn needs_flush(&self) -> bool {
        matches!(self, WriteHalf::Tls(_))
    }

    /// The system's socket, for other ways to send; `None` if simulated, within TLS, or of datagrams.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            WriteHalf::Tcp(half) => Some(half.as_ref()),
            WriteHalf::Tls(_) | WriteHalf::Datagrams(_) => None,
            #[cfg(feature = "simulated")]
            WriteHalf::Simulated(_) => None,
        }
    }

    /// The connection of datagrams, to steer it; `None` if it is of another kind.
    pub(crate) fn as_datagrams(&self) -> Option<&Held> {
        if let WriteHalf::Datagrams(half) = self { Some(half.held()) } else { None }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of_either!(self.get_mut(), ReadHalf, half => Pin::new(half).poll_read(context, into))
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_either!(self.get_mut(), WriteHalf, half => Pin::new(half).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_either!(self.get_mut(), WriteHalf, half => Pin::new(half).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self.get_mut(), WriteHalf, half => Pin::new(half).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self.get_mut(), WriteHalf, half => Pin::new(half).poll_shutdown(context))
    }
}
