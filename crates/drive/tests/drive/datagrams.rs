//! Sessions by datagrams: a drive takes the handshakes that show a capability under which it would serve
//! something, and what comes in the session is judged as over TCP.

use std::time::Duration;

use braid_layout::{ClientId, DriveId, OperationNumber, PartitionId};
use braid_testing::answer;
use braid_transport::ways::{self, Call};
use braid_transport::{DriveSession, Limits, Transport, TransportError, Way, Ways};
use braid_wire::capability::{Protection, Rights};
use braid_wire::control::Grant;
use braid_wire::data::{GetAttributes, Retire};
use braid_wire::{Capability, Key, Reason, Wire};
use tokio::net::UdpSocket;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, fails, reason, settings, within};

impl Drive {
    async fn by_datagrams(&self, grant: &Grant) -> Result<DriveSession, TransportError> {
        let limits = Limits::default();
        let call = Call { expect: self.id, home: self.cluster.into(), limits: &limits, grant: Some(grant) };
        Ways::new(Transport::UDP).connect(&self.address.to_string(), call).await
    }

    /// Asserts that no session begins under this grant, and that the drive says so.
    async fn refuses(&self, grant: &Grant, why: &str) {
        let refused = self.by_datagrams(grant).await.expect_err(why);
        let is_refused =
            matches!(&refused, TransportError::Refusal(refusal) if refusal.reason == Reason::StaleKey);
        assert!(is_refused, "{why}: {refused}");
    }
}

#[tokio::test]
async fn requests_by_datagrams_are_served_and_refused_as_over_tcp() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let grant = drive.grant(object_level());
    let mut session = drive.by_datagrams(&grant).await.expect("a session");
    assert_eq!(session.way(), Way::Udp);
    let payload = bytes(7, UNIT);
    for n in 1..=8 {
        let write = write_of(n, 0, &payload, n);
        session.call(&grant, &write.into(), &[&payload]).await.expect("written");
    }
    let (_, read_back) = session.call(&grant, &read(8, 0, UNIT), &[]).await.expect("read");
    assert!(read_back == payload);
    // Each request is judged by itself.
    let other = drive.grant(Capability { rights: Rights::NONE, ..object_level() });
    assert_eq!(reason(session.call(&other, &read(8, 0, UNIT), &[]).await), Reason::Rights);
    let stranger = drive.grant_under(&Key::new([9; 32]), grant.capability.clone());
    assert_eq!(reason(session.call(&stranger, &read(8, 0, UNIT), &[]).await), Reason::Forged);
    drive.stop().await;
}

#[tokio::test]
async fn a_handshake_is_refused_for_what_every_request_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let good = Capability { drive: drive.id, ..object_level() };
    let session = drive.by_datagrams(&drive.grant_as_is(good.clone())).await.expect("a session");

    let forged = drive.grant_under(&Key::new([9; 32]), good.clone());
    drive.refuses(&forged, "a private part that the manager did not make").await;
    let changed = Capability { end_stripe: 9, ..good.clone() };
    let changed = Grant { capability: changed, ..drive.grant_as_is(good.clone()) };
    drive.refuses(&changed, "a public part that was changed").await;
    let expired = Capability { expires_ms: 1, ..good.clone() };
    drive.refuses(&drive.grant_as_is(expired), "a capability that has expired").await;
    let elsewhere = Capability { drive: DriveId(5), ..good.clone() };
    drive.refuses(&drive.grant_as_is(elsewhere), "another drive's").await;
    let nowhere = Capability { partition: PartitionId(99), ..good.clone() };
    drive.refuses(&drive.grant_as_is(nowhere), "a partition that there is not").await;
    let later = Capability { key_epoch: 7, ..good.clone() };
    drive.refuses(&drive.grant_as_is(later), "keys that are not in force").await;
    let private = Capability { protection: Protection::Privacy, ..good.clone() };
    drive.refuses(&drive.grant_as_is(private), "what is private goes in TLS only").await;

    // The lease is given back: nothing more may be changed under it, also by datagrams.
    let mut session = session;
    let to_change = Capability { rights: Rights::WRITE.and(Rights::CREATE), ..good };
    let and_read = Capability { rights: to_change.rights.and(Rights::READ), ..to_change.clone() };
    let grant = drive.grant_as_is(to_change);
    drive.by_datagrams(&grant).await.expect("a session");
    let retire = Retire {
        at: AT,
        settled_to: stamp(1),
        durable: true,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: true,
    };
    session.call(&grant, &retire.into(), &[]).await.expect("the lease ends");
    drive.refuses(&grant, "its lease was given back").await;
    // What may be read too is read on, as over TCP.
    let grant = drive.grant_as_is(and_read);
    let mut session = drive.by_datagrams(&grant).await.expect("a session to read");
    session.call(&grant, &read(8, 0, UNIT), &[]).await.expect("an answer");
    let payload = bytes(7, UNIT);
    let write = session.call(&grant, &write_of(1, 0, &payload, 1).into(), &[&payload]).await;
    assert_eq!(reason(write), Reason::StaleGeneration);
    drive.stop().await;
}

#[tokio::test]
async fn a_flood_of_handshakes_is_answered_by_less_and_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(drive.address).await.unwrap();
    // An Open with the identity of a good capability, and a cookie and a proof that somebody made up.
    let identity = drive.grant(object_level()).capability.to_bytes();
    let mut open = vec![0xb1, 1];
    open.extend_from_slice(&u16::try_from(identity.len()).unwrap().to_le_bytes());
    open.extend_from_slice(&7u32.to_le_bytes());
    open.extend_from_slice(&[1, 0, 0xb0, 4, 0, 0, 1, 0]);
    open.extend_from_slice(&[3; 32]);
    open.extend_from_slice(&[0; 24]);
    open.extend_from_slice(&[4; 16]);
    open.extend_from_slice(&identity);
    open.resize(1200, 0);
    let mut answer = [0; 2048];
    let ask = async |open: &[u8], answer: &mut [u8]| {
        socket.send(open).await.unwrap();
        within(socket.recv(answer)).await.unwrap()
    };
    // A flood of them: each is answered by less, and the drive serves on.
    for _ in 0..1000 {
        let length = ask(&open, &mut answer).await;
        assert_eq!((answer[0], length), (0xb2, 32), "a cookie, and no connection");
    }
    open[48..72].copy_from_slice(&answer[8..32]);
    for _ in 0..100 {
        let length = ask(&open, &mut answer).await;
        assert_eq!((answer[0], answer[1], length), (0xb4, 2, 8), "the proof is wrong");
    }
    let grant = drive.grant(object_level());
    let mut session = drive.by_datagrams(&grant).await.expect("others are served");
    session.call(&grant, &GetAttributes { at: AT }.into(), &[]).await.expect("an answer");
    drive.stop().await;
}

#[tokio::test]
async fn a_drive_that_is_told_not_to_does_not_listen_for_datagrams_and_one_that_cannot_says_so() {
    let manager = Manager::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (mut settings, clock) = settings();
    settings.udp = None;
    let drive = Drive::start_with(config(dir.path(), &manager, settings), clock, &manager).await;
    drive.prepare().await;
    let limits = Limits { connect: Duration::from_millis(300), ..Limits::default() };
    assert!(ways::probe(&drive.address.to_string(), &limits).await.is_err());
    let grant = drive.grant(object_level());
    let call = Call { expect: drive.id, home: drive.cluster.into(), limits: &limits, grant: Some(&grant) };
    let address = drive.address.to_string();
    let refused = Ways::new(Transport::UDP).connect(&address, call).await.unwrap_err().to_string();
    assert!(refused.contains("use --transport auto or tcp") && refused.contains(&address), "{refused}");
    // TCP is taken in its place, and remembered.
    let auto = Ways::new(Transport::AUTO);
    assert_eq!(auto.connect(&address, call).await.unwrap().way(), Way::Tcp);
    assert_eq!(auto.learnt(&address), Some(Way::Tcp));
    let without = Call { grant: None, ..call };
    assert_eq!(Ways::new(Transport::UDP).connect(&address, without).await.unwrap().way(), Way::Tcp);
    drive.stop().await;

    // The port is free for TCP, and taken for UDP. The address is this test's own: at 127.0.0.1 other tests'
    // connections take any port.
    let taken = UdpSocket::bind("127.41.8.3:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), &manager, crate::support::settings().0);
    config.listen = vec![address.clone()];
    let error = fails(config).await.to_string();
    assert!(error.contains(&format!("UDP {address}")), "{error}");
}

#[tokio::test]
async fn auto_takes_datagrams_where_they_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let address = drive.address.to_string();
    let limits = Limits::default();
    assert!(ways::probe(&address, &limits).await.is_ok());
    let grant = drive.grant(object_level());
    let call = Call { expect: drive.id, home: drive.cluster.into(), limits: &limits, grant: Some(&grant) };
    // A machine that is busy may take longer than the probe waits: then TCP is taken, for a minute.
    answer("datagrams come in time", async || {
        let auto = Ways::new(Transport::AUTO);
        let way = auto.connect(&address, call).await.expect("a session").way();
        assert_eq!(auto.learnt(&address), Some(way));
        (way == Way::Udp).then_some(())
    })
    .await;
    // What is refused goes over TCP, where each request is answered; nothing is remembered for that.
    let expired = drive.grant(Capability { expires_ms: 1, ..object_level() });
    let refused = answer("the refusal comes in time", async || {
        let auto = Ways::new(Transport::AUTO);
        let call = Call { grant: Some(&expired), ..call };
        let session = auto.connect(&address, call).await.expect("a session");
        assert_eq!(session.way(), Way::Tcp);
        auto.learnt(&address).is_none().then_some(session)
    });
    let told = refused.await.call(&expired, &GetAttributes { at: AT }.into(), &[]).await;
    assert_eq!(reason(told), Reason::Expired);
    drive.stop().await;
}
