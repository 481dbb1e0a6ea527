//! A proxy before the manager or a drive that loses, damages or stops the traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use braid_client::Client;
use braid_layout::PartitionId;
use braid_wire::FrameHeader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Cluster, wait_for};

/// The partition of the catalogue, which the manager writes to drives at any time.
const CATALOGUE: PartitionId = PartitionId(0x8000_0000_0000_0001);

/// A proxy between a client and the manager, or before a drive.
pub(crate) struct Between {
    pub(crate) address: String,
    pub(crate) way: Arc<Way>,
}

#[derive(Default)]
pub(crate) struct Way {
    /// The next answer is lost. From then on no connection passes anything, until the way is opened again.
    loses: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// All connections end with this piece, and no new one passes anything, until the way is opened again;
    /// 0: never.
    closes_at: AtomicU64,
    /// Nothing passes, and nobody is told.
    pub(crate) mute: AtomicBool,
    /// A bit is flipped in one of this many pieces of traffic; 0: in none.
    pub(crate) flips: AtomicU64,
    pieces: AtomicU64,
    pub(crate) flipped: AtomicU64,
    /// Requests of this kind do not pass: their connections end. 0: all pass.
    pub(crate) stops: AtomicU16,
    pub(crate) stopped: AtomicU64,
}

impl Between {
    pub(crate) async fn start(server: &str) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let way = Arc::new(Way::default());
        let server = server.to_owned();
        let shared = Arc::clone(&way);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if shared.closed.load(Ordering::SeqCst) {
                    continue;
                }
                // The far end's hello does not pass.
                shared.heard().await;
                let Ok(far) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(pass(near, far, Arc::clone(&shared)));
            }
        });
        Between { address, way }
    }

    pub(crate) async fn client(&self, cluster: &Cluster) -> Client {
        let mut config = cluster.config();
        config.managers = (&self.address).into();
        Client::connect(config).await.expect("a client")
    }

    pub(crate) fn lose_next_answer(&self) {
        self.way.loses.store(true, Ordering::SeqCst);
    }

    /// Waits until the answer was lost.
    pub(crate) async fn lost(&self) {
        wait_for(|| async { self.way.closed.load(Ordering::SeqCst) }).await;
    }

    pub(crate) fn open(&self) {
        self.way.closes_at.store(0, Ordering::SeqCst);
        self.way.closed.store(false, Ordering::SeqCst);
    }

    /// Cuts the way in the midst of what passes from now on, after this many pieces.
    pub(crate) fn cut_after(&self, pieces: u64) {
        let at = self.way.pieces.load(Ordering::SeqCst) + pieces;
        self.way.closes_at.store(at, Ordering::SeqCst);
    }
}

impl Way {
    /// Waits until the way is not mute.
    async fn heard(&self) {
        while self.mute.load(Ordering::SeqCst) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

/// Forwards bytes until either side ends or an answer is lost.
async fn pass(mut near: TcpStream, mut far: TcpStream, way: Arc<Way>) {
    let mut from_near = vec![0; 64 << 10];
    let mut from_far = vec![0; 64 << 10];
    loop {
        let (bytes, to, answer) = tokio::select! {
            read = near.read(&mut from_near) => (read.map(|read| &mut from_near[..read]), &mut far, false),
            read = far.read(&mut from_far) => (read.map(|read| &mut from_far[..read]), &mut near, true),
        };
        let Ok(bytes) = bytes else { return };
        way.heard().await;
        if bytes.is_empty() || way.closed.load(Ordering::SeqCst) {
            return;
        }
        let stops = way.stops.load(Ordering::SeqCst);
        if !answer && stops > 0 && kind(bytes) == Some(stops) {
            way.stopped.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if answer && way.loses.swap(false, Ordering::SeqCst) {
            way.closed.store(true, Ordering::SeqCst);
            return;
        }
        let flips = way.flips.load(Ordering::SeqCst);
        let piece = way.pieces.fetch_add(1, Ordering::SeqCst);
        let closes_at = way.closes_at.load(Ordering::SeqCst);
        if closes_at > 0 && piece >= closes_at {
            way.closed.store(true, Ordering::SeqCst);
            return;
        }
        if flips > 0 && piece % flips == flips - 1 {
            // A different place each time: header, head or fields.
            let bit = usize::try_from(piece * 37).expect("small") % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            way.flipped.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

/// The kind of the request that a piece begins with. Short requests come one in a piece. Those for the
/// catalogue are left out.
fn kind(piece: &[u8]) -> Option<u16> {
    let catalogue = CATALOGUE.0.to_le_bytes();
    let header = FrameHeader::parse(piece.first_chunk()?).ok()?;
    (!piece.windows(catalogue.len()).any(|bytes| bytes == catalogue)).then_some(header.kind)
}
