//! Plain exchanges: a request and a reply of given lengths. They cost what any protocol pays for sockets
//! and processes, and are the bound to which an operation is compared.
//!
//! A request begins with its own length and that of the reply, 4 bytes each, little-endian. A far end
//! answers the requests of a socket in their order. The near end has any number of requests in flight on a
//! socket. Each end is one thread that waits for all its sockets.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream as Plain;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pace::{Done, Limit, Turns};
use crate::content::Random;
use crate::error::{Doing, Error};

/// Most bytes of a request or a reply.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Bytes of the two lengths at a request's beginning.
const HEAD_BYTES: u32 = 8;
/// Bytes that either end receives at once.
const BUFFER_BYTES: usize = 64 << 10;
/// Longest time of a sample.
const BOUND: Duration = Duration::from_secs(120);

/// One request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    pub with: With,
    /// Bytes of the request, at least 8.
    pub request_bytes: u32,
    /// Bytes of the reply, at least 1.
    pub reply_bytes: u32,
}

/// Far end of an exchange: the process that stands for the manager, or one of those that stand for the
/// drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum With {
    Manager,
    /// A random one of the drives.
    Drives,
}

/// A far end, and the number of sockets to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarEnd {
    pub address: String,
    /// Number of sockets, at least 1.
    pub sockets: u32,
}

/// Answers requests at `listener` until the future is dropped, on the caller's runtime.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let mut sockets = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                socket.set_nodelay(true)?;
                sockets.spawn(answer(socket));
            }
            // The near end reports a socket that fails.
            Some(_) = sockets.join_next() => {}
        }
    }
}

async fn answer(socket: TcpStream) -> io::Result<()> {
    let (receiving, mut sending) = socket.into_split();
    let mut receiving = BufReader::with_capacity(BUFFER_BYTES, receiving);
    let mut request = Vec::new();
    let mut reply = Vec::new();
    loop {
        let request_bytes = receiving.read_u32_le().await?;
        let reply_bytes = receiving.read_u32_le().await?;
        let most = HEAD_BYTES..=MESSAGE_BYTES_MAX;
        if !most.contains(&request_bytes) || !(1..=MESSAGE_BYTES_MAX).contains(&reply_bytes) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.resize(length(request_bytes - HEAD_BYTES), 0);
        receiving.read_exact(&mut request).await?;
        reply.resize(length(reply_bytes), 0xa5);
        sending.write_all(&reply).await?;
    }
}

/// Sockets to far ends, ready for one sample. They are closed when the sample ends.
#[derive(Debug)]
pub(super) struct Sockets {
    manager: Vec<Plain>,
    drives: Vec<Vec<Plain>>,
}

impl Sockets {
    /// Connects all sockets.
    pub(super) fn connect(manager: &FarEnd, drives: &[FarEnd]) -> Result<Sockets, Error> {
        let all = |end: &FarEnd| -> io::Result<Vec<Plain>> {
            (0..end.sockets.max(1)).map(|_| connect(&end.address)).collect()
        };
        Ok(Sockets {
            manager: all(manager).doing("connect to a far end")?,
            drives: drives.iter().map(all).collect::<io::Result<_>>().doing("connect to a far end")?,
        })
    }

    /// Takes one sample, in which an operation is all of `exchanges`, one after another. The sample runs on
    /// a thread of its own, which waits for all sockets.
    pub(super) async fn run(
        &self,
        exchanges: &[Exchange],
        in_flight: u32,
        limit: Limit,
    ) -> Result<Done, Error> {
        let copied =
            |plain: &Vec<Plain>| -> io::Result<Vec<Plain>> { plain.iter().map(Plain::try_clone).collect() };
        let manager = copied(&self.manager).doing("use a socket")?;
        let drives = self.drives.iter().map(copied).collect::<io::Result<Vec<Vec<Plain>>>>();
        let drives = drives.doing("use a socket")?;
        let exchanges = exchanges.to_vec();
        let (tell, done) = oneshot::channel();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let _ = tell.send(runtime.doing("start a thread's work").and_then(|runtime| {
                let sample = sample(manager, drives, exchanges, in_flight, limit);
                runtime.block_on(async {
                    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
                    timeout(BOUND, sample).await.map_err(late).doing("exchange plain messages")?
                })
            }));
        };
        std::thread::Builder::new().name("exchange".into()).spawn(work).doing("start a thread")?;
        done.await.map_err(io::Error::other).doing("exchange plain messages")?
    }
}

fn connect(address: &str) -> io::Result<Plain> {
    let socket = Plain::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

async fn sample(
    manager: Vec<Plain>,
    drives: Vec<Vec<Plain>>,
    exchanges: Vec<Exchange>,
    in_flight: u32,
    limit: Limit,
) -> Result<Done, Error> {
    let mut receivers = JoinSet::new();
    let mut near = |plain: Vec<Plain>| -> Result<Vec<Arc<NearEnd>>, Error> {
        plain.into_iter().map(|socket| NearEnd::of(socket, &mut receivers).doing("use a socket")).collect()
    };
    let manager = Arc::new(near(manager)?);
    let drives = Arc::new(drives.into_iter().map(&mut near).collect::<Result<Vec<_>, Error>>()?);
    let turns = Arc::new(Turns::begin(limit));
    let mut slots = JoinSet::new();
    for slot in 0..in_flight {
        let manager = Arc::clone(&manager);
        let drives = Arc::clone(&drives);
        let turns = Arc::clone(&turns);
        let exchanges = exchanges.clone();
        slots.spawn(async move {
            let mut random = Random(u64::from(slot));
            let mut took = Vec::new();
            let mut message = Vec::new();
            while turns.next().is_some() {
                let began = std::time::Instant::now();
                for exchange in &exchanges {
                    let ends = match exchange.with {
                        With::Manager => manager.as_slice(),
                        With::Drives => &drives[length_of(random.below(long(drives.len())))],
                    };
                    let end = &ends[length(slot) % ends.len()];
                    end.exchange(*exchange, &mut message).await.doing("exchange plain messages")?;
                }
                took.push(began.elapsed());
            }
            Ok(took)
        });
    }
    turns.end(slots).await
}

/// The near end of a socket, which any number of slots use at once.
#[derive(Debug)]
struct NearEnd {
    sending: Mutex<OwnedWriteHalf>,
    /// Slots that wait for a reply, in the order of their requests, with the reply's length: at most one
    /// entry for each slot. `None`: no more replies are received.
    waiting: Lock<Option<Waiting>>,
}

type Waiting = VecDeque<(u32, oneshot::Sender<()>)>;

impl NearEnd {
    /// Wraps a socket, and starts a task that receives its replies. The task ends when `receivers` is
    /// dropped.
    fn of(socket: Plain, receivers: &mut JoinSet<io::Result<()>>) -> io::Result<Arc<NearEnd>> {
        let (receiving, sending) = TcpStream::from_std(socket)?.into_split();
        let end =
            Arc::new(NearEnd { sending: Mutex::new(sending), waiting: Lock::new(Some(Waiting::new())) });
        let receiver = Arc::clone(&end);
        receivers.spawn(async move {
            let ended = receiver.receive(receiving).await;
            // The slots that wait see that no reply comes any more.
            *receiver.waiting() = None;
            ended
        });
        Ok(end)
    }

    async fn exchange(&self, exchange: Exchange, message: &mut Vec<u8>) -> io::Result<()> {
        message.resize(length(exchange.request_bytes.max(HEAD_BYTES)), 0xa5);
        message[..4].copy_from_slice(&exchange.request_bytes.max(HEAD_BYTES).to_le_bytes());
        message[4..8].copy_from_slice(&exchange.reply_bytes.to_le_bytes());
        let (answer, answered) = oneshot::channel();
        {
            let mut sending = self.sending.lock().await;
            match self.waiting().as_mut() {
                Some(waiting) => waiting.push_back((exchange.reply_bytes, answer)),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            sending.write_all(message).await?;
        }
        answered.await.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    async fn receive(&self, receiving: OwnedReadHalf) -> io::Result<()> {
        let mut receiving = BufReader::with_capacity(BUFFER_BYTES, receiving);
        let mut reply = Vec::new();
        loop {
            // The first byte says that there is a reply. It belongs to the first slot in the queue.
            receiving.read_u8().await?;
            let next = self.waiting().as_mut().and_then(VecDeque::pop_front);
            let (bytes, answer) = next.ok_or(io::ErrorKind::InvalidData)?;
            reply.resize(length(bytes) - 1, 0);
            receiving.read_exact(&mut reply).await?;
            let _ = answer.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn length(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn length_of(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn long(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn far_end(sockets: u32) -> FarEnd {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(serve(listener));
        FarEnd { address, sockets }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_are_answered_with_more_in_flight_than_sockets() {
        let manager = far_end(2).await;
        let drives = [far_end(1).await, far_end(3).await];
        let exchanges = [
            Exchange { with: With::Manager, request_bytes: 128, reply_bytes: 1 },
            Exchange { with: With::Drives, request_bytes: 8, reply_bytes: 5000 },
        ];
        let limit = Limit { seconds: None, operations: 300 };
        for in_flight in [1, 16] {
            let sockets = Sockets::connect(&manager, &drives).expect("connected");
            let done = sockets.run(&exchanges, in_flight, limit).await.expect("exchanged");
            assert_eq!(done.operations, 300);
            assert!(done.p50_us > 0.0 && done.p50_us <= done.p99_us, "{done:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_far_end_that_goes_away_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let end = FarEnd { address: listener.local_addr().expect("an address").to_string(), sockets: 1 };
        let sockets = Sockets::connect(&end, &[]).expect("connected");
        drop(listener);
        let exchange = Exchange { with: With::Manager, request_bytes: 64, reply_bytes: 64 };
        let limit = Limit { seconds: None, operations: 1 };
        assert!(sockets.run(&[exchange], 1, limit).await.is_err());
    }
}
