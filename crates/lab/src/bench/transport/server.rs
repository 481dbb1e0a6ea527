//! The process that stands in a drive's place: it answers on one port for each way, and has no store.
//!
//! A request says how many bytes its answer has, and may have bytes itself. Over Braid's streams both are
//! frames; over a plain connection a request begins with two numbers of four bytes: its own bytes, and those
//! of the answer. If datagrams are to be held, a relay takes them at the port, and the server behind it is on
//! the loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_datagram::Secret;
use braid_transport::{
    Bounds, Capacity, ConnectionSlots, GivesWay, Limits, Listener, SecretOf, Stream, session_config,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::relay::relay;
use super::way::Way;

/// Port of the first way; each further one has the next.
pub(super) const PORT: u16 = 7200;
/// The longest request or answer.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Kind of the frames.
pub(super) const KIND: u16 = 1;
/// The identity that every client shows, and its secret: nothing is kept from anybody here.
pub(super) const IDENTITY: &[u8] = b"bench";
pub(super) const SECRET: [u8; 32] = [1; 32];
/// Connections that a server has at most.
const CONNECTIONS_MAX: usize = 64;

/// Runs `braid-lab bench-streams`, until it is killed.
pub(crate) async fn serve(address: &str, ways: &[String], held: Duration) -> Result<(), Failure> {
    let mut serving = tokio::task::JoinSet::new();
    for (port, name) in (PORT..).zip(ways) {
        let unknown =
            |error| Failure::new(Exit::Usage, "serve a way", format!("{error}, tcp, tcp-of-system"));
        let way: Way = name.parse().map_err(unknown)?;
        let address = format!("{address}:{port}");
        match way {
            Way::TcpOfSystem => {
                let listener = TcpListener::bind(&address).await.doing(|| format!("listen on {address}"))?;
                serving.spawn(plain(listener));
            }
            Way::Datagrams(_) if !held.is_zero() => {
                let listener = listen("127.0.0.1:0", way).await?;
                let outer = UdpSocket::bind(&address).await.doing(|| format!("listen on {address}"))?;
                serving.spawn(relay(outer, listener.local_address(), held));
                serving.spawn(streams(listener));
            }
            Way::Tcp | Way::Datagrams(_) => {
                serving.spawn(streams(listen(&address, way).await?));
            }
        }
    }
    match serving.join_next().await {
        Some(ended) => ended.map_err(std::io::Error::other).doing(|| "serve".into())?,
        None => Err(Failure::new(Exit::Usage, "serve", "no way is given")),
    }
}

async fn listen(address: &str, way: Way) -> Result<Listener, Failure> {
    let failed = |error: braid_transport::TransportError| {
        Failure::new(Exit::Failed, format!("listen on {address}"), error.to_string())
    };
    let capacity = Capacity { connections: CONNECTIONS_MAX, ..Capacity::default() };
    let mut listener = Listener::bind_with(address, Limits::default(), capacity).await.map_err(failed)?;
    if let Way::Datagrams(policy) = way {
        let secret_of: SecretOf = Arc::new(|identity| (identity == IDENTITY).then(|| Secret::new(SECRET)));
        listener.add_datagrams(&session_config(policy), &secret_of).map_err(failed)?;
    }
    Ok(listener)
}

async fn streams(listener: Listener) -> Result<(), Failure> {
    let slots = ConnectionSlots::new(Bounds::new(CONNECTIONS_MAX, CONNECTIONS_MAX), GivesWay::Idle);
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(answer(stream, slots.clone()))),
            // The system lacks something for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Answers on one connection until it ends.
async fn answer(stream: Stream, slots: ConnectionSlots) {
    let Some(place) = stream.holder().ok().and_then(|holder| slots.take(holder, stream.origin())) else {
        return;
    };
    let (mut sender, mut receiver) = stream.into_halves();
    receiver.admit(place);
    let bytes = vec![0xa5; BYTES_MAX];
    while let Ok(Some((header, body))) = receiver.frame().await {
        let Ok(asked) = <[u8; 4]>::try_from(body.as_slice()) else { return };
        let asked = usize::try_from(u32::from_le_bytes(asked)).unwrap_or(BYTES_MAX).min(BYTES_MAX);
        if receiver.skip(header.payload_bytes).await.is_err()
            || sender.send(KIND, header.request, &[], &[&bytes[..asked]]).await.is_err()
        {
            return;
        }
    }
}

async fn plain(listener: TcpListener) -> Result<(), Failure> {
    loop {
        let accepted: (TcpStream, SocketAddr) = listener.accept().await.doing(|| "accept".into())?;
        tokio::spawn(answer_plainly(accepted.0));
    }
}

async fn answer_plainly(mut stream: TcpStream) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut buffer = vec![0xa5; BYTES_MAX];
    while let Ok(bytes) = stream.read_u32_le().await {
        let Ok(asked) = stream.read_u32_le().await else { return };
        let [bytes, asked] = [bytes, asked].map(|count| usize::try_from(count).unwrap_or(BYTES_MAX));
        if bytes.max(asked) > BYTES_MAX
            || stream.read_exact(&mut buffer[..bytes]).await.is_err()
            || stream.write_all(&buffer[..asked]).await.is_err()
        {
            return;
        }
    }
}
