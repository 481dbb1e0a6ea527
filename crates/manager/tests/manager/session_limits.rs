//! Limits on sessions: floods, with and without a token, lock no client out; drives' reports are bounded.

use std::time::Duration;

use braid_transport::{ControlSession, Credentials, Limits, TransportError};
use braid_wire::Reason;
use braid_wire::control::*;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::fake::{Client, Cluster, FakeDrive, Manager, no_shape};

#[tokio::test]
async fn floods_of_idle_sessions_and_of_strangers_keep_nobody_out() {
    let cluster = Cluster::new(1, no_shape()).await;
    let ready = &cluster.manager.ready;
    let mut idle = Vec::new();
    // More sessions than one address may have, and more than the listener's first bound.
    for _ in 0..1100 {
        idle.push(cluster.manager.client().await);
    }
    let mut strangers = Vec::new();
    for _ in 0..400 {
        strangers.push(TcpStream::connect(&ready.address).await.unwrap());
    }
    let mut owner = cluster.manager.client().await;
    assert_eq!(owner.status().await.drives.len(), 1);
    let drive = FakeDrive::join(ready, 77, "late").await.unwrap();
    owner.until_up(&[&drive]).await;
    // The oldest sessions were closed. Their clients can connect again, each in place of the oldest that is
    // left.
    let closed = idle[0].0.call(&Status {}.into()).await.unwrap_err();
    assert!(matches!(closed, TransportError::Closed { .. }), "{closed}");
    idle[0] = cluster.manager.client().await;
    idle[0].status().await;
    idle[1099].status().await;
    let mut first = strangers.swap_remove(0);
    let closed = async { while first.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {} };
    tokio::time::timeout(Duration::from_secs(60), closed).await.expect("the oldest stranger was closed");
}

#[tokio::test]
async fn what_a_drive_tells_of_itself_has_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let token = &manager.ready.join_token;
    let id = braid_layout::DriveId(9);
    let credentials = Credentials::joining(token, id);
    let mut session =
        ControlSession::connect(&manager.ready.address, credentials, &Limits::default()).await.unwrap();
    let master = braid_wire::token::Token::master_key(&token.secret, session.binding(), session.nonce(), id);
    let good = JoinDrive {
        name: "d".into(),
        addresses: "127.0.0.1:1".into(),
        host: "h".repeat(255),
        rack: String::new(),
        directory: "/".repeat(4096),
        pid: 1,
        capacity_bytes: 1 << 40,
    };
    for bad in [
        JoinDrive { addresses: format!("{}:1", "a".repeat(258)).into(), ..good.clone() },
        JoinDrive { addresses: "a:1,b:1,a:1".into(), ..good.clone() },
        JoinDrive { host: "h".repeat(256), ..good.clone() },
        JoinDrive { rack: "r".repeat(256), ..good.clone() },
        JoinDrive { directory: "/".repeat(4097), ..good.clone() },
    ] {
        let refusal = refusal(session.call(&bad.into()).await);
        assert_eq!(refusal, Reason::Malformed);
    }
    session.call(&good.clone().into()).await.unwrap();
    let credentials = Credentials::of_drive(manager.ready.cluster, token.pin, id, 1, &master);
    let mut session =
        ControlSession::connect(&manager.ready.address, credentials, &Limits::default()).await.unwrap();
    let beat = Heartbeat {
        addresses: good.addresses,
        host: good.host,
        directory: good.directory,
        pid: 1,
        capacity_bytes: 1 << 40,
        used_bytes: 0,
        live_bytes: 0,
        restarted: true,
        epoch: 0,
        scrub: Default::default(),
        io: "i".repeat(1024),
        process: ProcessMark::default(),
        free_bytes: 0,
        spare_bytes: 0,
        file_system: Default::default(),
        start: 1,
        instance: 0,
        log: 0,
        seen: StateMark::default(),
        closing: false,
        manager_ms: 0,
        stalled_ms: 0,
        reads: Latency::default(),
        commits: Latency::default(),
        counts: Default::default(),
        parts: None,
        promises: Vec::new(),
        ended: Vec::new(),
        key: 1,
    };
    let long = Heartbeat { io: "i".repeat(1025), ..beat.clone() };
    assert_eq!(refusal(session.call(&long.into()).await), Reason::Malformed);
    let long = Heartbeat { directory: "/".repeat(4097), ..beat.clone() };
    assert_eq!(refusal(session.call(&long.into()).await), Reason::Malformed);
    session.call(&beat.into()).await.unwrap();
    let mut client = Client::connect(&manager.ready).await;
    assert_eq!(client.status().await.drives[0].io.len(), 1024);
    manager.stop().await;
}

fn refusal(answer: Result<ControlReply, TransportError>) -> Reason {
    match answer {
        Err(TransportError::Refusal(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    }
}
