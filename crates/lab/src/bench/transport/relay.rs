//! Machines that are slow to answer: a relay before a server, which holds each datagram for a while. All of
//! them are held for as long, any number at a time: what it stands for is a latency, not a rate.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use braid_cli::output::exit::{Doing, Failure};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes of the longest datagram that a full frame carries. A longer one is dropped, as a link would, and not
/// sent in fragments.
const BYTES_MAX: usize = 1472;
/// Datagrams that are held at most in each direction for each client; more are dropped.
const HELD_MAX: usize = 1024;
/// Clients that a relay knows at most.
const CLIENTS_MAX: usize = 64;

/// A datagram and the time at which it goes on.
struct Held {
    due: Instant,
    bytes: Vec<u8>,
}

/// Relays what comes to `outer` to the server, and its answers back, each `delay` late, until a socket fails.
pub(super) async fn relay(outer: UdpSocket, server: SocketAddr, delay: Duration) -> Result<(), Failure> {
    let doing = || "relay datagrams".to_owned();
    let outer = Arc::new(outer);
    let mut clients: HashMap<SocketAddr, mpsc::Sender<Held>> = HashMap::new();
    let mut buffer = vec![0; BYTES_MAX + 1];
    loop {
        let (length, client) = outer.recv_from(&mut buffer).await.doing(doing)?;
        if !clients.contains_key(&client) && clients.len() < CLIENTS_MAX {
            clients.insert(client, serve(&outer, client, server, delay).await.doing(doing)?);
        }
        if let Some(queue) = clients.get(&client) {
            hold(queue, &buffer[..length], delay);
        }
    }
}

/// Serves one client with a socket of its own; returns the queue of what it sends.
async fn serve(
    outer: &Arc<UdpSocket>,
    client: SocketAddr,
    server: SocketAddr,
    delay: Duration,
) -> std::io::Result<mpsc::Sender<Held>> {
    let inner = Arc::new(UdpSocket::bind((server.ip(), 0)).await?);
    inner.connect(server).await?;
    let (to_server, mut from_client) = mpsc::channel::<Held>(HELD_MAX);
    let (to_client, mut from_server) = mpsc::channel::<Held>(HELD_MAX);
    let sending = Arc::clone(&inner);
    tokio::spawn(async move {
        while let Some(held) = from_client.recv().await {
            sleep_until(held.due).await;
            // One that cannot go is lost, as on any link.
            let _ = sending.send(&held.bytes).await;
        }
    });
    let outer = Arc::clone(outer);
    tokio::spawn(async move {
        while let Some(held) = from_server.recv().await {
            sleep_until(held.due).await;
            let _ = outer.send_to(&held.bytes, client).await;
        }
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; BYTES_MAX + 1];
        while !to_client.is_closed() {
            // An error is of a datagram that was refused; the next may pass.
            if let Ok(length) = inner.recv(&mut buffer).await {
                hold(&to_client, &buffer[..length], delay);
            }
        }
    });
    Ok(to_server)
}

fn hold(queue: &mpsc::Sender<Held>, bytes: &[u8], delay: Duration) {
    if bytes.len() <= BYTES_MAX {
        // A full queue drops it.
        let _ = queue.try_send(Held { due: Instant::now() + delay, bytes: bytes.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delay is a bound from below: a busy machine only adds to it.
    #[tokio::test]
    async fn what_it_holds_comes_late_and_whole_in_both_directions() {
        let socket = || UdpSocket::bind("127.0.0.1:0");
        let server = socket().await.unwrap();
        let outer = socket().await.unwrap();
        let client = socket().await.unwrap();
        client.connect(outer.local_addr().unwrap()).await.unwrap();
        let delay = Duration::from_millis(30);
        tokio::spawn(relay(outer, server.local_addr().unwrap(), delay));
        let began = Instant::now();
        client.send(&[1; BYTES_MAX + 1]).await.unwrap();
        client.send(&[7; BYTES_MAX]).await.unwrap();
        let mut buffer = vec![0; 2000];
        let (length, from) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], [7; BYTES_MAX], "the longer one is dropped");
        assert!(began.elapsed() >= delay);
        server.send_to(b"answer", from).await.unwrap();
        let length = client.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"answer");
        assert!(began.elapsed() >= 2 * delay);
    }
}
