//! Two hosts that talk by datagrams while the network, the processes and the hosts suffer: what comes is what
//! was sent, in order, or the conversation ends with an error within a bounded time; and all is well in the
//! end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_datagram::Secret;
use braid_transport::{
    Bounds, ConnectionSlots, GivesWay, Limits, Listener, SecretOf, Stream, TransportError, session_config,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::fate;
use crate::random::{Random, mix};
use crate::run::{first_panic, note_panics};
use crate::trace::Trace;
use crate::world::{HostId, World};

const SEEDS: u64 = 16;
const IDENTITY: &[u8] = b"a capability";
/// Virtual time in which things go wrong.
const TROUBLE_MS: u64 = 40_000;
/// Longest virtual time until a conversation has come to its end since it last heard or was heard: the
/// machine's bound of silence twice, the longest pause, and the time to connect.
const BOUND: Duration = Duration::from_secs(60);
/// Longest virtual time until a conversation succeeds after all is well.
const WELL_MS: u64 = 120_000;

/// A host that echoes frames, and one that sends them.
struct Talk {
    world: World,
    trace: Trace,
    server: HostId,
    client: HostId,
    random: Random,
    /// Numbers of conversations: begun, come to a good end, to a bad one.
    begun: Arc<AtomicU64>,
    good: Arc<AtomicU64>,
    bad: Arc<AtomicU64>,
    given_up: GivenUp,
}

/// The conversations that their client has given up: the server may see their end before all was said.
type GivenUp = Arc<Mutex<BTreeSet<u64>>>;

fn config() -> braid_datagram::Config {
    session_config(braid_datagram::policy::Kind::Cubic)
}

async fn serve(given_up: GivenUp) {
    let secret_of: SecretOf = Arc::new(|identity| (identity == IDENTITY).then(|| Secret::new([7; 32])));
    let mut listener = Listener::bind("0.0.0.0:7000").await.expect("the port is free");
    listener.add_datagrams(&config(), &secret_of).expect("the port is free");
    let bounds = Bounds { all: 100, each: 100, each_here: 100, kept_here: 0 };
    let slots = ConnectionSlots::new(bounds, GivesWay::Anyone);
    let mut peers = JoinSet::new();
    loop {
        let stream = listener.accept().await.expect("a simulated host lacks nothing");
        peers.spawn(echo(stream, slots.clone(), Arc::clone(&given_up)));
    }
}

/// Sends every frame back, until the peer ends: not before it has said all that it was to say.
async fn echo(stream: Stream, slots: ConnectionSlots, given_up: GivenUp) -> Result<(), TransportError> {
    let slot = slots.take(stream.holder()?, stream.origin()).expect("the oldest gives way");
    let (mut sender, mut receiver) = stream.into_halves();
    receiver.admit(slot);
    let mut came = 0;
    let mut said = None;
    while let Some((header, body)) = receiver.frame().await? {
        let mut payload = Vec::new();
        receiver.payload_into(&mut payload, header.payload_bytes).await?;
        sender.send(header.kind, header.request, &body, &[&payload]).await?;
        came += 1;
        said = body.first_chunk().map(|of| u64::from_le_bytes(*of));
    }
    if let Some(of) = said.filter(|of| !lock(&given_up).contains(of)) {
        assert_eq!(came, frames(of), "conversation {of} is at its end before all has come");
    }
    Ok(())
}

fn lock(given_up: &GivenUp) -> MutexGuard<'_, BTreeSet<u64>> {
    given_up.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of frames of a conversation.
fn frames(of: u64) -> u64 {
    1 + mix(of) % 12
}

fn payload(of: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(mix(of) ^ number);
    let most = if random.percent(20) { 300_000 } else { 4_000 };
    let bytes = random.below(most);
    let first = random.draw();
    (0..bytes).map(|at| (mix(first ^ (at / 8)) >> (8 * (at % 8))).to_le_bytes()[0]).collect()
}

/// Sends some frames, and checks that each comes back.
async fn converse(address: &str, of: u64, given_up: &GivenUp) -> Result<(), TransportError> {
    let limits = Limits { connect: Duration::from_secs(5), ..Limits::default() };
    let secret = Secret::new([7; 32]);
    let stream = Stream::connect_by_datagrams(address, &limits, config(), IDENTITY, secret).await?;
    let (mut sender, mut receiver) = stream.into_halves();
    let frames = frames(of);
    let body = of.to_le_bytes();
    let sending = async {
        for number in 0..frames {
            sender.send(5, number, &body, &[&payload(of, number)]).await?;
        }
        Ok::<(), TransportError>(())
    };
    let receiving = async {
        for number in 0..frames {
            let waited = receiver.frame_within(BOUND, "for an echo").await?;
            let Some((header, echoed)) = waited else {
                return Err(TransportError::Closed { address: address.to_owned() });
            };
            assert_eq!((header.request, &echoed[..]), (number, body.as_slice()), "frames come in order");
            let mut bytes = Vec::new();
            receiver.payload_into(&mut bytes, header.payload_bytes).await?;
            assert!(bytes == payload(of, number), "frame {number} of conversation {of} was changed");
        }
        Ok(())
    };
    let (sent, received) = tokio::join!(sending, receiving);
    let ended = sent.and(received);
    if ended.is_err() {
        // Before the sender is dropped, which ends the connection.
        lock(given_up).insert(of);
    }
    ended
}

impl Talk {
    fn new(seed: u64) -> Talk {
        let mut random = Random::new(seed);
        let trace = Trace::default();
        let mut world = World::new(random.fork(), trace.clone());
        let server = world.add_host("server");
        let client = world.add_host("client");
        let [begun, good, bad] = <[Arc<AtomicU64>; 3]>::default();
        let given_up = GivenUp::default();
        let mut talk = Talk { world, trace, server, client, random, begun, good, bad, given_up };
        talk.start_server();
        talk.start_client();
        talk
    }

    fn start_server(&mut self) {
        self.world.start(self.server, serve(Arc::clone(&self.given_up)));
    }

    fn start_client(&mut self) {
        let address = format!("{}:7000", self.world.ip(self.server));
        let begun = Arc::clone(&self.begun);
        let good = Arc::clone(&self.good);
        let bad = Arc::clone(&self.bad);
        let given_up = Arc::clone(&self.given_up);
        self.world.start(self.client, async move {
            loop {
                let of = begun.fetch_add(1, Ordering::Relaxed);
                let since = Instant::now();
                // What is sent, received and waited for is bounded each by the bound of silence.
                let Ok(ended) = timeout(4 * BOUND, converse(&address, of, &given_up)).await else {
                    panic!("conversation {of} hangs since {:?}", since.elapsed());
                };
                let counter = if ended.is_ok() { &good } else { &bad };
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(mix(of) % 300)).await;
            }
        });
    }

    fn step(&mut self) {
        self.world.step();
        if let Some(panic) = first_panic() {
            panic!("{panic}");
        }
    }

    fn pass(&mut self, time_ms: u64) {
        let until_ms = self.world.now_ms() + time_ms;
        while self.world.now_ms() < until_ms {
            self.step();
        }
    }

    /// Does one thing that goes wrong, for a while.
    fn suffer(&mut self) {
        let time_ms = self.random.below(14_000);
        let server = self.world.ip(self.server);
        let client = self.world.ip(self.client);
        let host = if self.random.percent(50) { self.server } else { self.client };
        match self.random.below(6) {
            0 => {
                self.world.kill(host);
                if self.random.percent(50) {
                    self.world.net.set_down(self.world.ip(host));
                }
                self.pass(time_ms / 4);
                if host == self.server {
                    self.start_server();
                } else {
                    self.start_client();
                }
                self.pass(time_ms);
            }
            1 => {
                self.world.pause(host);
                self.pass(time_ms);
                self.world.resume(host);
            }
            2 => {
                self.world.suspend(host);
                self.pass(time_ms);
                self.world.resume(host);
            }
            3 => {
                if self.random.percent(60) {
                    self.world.net.block(server, client);
                }
                if self.random.percent(60) {
                    self.world.net.block(client, server);
                }
                self.pass(time_ms);
            }
            4 => {
                self.world.net.slow(server, client, time_ms / 20);
                self.pass(time_ms);
            }
            _ => self.pass(time_ms),
        }
        self.world.net.heal();
    }

    fn run(mut self) {
        while self.world.now_ms() < TROUBLE_MS {
            self.suffer();
        }
        let well_ms = self.world.now_ms();
        // The one that is under way may fail yet; of the later ones one must succeed.
        let after = self.good.load(Ordering::Relaxed) + 2;
        while self.good.load(Ordering::Relaxed) < after {
            let [begun, good, bad] = [&self.begun, &self.good, &self.bad].map(|n| n.load(Ordering::Relaxed));
            let told = format!("{good} of {begun} conversations were good, {bad} were not");
            assert!(self.world.now_ms() < well_ms + WELL_MS, "it does not become well: {told}");
            self.step();
        }
    }
}

/// Runs a talk on a thread of its own, which takes its time and its random numbers from the seed.
fn on_thread(seed: u64, run: impl FnOnce(Talk) + Send + 'static) {
    let running = std::thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        fate::begin(seed);
        run(Talk::new(seed));
    });
    if let Err(panic) = running.expect("a thread").join() {
        let why = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
        panic!("seed {seed}: {why}");
    }
}

#[test]
fn what_comes_is_what_was_sent_and_no_conversation_hangs() {
    note_panics();
    (0..SEEDS).for_each(|seed| on_thread(seed, Talk::run));
}

/// A client that others see at another address all the time, as behind a NAT that forgets.
#[test]
fn a_conversation_goes_on_though_the_client_gets_another_address() {
    note_panics();
    on_thread(1, |mut talk| {
        talk.world.net.forget_often();
        while talk.good.load(Ordering::Relaxed) < 100 {
            talk.step();
            assert!(talk.world.now_ms() < WELL_MS, "{:?} were good", talk.good);
            assert_eq!(talk.bad.load(Ordering::Relaxed), 0, "a conversation broke");
        }
        let moves = talk.trace.counts().get("sockets seen at another address").copied().unwrap_or(0);
        assert!(moves >= 50, "{moves} times");
    });
}
