//! Frames over datagrams, on real sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_datagram::{Config, Secret};
use braid_transport::{
    Capacity, Limits, Listener, Receiver, SecretOf, Sender, Stream, TransportError, session_config,
};
use tokio::net::UdpSocket;

const IDENTITY: &[u8] = b"a capability";

fn config() -> Config {
    session_config("cubic".parse().unwrap())
}

async fn listener() -> Listener {
    let secret_of: SecretOf = Arc::new(|identity| (identity == IDENTITY).then(|| Secret::new([7; 32])));
    let mut listener = Listener::bind("127.0.0.1:0").await.unwrap();
    listener.add_datagrams(&config(), &secret_of).unwrap();
    listener
}

async fn connect(listener: &Listener, secret: u8) -> Result<Stream, TransportError> {
    let address = listener.local_address().to_string();
    let secret = Secret::new([secret; 32]);
    Stream::connect_by_datagrams(&address, &Limits::default(), config(), IDENTITY, secret).await
}

struct Pair {
    asker: (Sender, Receiver),
    server: (Sender, Receiver),
}

async fn pair(listener: &Listener) -> Pair {
    let (asker, server) = tokio::join!(connect(listener, 7), listener.accept());
    let asker = asker.unwrap();
    let server = server.unwrap();
    assert!(server.is_local() && server.link().is_none());
    Pair { asker: asker.into_halves(), server: server.into_halves() }
}

fn payload(seed: usize) -> Vec<u8> {
    (0..3_000_000usize).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect()
}

/// Sends frames with payloads of some megabytes.
async fn send_all(mut sender: Sender) -> Sender {
    for number in 0..6 {
        let bytes = payload(number);
        let number = u64::try_from(number).unwrap();
        sender.send(5, number, b"body", &[&bytes[..1000], &bytes[1000..]]).await.unwrap();
    }
    sender
}

async fn receive_all(mut receiver: Receiver) -> Receiver {
    for number in 0..6 {
        let (header, body) = receiver.frame().await.unwrap().expect("a frame");
        assert_eq!((header.request, &body[..]), (u64::try_from(number).unwrap(), b"body".as_slice()));
        let mut bytes = Vec::new();
        receiver.payload_into(&mut bytes, header.payload_bytes).await.unwrap();
        assert!(bytes == payload(number));
    }
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_come_whole_in_both_directions_and_then_the_end() {
    let listener = listener().await;
    let Pair { asker, server } = pair(&listener).await;
    let sending = [tokio::spawn(send_all(asker.0)), tokio::spawn(send_all(server.0))];
    let receiving = [tokio::spawn(receive_all(asker.1)), tokio::spawn(receive_all(server.1))];
    for sent in sending {
        drop(sent.await.unwrap());
    }
    for received in receiving {
        let mut receiver = received.await.unwrap();
        assert!(receiver.frame().await.unwrap().is_none(), "the other side was dropped");
    }
    // TCP is served at the same port.
    let address = listener.local_address().to_string();
    let limits = Limits::default();
    let (by_tcp, accepted) = tokio::join!(Stream::connect(&address, &limits), listener.accept());
    assert!(by_tcp.is_ok() && accepted.is_ok());
}

/// A port's task ran before its connection was there, and ended: nothing was sent then.
#[tokio::test(flavor = "multi_thread")]
async fn who_connects_always_sends_something() {
    let listener = listener().await;
    for _ in 0..200 {
        pair(&listener).await;
    }
}

#[tokio::test]
async fn who_does_not_know_the_secret_is_refused() {
    let listener = listener().await;
    let refused = connect(&listener, 8).await.unwrap_err();
    assert!(refused.to_string().contains("does not accept the proof"), "{refused}");
}

#[tokio::test]
async fn a_full_listener_says_so() {
    let secret_of: SecretOf = Arc::new(|_| Some(Secret::new([7; 32])));
    let capacity = Capacity { connections: 1, ..Capacity::default() };
    let mut listener = Listener::bind_with("127.0.0.1:0", Limits::default(), capacity).await.unwrap();
    listener.add_datagrams(&config(), &secret_of).unwrap();
    let first = pair(&listener).await;
    // Each of its sockets takes one, and the system decides to which of them a peer comes.
    let mut taken = Vec::new();
    let refused = loop {
        match connect(&listener, 7).await {
            Ok(stream) => taken.push(stream),
            Err(refused) => break refused,
        }
        assert!(taken.len() < 64);
    };
    assert!(refused.to_string().contains("as many connections as it takes"), "{refused}");
    drop(first);
}

/// The answer of a listener to this datagram.
async fn answer(listener: &Listener, datagram: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(listener.local_address()).await.unwrap();
    socket.send(datagram).await.unwrap();
    let mut answer = vec![0; 2000];
    let answered = tokio::time::timeout(Duration::from_secs(30), socket.recv(&mut answer)).await;
    answer.truncate(answered.expect("an answer comes").unwrap());
    answer
}

#[tokio::test]
async fn who_speaks_another_version_or_of_another_connection_is_answered_shortly() {
    let listener = listener().await;
    let mut open = vec![0; 1200];
    open[..8].copy_from_slice(&[0xb1, 9, 0, 0, 1, 2, 3, 4]);
    assert_eq!(answer(&listener, &open).await, [0xb5, 1, 1, 0, 1, 2, 3, 4]);
    let mut data = vec![0; 25];
    data[..5].copy_from_slice(&[0xb7, 1, 2, 3, 4]);
    assert_eq!(answer(&listener, &data).await, [0xb6, 0, 0, 0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_receiver_that_takes_nothing_holds_the_sender_back() {
    let listener = listener().await;
    let Pair { mut asker, server } = pair(&listener).await;
    let bytes = vec![1; 30_000_000];
    let sent = tokio::time::timeout(Duration::from_millis(500), asker.0.send(5, 1, b"", &[&bytes])).await;
    assert!(sent.is_err(), "windows and buffers have some 10 MB");
    drop(server);
    drop(asker);
}

/// A promised rate bounds the time from below: a busy machine cannot break that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_keeps_to_a_rate() {
    let listener = listener().await;
    let Pair { asker, server } = pair(&listener).await;
    server.1.pace(Some(20_000_000));
    let began = Instant::now();
    let sending = tokio::spawn(send_all(server.0));
    receive_all(asker.1).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(800), "18 MB at 20 MB/s came in {took:?}");
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_peer_that_ends_is_noticed() {
    let listener = listener().await;
    let Pair { asker, server } = pair(&listener).await;
    drop(server);
    let (_sender, mut receiver) = asker;
    assert!(matches!(receiver.frame().await, Ok(None)), "its sender's end comes first");
    let address = listener.local_address().to_string();
    drop(listener);
    let limits = Limits::default();
    let nobody =
        Stream::connect_by_datagrams(&address, &limits, config(), IDENTITY, Secret::new([7; 32])).await;
    // The socket is there as long as its connections are, and ends what nobody accepts.
    let told = match nobody {
        Ok(stream) => stream.into_halves().1.frame().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(told, TransportError::Closed { .. }), "{told:?}");
}
