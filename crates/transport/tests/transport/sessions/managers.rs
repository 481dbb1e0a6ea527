//! The search for the leader among several managers: standbys, dead hosts, other clusters', changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_layout::ClusterId;
use braid_transport::{
    Authority, Bounds, Capacity, ConnectionSlots, ControlPeer, ControlSession, GivesWay, Limits, Listener,
    Managers, Mismatch, Origin, Sender, ServerIdentity, Stream, TransportError,
};
use braid_wire::capability::Key;
use braid_wire::control::{Authenticate, ControlHead, ControlReply, Done, VolumeList, managers_mark};
use braid_wire::data::{HELLO_REFUSED, Hello, PeerRole};
use braid_wire::{Reason, Refusal, Wire};
use tokio::time::timeout;

use super::common::{CLUSTER, hello, identity, now_s, token};

/// The bound for every wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A manager's answers, which a test may change.
#[derive(Clone)]
enum Is {
    /// It leads, and tells this list.
    Leader(Vec<String>),
    /// It refuses sessions, and requests in those that it has, and names this leader.
    StandingBy(String),
    /// It takes connections and never says anything.
    Silent,
    /// It refuses with this reason before any proof.
    Refusing(Reason),
}

struct Manager {
    address: String,
    is: Arc<Mutex<Is>>,
    /// Number of connections that it has taken.
    taken: Arc<Mutex<u32>>,
}

impl Manager {
    async fn start(is: Is) -> Manager {
        Manager::start_as(is, identity(), CLUSTER).await
    }

    async fn start_as(is: Is, identity: ServerIdentity, cluster: ClusterId) -> Manager {
        let listener =
            Listener::bind_with("127.0.0.1:0", Limits::default(), Capacity::default()).await.unwrap();
        let address = listener.local_address().to_string();
        let is = Arc::new(Mutex::new(is));
        let taken = Arc::new(Mutex::new(0));
        let manager = Manager { address, is: Arc::clone(&is), taken: Arc::clone(&taken) };
        let hello = Hello { cluster, ..hello(PeerRole::Manager) };
        tokio::spawn(async move {
            while let Ok(stream) = listener.accept().await {
                *taken.lock().unwrap() += 1;
                tokio::spawn(serve(stream, Arc::clone(&is), identity.clone(), hello.clone()));
            }
        });
        manager
    }

    fn becomes(&self, is: Is) {
        *self.is.lock().unwrap() = is;
    }
}

async fn serve(
    stream: Stream,
    is: Arc<Mutex<Is>>,
    identity: ServerIdentity,
    hello: Hello,
) -> Result<(), TransportError> {
    let now = || is.lock().unwrap().clone();
    let list = || if let Is::Leader(list) = now() { list } else { Vec::new() };
    let head = || ControlHead { term: 3, now_ms: 99, managers: managers_mark(&list()) };
    match now() {
        Is::Silent => std::future::pending().await,
        Is::Refusing(reason) => {
            let (mut sender, _): (Sender, _) = stream.into_halves();
            let body = Refusal::new(reason, "no").to_bytes();
            sender.send(HELLO_REFUSED, 0, &body, &[]).await?;
            return sender.shutdown().await;
        }
        Is::Leader(_) | Is::StandingBy(_) => {}
    }
    let places = ConnectionSlots::new(Bounds::new(8, 8), GivesWay::Idle);
    let holder = stream.holder()?;
    let place = |_: &_| Ok(places.take(holder, Origin::Here).unwrap());
    let secret = |_: &Authenticate| match now() {
        Is::StandingBy(leader) => Err(Refusal::standing_by(leader)),
        _ => Ok(token().secret),
    };
    let mut peer = ControlPeer::accept(stream, &identity, &hello, list(), head, secret, place).await?;
    while let Some(asked) = peer.next(head).await? {
        let reply = match now() {
            Is::StandingBy(leader) => ControlReply::Refused(Refusal::standing_by(leader)),
            _ => ControlReply::Done(Done {}),
        };
        peer.reply(asked.number, &head(), &reply).await?;
    }
    Ok(())
}

/// Managers of these addresses.
fn list(managers: &[&Manager]) -> Managers {
    let addresses: Vec<&str> = managers.iter().map(|manager| manager.address.as_str()).collect();
    addresses.join(",").parse().unwrap()
}

async fn find(managers: &Managers) -> Result<ControlSession, TransportError> {
    // Longer than a test waits: a search must not wait for the silent.
    let limits = Limits { connect: 2 * PATIENCE, ..Limits::default() };
    timeout(PATIENCE, ControlSession::find(managers, &token(), &limits)).await.expect("it waits for nobody")
}

#[tokio::test]
async fn the_leader_is_found_among_dead_silent_and_waiting_ones_and_is_the_first_next_time() {
    let leader = Manager::start(Is::Leader(Vec::new())).await;
    let named = Manager::start(Is::StandingBy(leader.address.clone())).await;
    let unaware = Manager::start(Is::StandingBy(String::new())).await;
    let silent = Manager::start(Is::Silent).await;
    let busy = Manager::start(Is::Refusing(Reason::Busy)).await;
    let dead: Managers = "127.0.0.1:1".parse().unwrap();
    let all = list(&[&silent, &busy, &unaware, &named]);
    let all: Managers = format!("{dead},{all}").parse().unwrap();
    let session = find(&all).await.unwrap();
    assert_eq!(session.address(), leader.address);
    let taken = *silent.taken.lock().unwrap();
    find(&all).await.unwrap();
    assert_eq!((*silent.taken.lock().unwrap(), *leader.taken.lock().unwrap()), (taken, 2));
}

#[tokio::test]
async fn a_list_that_a_session_tells_is_used_and_a_change_makes_the_session_old() {
    let [a, b] = [Manager::start(Is::Leader(Vec::new())).await, Manager::start(Is::Silent).await];
    let grown = vec![a.address.clone(), b.address.clone()];
    let managers = Managers::from(&a.address);
    let mut session = find(&managers).await.unwrap();
    assert!(!session.is_outdated());
    a.becomes(Is::Leader(grown.clone()));
    session.call(&VolumeList {}.into()).await.unwrap();
    assert!(session.is_outdated());
    let mut session = find(&managers).await.unwrap();
    session.call(&VolumeList {}.into()).await.unwrap();
    assert!(!session.is_outdated() && managers.are_several());
    assert_eq!(managers.addresses(), grown);
    // The other one leads now, and was never told.
    b.becomes(Is::Leader(grown.into_iter().rev().collect()));
    a.becomes(Is::StandingBy(String::new()));
    let refused = session.call(&VolumeList {}.into()).await.unwrap_err();
    assert!(matches!(&refused, TransportError::Refusal(of) if of.reason == Reason::NotLeading), "{refused}");
    assert_eq!(find(&managers).await.unwrap().address(), b.address);
    assert_eq!(managers.leading(), b.address);
}

#[tokio::test]
async fn a_leader_that_takes_over_while_the_last_one_is_silent_is_found() {
    let dead = Manager::start(Is::Silent).await;
    let next = Manager::start(Is::StandingBy(dead.address.clone())).await;
    let managers = list(&[&dead, &next]);
    let searching = tokio::spawn(async move { find(&managers).await });
    while *next.taken.lock().unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    next.becomes(Is::Leader(Vec::new()));
    assert_eq!(searching.await.unwrap().unwrap().address(), next.address);
}

#[tokio::test]
async fn a_rogue_manager_is_refused_by_name_and_the_others_are_used() {
    let other = Authority::make(&Key::new([4; 32]));
    let of_other = || ServerIdentity::of(&other, now_s());
    let rogue = Manager::start_as(Is::Leader(vec!["127.0.0.1:9".to_owned()]), of_other(), CLUSTER).await;
    // A manager of another cluster, whose hello says so.
    let stranger = Manager::start_as(Is::Leader(Vec::new()), of_other(), ClusterId(9)).await;
    let error = find(&list(&[&rogue, &stranger])).await.unwrap_err();
    let TransportError::WrongPeer { mismatch: Mismatch::Authority { .. }, address } = &error else {
        panic!("{error}")
    };
    assert!([&rogue.address, &stranger.address].contains(&address));
    assert!(error.to_string().contains("another cluster's manager"), "{error}");
    let leader = Manager::start(Is::Leader(Vec::new())).await;
    let mixed = list(&[&rogue, &stranger, &leader]);
    assert_eq!(find(&mixed).await.unwrap().address(), leader.address);
    assert!(mixed.addresses().contains(&rogue.address), "the rogue's list is not believed");
}

#[tokio::test]
async fn when_none_leads_that_is_told_and_a_forged_refusal_ends_no_search() {
    let [a, b] = [(); 2].map(|()| Manager::start(Is::StandingBy(String::new())));
    let (a, b) = tokio::join!(a, b);
    a.becomes(Is::StandingBy(b.address.clone()));
    b.becomes(Is::StandingBy(a.address.clone()));
    let error = find(&list(&[&a, &b])).await.unwrap_err();
    let TransportError::Refusal(refusal) = &error else { panic!("{error}") };
    assert!(refusal.reason == Reason::NotLeading && refusal.again_ms > 0, "{refusal:?}");
    // In the clear, before any certificate: nobody knows who says it.
    let forger = Manager::start(Is::Refusing(Reason::BadToken)).await;
    let leader = Manager::start(Is::Leader(Vec::new())).await;
    assert_eq!(find(&list(&[&forger, &leader])).await.unwrap().address(), leader.address);
    let error = find(&list(&[&forger])).await.unwrap_err();
    assert!(matches!(error, TransportError::Unexpected { .. }), "{error}");
}

#[tokio::test]
async fn the_cluster_is_told_by_any_of_its_managers() {
    let other = Authority::make(&Key::new([4; 32]));
    let rogue = Manager::start_as(Is::Leader(Vec::new()), ServerIdentity::of(&other, now_s()), ClusterId(9));
    let rogue = rogue.await;
    let standby = Manager::start(Is::StandingBy(String::new())).await;
    let managers = list(&[&rogue, &standby]);
    let cluster = ControlSession::cluster_of(&managers, token().pin, &Limits::default()).await.unwrap();
    assert_eq!(cluster, CLUSTER);
}
