//! As much of a manager as a drive needs: tokens, joins, heartbeats. Tests set its answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use braid_layout::{ClusterId, DriveId, TokenId};
use braid_transport::{
    Asked, Authority, Bounds, Capacity, ConnectionSlots, ControlPeer, GivesWay, Limits, Listener, Origin,
    ServerIdentity, Stream, challenge,
};
use braid_wire::Addresses;
use braid_wire::capability::{Capability, Rights};
use braid_wire::control::{
    Admission, Authenticate, ControlHead, ControlReply, ControlRequest, Grant, Heartbeat, HeartbeatReply,
    JoinDriveReply, KeyTurn, SisterRow, Sisters, SistersReply, StateMark, managers_mark,
};
use braid_wire::data::{Hello, PeerRole};
use braid_wire::token::{Standing, Token, TokenRole};
use braid_wire::{Key, Reason, Refusal};

use super::CLUSTER;
use super::requests::partition_level;

pub struct Manager {
    pub address: String,
    state: Arc<Mutex<ManagerState>>,
    /// The leader that it names, while it stands by.
    stands_by: Arc<Mutex<Option<String>>>,
    task: tokio::task::JoinHandle<()>,
}

/// The manager's state and its answers.
pub struct ManagerState {
    pub cluster: ClusterId,
    pub term: u64,
    pub now_ms: u64,
    pub lease_ms: u32,
    pub replaced: bool,
    pub epoch: u64,
    pub admission: Admission,
    pub instance: u64,
    pub mark: StateMark,
    /// True if heartbeats are answered.
    pub answers: bool,
    /// True if the connection breaks after a join is stored and before it is answered.
    pub breaks_at_join: bool,
    /// Number of connections that break before anything is sent.
    pub breaks: u32,
    pub joins: u32,
    pub masters: BTreeMap<DriveId, Key>,
    /// The key on record and its next turn, of all drives.
    pub turn: KeyTurn,
    pub last: Option<Heartbeat>,
    /// Address of the manager that got it.
    pub last_at: String,
    /// The list of managers that drives are told.
    pub managers: Vec<String>,
    /// Listening addresses of each drive, from its last heartbeat.
    pub addresses: BTreeMap<DriveId, Addresses>,
}

impl Manager {
    pub async fn start() -> Manager {
        Manager::start_for(CLUSTER).await
    }

    pub async fn start_for(cluster: ClusterId) -> Manager {
        let state = Arc::new(Mutex::new(ManagerState {
            cluster,
            term: 1,
            now_ms: 5_000_000,
            lease_ms: 6000,
            replaced: false,
            epoch: 0,
            admission: Admission::Serve,
            instance: 1,
            mark: StateMark { term: 1, mark: 11, changes: 1 },
            answers: true,
            breaks_at_join: false,
            breaks: 0,
            joins: 0,
            masters: BTreeMap::new(),
            turn: KeyTurn::FIRST,
            last: None,
            last_at: String::new(),
            managers: Vec::new(),
            addresses: BTreeMap::new(),
        }));
        Manager::start_on(state).await
    }

    /// Another manager with the same state.
    pub async fn start_beside(&self) -> Manager {
        Manager::start_on(Arc::clone(&self.state)).await
    }

    async fn start_on(state: Arc<Mutex<ManagerState>>) -> Manager {
        let listener =
            Listener::bind_with("127.0.0.1:0", Limits::default(), Capacity::default()).await.unwrap();
        let address = listener.local_address().to_string();
        let stands_by = Arc::new(Mutex::new(None));
        let shared = (Arc::clone(&state), Arc::clone(&stands_by), address.clone());
        let task = tokio::spawn(async move {
            let mut peers = tokio::task::JoinSet::new();
            while let Ok(stream) = listener.accept().await {
                let (state, stands_by, address) = shared.clone();
                peers.spawn(serve(stream, state, stands_by, address));
            }
        });
        Manager { address, state, stands_by, task }
    }

    /// From now on it stands by, and names this leader; `None`: it leads.
    pub fn stands_by(&self, leader: Option<&str>) {
        *self.stands_by.lock().unwrap() = leader.map(str::to_owned);
    }

    pub fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap()
    }

    pub fn master(&self, drive: DriveId) -> Option<Key> {
        self.state().masters.get(&drive).cloned()
    }

    pub fn join_token(&self) -> Token {
        let cluster = self.state().cluster;
        Token::lasting(TokenRole::Drive, authority(cluster).pin(), TokenId(1), join_secret())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The CA of a cluster of the tests.
fn authority(cluster: ClusterId) -> Authority {
    Authority::make(&Key::new([3; 32]).derive("test", &cluster.0.to_le_bytes()))
}

fn join_secret() -> Key {
    Key::new([0x70; 32])
}

fn head(state: &Arc<Mutex<ManagerState>>) -> ControlHead {
    let state = state.lock().unwrap();
    let managers = managers_mark(&state.managers);
    ControlHead { term: state.term, now_ms: state.now_ms, managers }
}

fn secret_of(state: &Arc<Mutex<ManagerState>>, asker: &Authenticate) -> Result<Key, Refusal> {
    match asker.standing {
        Standing::Join => Ok(join_secret()),
        Standing::Drive => {
            let state = state.lock().unwrap();
            let unknown = || Refusal::new(Reason::NoDrive, "this drive never joined");
            state.masters.get(&asker.drive).map(Token::drive_secret).ok_or_else(unknown)
        }
        Standing::Client | Standing::Manager => Err(Refusal::new(Reason::NotAllowed, "only drives here")),
    }
}

async fn serve(
    stream: Stream,
    state: Arc<Mutex<ManagerState>>,
    stands_by: Arc<Mutex<Option<String>>>,
    address: String,
) {
    let standing_by = || stands_by.lock().unwrap().clone().map(Refusal::standing_by);
    {
        let mut state = state.lock().unwrap();
        if state.breaks > 0 {
            state.breaks -= 1;
            return;
        }
    }
    let hello = Hello {
        role: PeerRole::Manager,
        version_min: braid_wire::frame::WIRE_VERSION,
        version_max: braid_wire::frame::WIRE_VERSION,
        cluster: state.lock().unwrap().cluster,
        drive: DriveId(0),
        features: 0,
        challenge: challenge(),
    };
    let identity = ServerIdentity::of(&authority(hello.cluster), braid_transport::host::wall_ms() / 1000);
    let secret_of = |asker: &Authenticate| standing_by().map_or_else(|| secret_of(&state, asker), Err);
    let managers = state.lock().unwrap().managers.clone();
    let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
    let holder = stream.holder().unwrap();
    let place_for = |_: &Authenticate| Ok(places.take(holder, Origin::Here).unwrap());
    let accepted =
        ControlPeer::accept(stream, &identity, &hello, managers, || head(&state), secret_of, place_for).await;
    let Ok(mut peer) = accepted else { return };
    while let Ok(Some(Asked { number, request, .. })) = peer.next(|| head(&state)).await {
        let request = request.and_then(|request| standing_by().map_or(Ok(request), Err));
        let reply = match request {
            Ok(ControlRequest::JoinDrive(join)) => {
                let master = Token::master_key(&peer.secret, &peer.binding, &peer.nonce, peer.drive);
                let mut state = state.lock().unwrap();
                state.masters.insert(peer.drive, master);
                state.joins += 1;
                if state.breaks_at_join {
                    return;
                }
                ControlReply::Joined(JoinDriveReply { name: join.name, key: 1 })
            }
            Ok(ControlRequest::Heartbeat(heartbeat)) => {
                let mut state = state.lock().unwrap();
                state.addresses.insert(peer.drive, heartbeat.addresses.clone());
                if heartbeat.key != state.turn.number {
                    let random = state.turn.next.take().expect("it turns when it is told to");
                    let turned = state.masters[&peer.drive].turned(heartbeat.key, &random);
                    state.masters.insert(peer.drive, turned);
                    state.turn.number = heartbeat.key;
                }
                state.last = Some(heartbeat);
                state.last_at.clone_from(&address);
                if !state.answers {
                    return;
                }
                let lease_ms = state.lease_ms;
                let epoch = state.epoch;
                let instance = state.instance;
                let admission = if state.replaced { Admission::Replaced } else { state.admission };
                let detail = "as the test says".to_owned();
                let mark = state.mark.clone();
                ControlReply::Heartbeat(HeartbeatReply {
                    lease_ms,
                    admission,
                    detail,
                    instance,
                    state: mark,
                    epoch,
                    ended: Vec::new(),
                    key: state.turn.clone(),
                })
            }
            Ok(ControlRequest::Sisters(asked)) => sisters(&state.lock().unwrap(), peer.drive, &asked),
            Ok(other) => ControlReply::Refused(Refusal::new(Reason::Unsupported, other.name())),
            Err(refusal) => ControlReply::Refused(refusal),
        };
        let head = head(&state);
        if peer.reply(number, &head, &reply).await.is_err() {
            return;
        }
    }
}

/// The sisters that have ever sent a heartbeat, with the rights that a manager gives.
fn sisters(state: &ManagerState, asker: DriveId, asked: &Sisters) -> ControlReply {
    let row = |drive: &DriveId| {
        let master = state.masters.get(drive)?;
        let addresses = state.addresses.get(drive)?.clone();
        let partition = asked.partition;
        let capability = Capability {
            drive: *drive,
            partition,
            rights: Rights::DELTA,
            holder: asker,
            ..partition_level()
        };
        let key = master.drive_key(*drive).partition_key(partition).working_key(1);
        let grant = Grant { private: key.private_part(&capability), capability };
        Some(SisterRow { drive: *drive, addresses, grant })
    };
    SistersReply { sisters: asked.drives.iter().filter_map(row).collect() }.into()
}
