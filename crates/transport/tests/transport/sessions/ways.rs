//! Ways of sessions where datagrams are refused.

use std::sync::Arc;
use std::time::Duration;

use braid_datagram::Config;
use braid_layout::DriveId;
use braid_transport::ways::Call;
use braid_transport::{
    DriveSession, Limits, Listener, Mismatch, SecretOf, Transport, TransportError, Way, Ways,
    capability_secret, session_config,
};
use braid_wire::data::{HELLO, Hello, PeerRole};
use braid_wire::{Reason, Wire};

use super::common::*;

/// A peer that says this hello over TCP, and refuses all datagrams: it does not know the capability, or has
/// no room.
async fn refuser(hello: Hello, why: Reason) -> String {
    let is_full = why == Reason::Busy;
    let connections = if is_full { 0 } else { 1024 };
    let config = Config { connections, ..session_config("cubic".parse().unwrap()) };
    let secret_of: SecretOf = Arc::new(move |_| is_full.then(|| capability_secret(&grant().private)));
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
    let address = refuser(other, Reason::StaleKey).await;
    for transport in [Transport::Tcp, Transport::UDP, Transport::AUTO] {
        match connect_by(transport, &address).await {
            Err(TransportError::WrongPeer { mismatch, .. }) => {
                assert_eq!(mismatch, Mismatch::Drive { expected: DRIVE, found: DriveId(9) });
            }
            other => panic!("{transport}: {other:?}"),
        }
    }
    let address = refuser(hello(PeerRole::Drive), Reason::StaleKey).await;
    match connect_by(Transport::UDP, &address).await {
        Err(TransportError::Refusal(refusal)) => assert_eq!(refusal.reason, Reason::StaleKey),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn where_datagrams_are_refused_auto_goes_over_tcp() {
    for why in [Reason::StaleKey, Reason::Busy] {
        let address = refuser(hello(PeerRole::Drive), why).await;
        let session = connect_by(Transport::AUTO, &address).await.expect("a session");
        assert_eq!(session.way(), Way::Tcp);
        match connect_by(Transport::UDP, &address).await {
            Err(TransportError::Refusal(refusal)) => assert_eq!(refusal.reason, why),
            other => panic!("{other:?}"),
        }
    }
}
