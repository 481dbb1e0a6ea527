//! Ways of sessions where datagrams are refused.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::ways::{Call, probe};
use braid_transport::{
    DriveSession, Limits, Listener, Mismatch, SecretOf, Transport, TransportError, Way, Ways, session_config,
};
use braid_wire::data::{HELLO, Hello, PeerRole};
use braid_wire::{Reason, Wire};

use super::common::*;

/// A peer that says this hello over TCP, and takes no capability by datagrams.
async fn refuser(hello: Hello) -> String {
    let config = session_config("cubic".parse().unwrap());
    let secret_of: SecretOf = Arc::new(|_| None);
    let mut listener = Listener::bind("127.0.0.1:0").await.unwrap();
    listener.add_datagrams(&config, &secret_of).unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut sender, receiver) = listener.accept().await.unwrap().into_halves();
            // A caller that has another session by now does not wait for it.
            let _ = sender.send(HELLO, 0, &hello.to_bytes(), &[]).await;
            open.push((sender, receiver));
        }
    });
    address
}

async fn connect_by(transport: Transport, address: &str) -> Result<DriveSession, TransportError> {
    let limits = Limits { connect: Duration::from_secs(60), ..Limits::default() };
    let grant = grant();
    let call = Call { expect: DRIVE, home: CLUSTER.into(), limits: &limits, grant: Some(&grant) };
    Ways::new(transport).connect(address, call).await
}

/// The drive that is now at another's address does not take its capabilities. A new one would not mend that:
/// the address is no rail.
#[tokio::test]
async fn a_refusal_of_another_drive_is_told_from_that_of_the_drive() {
    let other = Hello { drive: DriveId(9), ..hello(PeerRole::Drive) };
    let address = refuser(other).await;
    for transport in [Transport::Tcp, Transport::UDP, Transport::AUTO] {
        match connect_by(transport, &address).await {
            Err(TransportError::WrongPeer { mismatch, .. }) => {
                assert_eq!(mismatch, Mismatch::Drive { expected: DRIVE, found: DriveId(9) });
            }
            other => panic!("{transport}: {other:?}"),
        }
    }
    let address = refuser(hello(PeerRole::Drive)).await;
    match connect_by(Transport::UDP, &address).await {
        Err(TransportError::Refusal(refusal)) => assert_eq!(refusal.reason, Reason::StaleKey),
        other => panic!("{other:?}"),
    }
    // Over TCP each request is answered for itself.
    let session = connect_by(Transport::AUTO, &address).await.expect("a session");
    assert_eq!(session.way(), Way::Tcp);
}

/// A handshake waits for 150 ms before it believes a refusal, which would count as the way's time.
#[tokio::test]
async fn a_probe_takes_a_refusal_for_an_answer_at_once() {
    let address = refuser(hello(PeerRole::Drive)).await;
    let limits = Limits { connect: Duration::from_millis(100), ..Limits::default() };
    // A busy machine may take longer, but not each time.
    let answered = async { while probe(&address, &limits).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), answered).await.expect("an answer in time");
}
