//! The cluster's CA: it lasts as long as the state does, and no secret leaves a session that it is shown in.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use braid_transport::{ControlSession, Limits, Mismatch, TransportError};
use braid_wire::control::*;
use braid_wire::token::Token;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::fake::{Client, Cluster, FakeDrive, Manager, no_shape, open};

#[tokio::test]
async fn the_authority_is_in_the_state_and_in_its_backups() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let pin = manager.ready.client_token.pin;
    assert_eq!(manager.ready.join_token.pin, pin);
    let text = std::fs::read_to_string(dir.path().join("join.token")).unwrap();
    assert_eq!(text.parse::<Token>().unwrap().pin, pin);
    for file in ["manager.redb", "join.token", "client.token"] {
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
    let manager = manager.restart().await;
    assert_eq!(manager.ready.client_token.pin, pin);
    let mut client = manager.client().await;
    client.ask(Backup {}).await.unwrap();
    let kept = tempfile::tempdir().unwrap();
    let backup = kept.path().join("backup");
    std::fs::copy(dir.path().join("backup"), &backup).unwrap();
    let restored = manager.restore(&backup).await;
    assert_eq!(restored.ready.client_token.pin, pin);
    restored.stop().await;
    // Another cluster has another one.
    let other = tempfile::tempdir().unwrap();
    let other = Manager::start(other.path()).await;
    let token = Token { pin, ..other.ready.client_token.clone() };
    let error = ControlSession::connect(&other.ready.address, &token, &Limits::default()).await.unwrap_err();
    let TransportError::WrongPeer { mismatch, .. } = &error else { panic!("{error}") };
    assert!(matches!(mismatch, Mismatch::Authority { .. }), "{error}");
}

/// A drive joins and a file is opened, all through somebody who keeps what passes.
#[tokio::test]
async fn secrets_private_parts_and_names_are_not_seen_on_the_way() {
    const NAME: &str = "a-name-that-nobody-else-has";
    let cluster = Cluster::new(2, no_shape()).await;
    let mut ready = cluster.manager.ready.clone();
    let real = std::mem::take(&mut ready.address);
    let seen = Arc::new(Mutex::new(Vec::new()));
    ready.address = recorder(real, Arc::clone(&seen)).await;
    let drive = FakeDrive::join(&ready, 77, "late").await.unwrap();
    let mut client = Client::connect(&ready).await;
    client.until_up(&[&drive]).await;
    let file = client.opened(open(NAME, Access::Write, true)).await;
    let grants: Vec<&Grant> = file.grants.iter().flatten().flatten().collect();
    assert!(!grants.is_empty(), "the file has drives");
    let seen = seen.lock().unwrap();
    let has = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    assert!(has(&ready.cluster.0.to_le_bytes()), "the hellos are seen");
    for grant in grants {
        assert!(!has(grant.private.secret()), "a private part");
    }
    for secret in [&ready.client_token.secret, &ready.join_token.secret, &drive.master] {
        assert!(!has(secret.secret()), "a secret");
    }
    assert!(!has(NAME.as_bytes()) && !has(b"late"), "a name");
}

/// The address of one who passes connections on, and keeps all bytes of both directions.
async fn recorder(real: String, seen: Arc<Mutex<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&real).await else { return };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::spawn(pass(near_read, far_write, Arc::clone(&seen)));
            tokio::spawn(pass(far_read, near_write, Arc::clone(&seen)));
        }
    });
    address
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, seen: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        seen.lock().unwrap().extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
