//! What a drive says of its link, and what it is told of this client's.

use std::net::SocketAddr;
use std::time::Duration;

use braid_datagram::policy::Kind;
use braid_datagram::{Config, ConnectionId, Ecn, Endpoint, Event, Incoming, Settings};
use braid_layout::ClusterId;
use braid_transport::{Limits, capability_secret, challenge, session_config};
use braid_wire::data::{Address, DriveRequest, GetAttributes, HELLO, Hello, PeerRole};
use braid_wire::frame::WIRE_VERSION;
use braid_wire::{FrameHeader, Wire};
use tokio::net::UdpSocket;

use super::*;
use crate::peers::drives::tests::grant;

const CLUSTER: ClusterId = ClusterId(1);
const DRIVE: DriveId = DriveId(7);
/// Bound on what must happen some time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A drive by datagrams whose time stands still: what it may send before an acknowledgement comes, it sends
/// at once, and nothing twice.
struct StillDrive {
    socket: UdpSocket,
    endpoint: Endpoint,
    client: Option<ConnectionId>,
}

impl StillDrive {
    async fn bind() -> StillDrive {
        let settings = Settings { datagram_bytes_max: 1200, ..Settings::default() };
        let endpoint = Endpoint::new(Config { settings, ..Config::default() }, true, [1; 32]);
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        StillDrive { socket, endpoint, client: None }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Connects a client, and greets it.
    async fn connect(&mut self) -> DriveSession {
        let address = self.address().to_string();
        let limits = Limits { connect: PATIENCE, stall: PATIENCE, reply: PATIENCE, ..Limits::default() };
        let grant = grant(DRIVE);
        let config = session_config(Kind::Cubic);
        let session = DriveSession::connect_by_datagrams(&address, DRIVE, CLUSTER, &limits, &grant, config);
        tokio::join!(session, self.greet()).0.expect("a session")
    }

    async fn greet(&mut self) {
        while self.client.is_none() {
            self.take().await;
            self.send().await;
            if let Some(Event::Accepted(client, _)) = self.endpoint.poll_event() {
                self.client = Some(client);
            }
        }
        let hello = Hello {
            role: PeerRole::Drive,
            version_min: WIRE_VERSION,
            version_max: WIRE_VERSION,
            cluster: CLUSTER,
            drive: DRIVE,
            features: 0,
            challenge: challenge(),
        };
        let body = hello.to_bytes();
        let header = FrameHeader::new(HELLO, 0, &body, 0).emit();
        self.answer([header.as_slice(), &body].concat()).await;
    }

    fn client(&self) -> ConnectionId {
        self.client.expect("it has connected")
    }

    /// Takes a datagram.
    async fn take(&mut self) {
        let mut datagram = vec![0; 65_536];
        let taking = self.socket.recv_from(&mut datagram);
        let (length, from) =
            tokio::time::timeout(PATIENCE, taking).await.expect("one comes").expect("a socket");
        let secret = capability_secret(&grant(DRIVE).private);
        let mut secret_of = |_: &[u8]| Some(secret.clone());
        self.endpoint.handle_datagram(0, from, Ecn::Unaware, &mut datagram[..length], &mut secret_of);
    }

    /// Takes datagrams until a request has come.
    async fn asked(&mut self) {
        while !matches!(self.endpoint.receive(self.client(), 0), Some(Incoming::Message(_))) {
            self.take().await;
        }
    }

    /// Sends what it may. Returns the number of datagrams.
    async fn send(&mut self) -> usize {
        let mut sent = 0;
        let mut datagram = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(0, &mut datagram) {
            self.socket.send_to(&datagram, transmit.to).await.expect("it is sent");
            datagram.clear();
            sent += 1;
        }
        sent
    }

    async fn answer(&mut self, bytes: Vec<u8>) -> usize {
        self.endpoint.send(self.client(), 0, bytes.into()).expect("there is room");
        self.send().await
    }

    /// Number of datagrams of a long answer that it sends before one is acknowledged.
    async fn on_way(&mut self) -> usize {
        self.answer(vec![0; 60_000]).await
    }
}

/// A credit that lets 1000 bytes be on their way: after some answers two were late, and segments were lost.
async fn clamped() -> Arc<Credit> {
    tokio::time::pause();
    let credit = Arc::new(Credit::default());
    for (took_ms, is_lossy) in std::iter::repeat_n((10, false), 10).chain([(500, true); 2]) {
        let turn = credit.turn(1, DRIVE.0, 1000).await;
        tokio::time::advance(Duration::from_millis(took_ms)).await;
        turn.arrived(1000, is_lossy);
    }
    tokio::time::resume();
    assert_eq!(credit.window(), Some(1000));
    credit
}

/// Requests under this credit.
fn flights<'a>(credits: &'a Credits, credit: Arc<Credit>) -> Flights<'a> {
    let caller = Caller { credits, number: 1 };
    Flights { of: Some(Of { caller, credit, drive: DRIVE, rail: "10.0.0.1:7401".into() }) }
}

/// Before the request, or with it: the drive never has more on its way than it may.
#[tokio::test]
async fn a_drive_is_told_the_window_as_it_is_when_a_read_gets_its_turn() {
    let credits = Credits::default();
    let clamped = clamped().await;
    let grant = grant(DRIVE);
    let request = DriveRequest::from(GetAttributes { at: Address::DRIVE });
    // The window may be open by the next turn, and requests of reserved handles have none.
    for next in [flights(&credits, Arc::default()), Flights { of: None }] {
        let mut drive = StillDrive::bind().await;
        let mut session = drive.connect().await;
        let (asker, _answers) = session.halves();
        for (flights, is_bounded) in [(flights(&credits, Arc::clone(&clamped)), true), (next, false)] {
            let _turn = flights.turn(1000, asker).await;
            asker.ask(0, &grant, &request, &[]).await.expect("it is sent");
            drive.asked().await;
            let on_way = drive.on_way().await;
            assert_eq!(on_way <= 1, is_bounded, "{on_way}");
        }
    }
}

/// Nothing would tell the drive another one.
#[tokio::test]
async fn a_session_that_small_requests_share_has_no_window() {
    let credits = Credits::default();
    let clamped = clamped().await;
    let mut drive = StillDrive::bind().await;
    let mut session = drive.connect().await;
    drop(flights(&credits, clamped).turn(1000, session.halves().0).await);
    let shared = session.share().expect("nothing is in flight");
    let request = DriveRequest::from(GetAttributes { at: Address::DRIVE });
    let _asking = shared.ask(&grant(DRIVE), &request, &[]).expect("it is sent");
    drive.asked().await;
    let on_way = drive.on_way().await;
    assert!(on_way > 1, "{on_way}");
}

#[tokio::test(start_paused = true)]
async fn what_a_drive_says_holds_for_a_second_or_until_it_says_otherwise() {
    let credits = Credits::default();
    let rails: [Arc<str>; 2] = ["10.0.1.5:7401", "10.0.2.5:7401"].map(Arc::from);
    assert!(!credits.is_congested(&rails[0]));
    credits.handle_told(&rails[0], true);
    credits.handle_told(&rails[1], false);
    assert!(credits.is_congested(&rails[0]) && !credits.is_congested(&rails[1]));
    credits.handle_told(&rails[0], false);
    assert!(!credits.is_congested(&rails[0]));
    credits.handle_told(&rails[0], true);
    tokio::time::advance(CONGESTED_FOR).await;
    assert!(!credits.is_congested(&rails[0]));
}
