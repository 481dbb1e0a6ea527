//! A proxy before a member of etcd, which loses what it is told to lose, or is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The delay of each piece of a connection that is slow.
const SLOW: Duration = Duration::from_millis(150);

/// The fate of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fate {
    /// All bytes pass.
    Pass,
    /// All pass late.
    Late,
    /// Requests pass, answers are lost.
    LoseAnswers,
    /// All are lost.
    LoseAll,
}

/// A proxy before one member.
pub(super) struct Proxy {
    pub(super) endpoint: String,
    fate: Arc<AtomicU8>,
    _task: JoinSet<()>,
}

impl Proxy {
    /// A proxy before this endpoint.
    pub(super) async fn before(endpoint: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let fate = Arc::new(AtomicU8::new(Fate::Pass as u8));
        let to = endpoint.to_owned();
        let decided = Arc::clone(&fate);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&to).await else { continue };
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                connections.spawn(pipe(near_in, far_out, Arc::clone(&decided), Fate::LoseAll));
                connections.spawn(pipe(far_in, near_out, Arc::clone(&decided), Fate::LoseAnswers));
            }
        });
        Proxy { endpoint: address, fate, _task: task }
    }

    pub(super) fn set(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::Release);
    }
}

/// Copies bytes until one was lost: what follows a loss makes no sense, so the connection ends there, when
/// bytes pass again.
async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fate: Arc<AtomicU8>, lost_from: Fate) {
    let mut buffer = vec![0; 64 << 10];
    let mut has_lost = false;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if fate.load(Ordering::Acquire) >= lost_from as u8 {
            has_lost = true;
            continue;
        }
        if fate.load(Ordering::Acquire) == Fate::Late as u8 {
            tokio::time::sleep(SLOW).await;
        }
        if has_lost || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
