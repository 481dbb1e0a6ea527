//! Frames over datagrams, on real sockets.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_datagram::{Config, Secret, Settings};
use braid_transport::{
    Capacity, Limits, LinkBounds, Listener, Receiver, SecretOf, Sender, Stream, TransportError,
    session_config,
};
use braid_wire::data::HELLO_REFUSED;
use braid_wire::{Reason, Refusal, Wire};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

const IDENTITY: &[u8] = b"a capability";
/// Bound on what must happen some time.
const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> Config {
    session_config("cubic".parse().unwrap())
}

/// Bounds that a busy machine does not come to.
fn limits() -> Limits {
    Limits { connect: PATIENCE, stall: PATIENCE, proof: PATIENCE, ..Limits::default() }
}

async fn listener() -> Listener {
    listener_at("127.0.0.1:0", Capacity::default()).await
}

async fn listener_at(address: &str, capacity: Capacity) -> Listener {
    let secret_of: SecretOf = Arc::new(|identity| (identity == IDENTITY).then(|| Secret::new([7; 32])));
    let mut listener = Listener::bind_with(address, limits(), capacity).await.unwrap();
    listener.add_datagrams(&config(), &secret_of).unwrap();
    listener
}

async fn connect(listener: &Listener, secret: u8) -> Result<Stream, TransportError> {
    connect_to(&listener.local_address().to_string(), secret).await
}

async fn connect_to(address: &str, secret: u8) -> Result<Stream, TransportError> {
    let secret = Secret::new([secret; 32]);
    Stream::connect_by_datagrams(address, &limits(), config(), IDENTITY, secret).await
}

struct Pair {
    asker: (Sender, Receiver),
    server: (Sender, Receiver),
}

async fn pair(listener: &Listener) -> Pair {
    pair_at(listener, &listener.local_address().to_string()).await
}

async fn pair_at(listener: &Listener, address: &str) -> Pair {
    let (asker, server) = tokio::try_join!(connect_to(address, 7), listener.accept()).unwrap();
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
    let other = pair(&listener).await;
    let address = listener.local_address().to_string();
    let draining = listener.close();
    // All its sockets are there, and end what nobody accepts.
    let patience = limits();
    let patient = 60_000_000_000;
    let config = Config { open_ns: patient, silence_ns: patient, ..config() };
    for _ in 0..8 {
        let secret = Secret::new([7; 32]);
        let connecting = Stream::connect_by_datagrams(&address, &patience, config.clone(), IDENTITY, secret);
        let told = connecting.await.unwrap().into_halves().1.frame().await.unwrap_err();
        assert!(matches!(told, TransportError::Closed { .. }), "{told:?}");
    }
    // What was accepted before goes on.
    let Pair { mut asker, mut server } = other;
    for (from, to) in [(&mut asker.0, &mut server.1), (&mut server.0, &mut asker.1)] {
        from.send(5, 1, b"still", &[]).await.unwrap();
        assert_eq!(to.frame().await.unwrap().unwrap().1, b"still");
    }
    drop((asker, server));
    draining.drained(PATIENCE).await;
}

/// Runs a server's part on a runtime of its own, which ends with it, as a process does.
fn in_a_process<T: Send + 'static>(part: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(part)
    })
}

#[tokio::test]
async fn what_was_sent_last_arrives_though_the_process_ends() {
    let (tell, told) = oneshot::channel();
    let server = in_a_process(async {
        let listener = listener().await;
        tell.send(listener.local_address().to_string()).unwrap();
        let (mut sender, receiver) = listener.accept().await.unwrap().into_halves();
        sender.send(5, 0, b"body", &[&payload(0)]).await.unwrap();
        drop((sender, receiver));
        listener.close().drained(PATIENCE).await;
    });
    let (_sender, mut receiver) = connect_to(&told.await.unwrap(), 7).await.unwrap().into_halves();
    let (header, _) = receiver.frame().await.unwrap().expect("a frame");
    let mut bytes = Vec::new();
    receiver.payload_into(&mut bytes, header.payload_bytes).await.unwrap();
    assert!(bytes == payload(0));
    assert!(receiver.frame().await.unwrap().is_none());
    server.join().unwrap();
}

#[tokio::test]
async fn who_ends_says_so_though_its_process_ends_at_once() {
    let listener = listener().await;
    let address = listener.local_address().to_string();
    let client = in_a_process(async move { drop(connect_to(&address, 7).await.unwrap().into_halves()) });
    let (_sender, mut receiver) = listener.accept().await.unwrap().into_halves();
    assert!(receiver.frame().await.unwrap().is_none());
    client.join().unwrap();
}

#[tokio::test]
async fn a_listener_at_all_addresses_answers_from_the_one_that_was_called() {
    let listener = listener_at("0.0.0.0:0", Capacity::default()).await;
    let port = listener.local_address().port();
    for called in ["127.0.0.2", "127.0.0.3"] {
        let Pair { mut asker, mut server } = pair_at(&listener, &format!("{called}:{port}")).await;
        asker.0.send(5, 1, b"ask", &[&payload(0)]).await.unwrap();
        assert_eq!(server.1.frame().await.unwrap().unwrap().1, b"ask");
        server.0.send(5, 1, b"answer", &[]).await.unwrap();
        assert_eq!(asker.1.frame().await.unwrap().unwrap().1, b"answer");
    }
}

#[tokio::test]
async fn an_address_in_its_other_form_is_reached() {
    let listener = listener().await;
    let port = listener.local_address().port();
    pair_at(&listener, &format!("[::ffff:127.0.0.1]:{port}")).await;
}

#[tokio::test]
async fn frames_pass_a_link_with_bounds() {
    let link = Some(LinkBounds { window_bytes: 16 << 10, unsent_bytes: 64 << 10 });
    let capacity = Capacity { link, ..Capacity::default() };
    let listener = listener_at("127.0.0.1:0", capacity).await;
    let Pair { asker, server } = pair(&listener).await;
    tokio::join!(send_all(asker.0), receive_all(server.1), send_all(server.0), receive_all(asker.1));
}

/// Connects by TCP; returns the first frame's kind, or `None` at the end.
async fn first_kind(listener: &Listener) -> Option<u16> {
    let address = listener.local_address().to_string();
    let (_sender, mut receiver) = Stream::connect(&address, &limits()).await.unwrap().into_halves();
    receiver.frame().await.unwrap().map(|(header, _)| header.kind)
}

#[tokio::test]
async fn a_peer_beyond_the_limit_is_told_so_in_a_frame() {
    let capacity = Capacity { connections: 1, full: "full, as a test".to_owned(), ..Capacity::default() };
    let listener = listener_at("127.0.0.1:0", capacity).await;
    let address = listener.local_address().to_string();
    let limits = limits();
    let (by_tcp, accepted) = tokio::join!(Stream::connect(&address, &limits), listener.accept());
    let _held = (by_tcp.unwrap(), accepted.unwrap());
    let asked = async {
        let (_sender, mut receiver) = connect(&listener, 7).await.unwrap().into_halves();
        let (header, body) = receiver.frame().await.unwrap().expect("a frame");
        assert_eq!(header.kind, HELLO_REFUSED);
        let refusal = Refusal::from_bytes(&body).unwrap();
        assert!(refusal.reason == Reason::Busy && refusal.detail.contains("full, as a test"), "{refusal}");
        assert!(receiver.frame().await.unwrap().is_none());
    };
    tokio::select! {
        () = asked => {}
        accepted = listener.accept() => panic!("{accepted:?}"),
    }
}

/// Memory of this side is taken by what a peer does not take, whether somebody has the connection or not.
#[tokio::test]
async fn a_connection_keeps_its_place_until_it_is_over() {
    let capacity = Capacity { connections: 1, ..Capacity::default() };
    let listener = listener_at("127.0.0.1:0", capacity).await;
    let address = listener.local_address().to_string();
    let settings = Settings { window_bytes: 64 << 10, ..config().settings };
    let config = Config { settings, ..config() };
    let limits = limits();
    let connecting = Stream::connect_by_datagrams(&address, &limits, config, IDENTITY, Secret::new([7; 32]));
    let (asker, server) = tokio::join!(connecting, listener.accept());
    let asker = asker.unwrap();
    // Much more than the peer's window, and less than may wait.
    let (mut sender, receiver) = server.unwrap().into_halves();
    sender.send(5, 1, b"", &[&vec![1; 1_000_000]]).await.unwrap();
    drop((sender, receiver));
    let refused = async { assert_eq!(first_kind(&listener).await, Some(HELLO_REFUSED)) };
    tokio::select! {
        () = refused => {}
        accepted = listener.accept() => panic!("{accepted:?}"),
    }
    // Once the peer ends, the place is free.
    drop(asker);
    let freed = async { while first_kind(&listener).await == Some(HELLO_REFUSED) {} };
    let accepted = async { listener.accept().await.unwrap() };
    let until_accepted = async {
        tokio::select! {
            stream = accepted => drop(stream),
            () = freed => panic!("nobody was accepted"),
        }
    };
    tokio::time::timeout(PATIENCE, until_accepted).await.expect("the place is free");
}
