//! Several managers on one etcd: one leads, the others name it, and one takes over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_layout::TokenId;
use braid_manager::{Config, EtcdConfig, ManagerError, Ready, run};
use braid_processes::etcd::Etcd;
use braid_testing::answer;
use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::control::{ControlReply, TokenNew, Tokens};
use braid_wire::token::Token;
use braid_wire::{Reason, Refusal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fake::{Client, eventually};
use crate::tokens::{make, spec};

/// One of several managers.
struct Node {
    ready: Ready,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ManagerError>>,
}

fn config(etcd: &Etcd, dir: &Path) -> Config {
    Config { etcd: Some(EtcdConfig::of_state(&etcd.state()).unwrap()), ..Config::new(dir, "127.0.0.1:0") }
}

impl Node {
    async fn start(etcd: &Etcd, dir: &Path) -> Node {
        Node::try_to_start(etcd, dir).await.unwrap_or_else(|why| panic!("it does not start: {why}"))
    }

    async fn try_to_start(etcd: &Etcd, dir: &Path) -> Result<Node, String> {
        let (tell, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(config(etcd, dir), tell, async {
            let _ = stopped.await;
        }));
        match ready.await {
            Ok(ready) => Ok(Node { ready, stop: Some(stop), task }),
            Err(_) => Err(format!("{:?}", task.await)),
        }
    }

    /// The refusal of a session; `None` if this manager leads.
    async fn refuses(&self) -> Option<Refusal> {
        let session =
            ControlSession::connect(&self.ready.address, &self.ready.client_token, &Limits::default()).await;
        match session {
            Ok(_) => None,
            Err(TransportError::Refusal(refusal)) => Some(refusal),
            Err(other) => Some(Refusal::new(Reason::Busy, other.to_string())),
        }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap().unwrap();
    }
}

/// The leader of these, once there is one.
async fn leader(nodes: &[Node]) -> usize {
    answer("one leads", async || {
        for (number, node) in nodes.iter().enumerate() {
            if node.refuses().await.is_none() {
                return Some(number);
            }
        }
        None
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_takes_over_with_all_that_was_acknowledged() {
    let etcd = Etcd::start(3);
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = Vec::new();
    for dir in &dirs {
        nodes.push(Node::start(&etcd, dir.path()).await);
    }
    let mut tokens: Vec<Token> = Vec::new();
    for round in 0..3 {
        let at = leader(&nodes).await;
        let address = nodes[at].ready.address.clone();
        for (_, other) in nodes.iter().enumerate().filter(|(number, _)| *number != at) {
            eventually("it names the leader", async || {
                let refusal = other.refuses().await.expect("only one leads");
                refusal.reason == Reason::NotLeading && refusal.leader == address
            })
            .await;
        }
        let mut client = Client::connect(&nodes[at].ready).await;
        for token in &tokens {
            let ready = Ready { client_token: token.clone(), ..nodes[at].ready.clone() };
            Client::connect(&ready).await;
        }
        tokens.push(make(&mut client, &nodes[at].ready, 100 + round, spec(&format!("t{round}"))).await);
        let status = client
            .until("the others follow", |status| {
                status.managers.len() == 3 && status.managers.iter().all(|row| row.lag == 0)
            })
            .await;
        assert!(status.managers[0].leads && status.managers[0].address == address);
        assert!(status.managers[1..].iter().all(|row| !row.leads));
        client
            .until("etcd's members are known", |status| {
                status.members.iter().filter(|row| row.healthy).count() == 3
            })
            .await;
        // It dies, or stops in order, and comes back.
        let gone = nodes.remove(at);
        if round == 1 {
            gone.stop().await;
        } else {
            gone.task.abort();
            let _ = gone.task.await;
        }
        leader(&nodes).await;
        let free = answer("a directory is free", async || {
            for dir in &dirs {
                let lock = std::fs::File::open(dir.path().join("LOCK")).unwrap();
                if lock.try_lock().is_ok() {
                    return Some(dir.path());
                }
            }
            None
        });
        let free = free.await;
        nodes.push(Node::start(&etcd, free).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_loss_of_all_what_was_acknowledged_is_there() {
    let mut etcd = Etcd::start(3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = async |etcd: &Etcd| {
        let mut nodes = Vec::new();
        for dir in &dirs {
            // A thread of the one before may still hold the directory's files.
            nodes.push(answer("it starts", async || Node::try_to_start(etcd, dir.path()).await.ok()).await);
        }
        nodes
    };
    let nodes = start(&etcd).await;
    let at = leader(&nodes).await;
    let ready = nodes[at].ready.clone();
    let mut client = Client::connect(&ready).await;
    let made = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&made);
    let making = tokio::spawn(async move {
        loop {
            let id = TokenId(100 + counted.load(Ordering::SeqCst));
            let head = client.operation();
            let request = TokenNew { id, ..spec(&format!("t{}", id.0)) };
            if client.0.call_as(&head, &request.into()).await.is_err() {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    eventually("some are made", || async { made.load(Ordering::SeqCst) >= 20 }).await;
    // In the middle of the next ones.
    (0..3).for_each(|number| etcd.kill(number));
    for node in nodes {
        node.task.abort();
        let _ = node.task.await;
    }
    making.await.unwrap();
    (0..3).for_each(|number| etcd.run(number));
    let nodes = start(&etcd).await;
    let at = leader(&nodes).await;
    let mut admin = Client::connect(&nodes[at].ready).await;
    let mut after = TokenId(99);
    let mut found = 0;
    loop {
        let ControlReply::Tokens(list) = admin.ask(Tokens { after }).await.unwrap() else { panic!("a list") };
        let Some(last) = list.tokens.last() else { break };
        found += list.tokens.iter().filter(|row| row.name.starts_with('t')).count();
        after = last.id;
    }
    let made = usize::try_from(made.load(Ordering::SeqCst)).unwrap();
    assert!(found == made || found == made + 1, "{found} are there, {made} were acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_of_etcd_all_say_so_and_go_on_when_it_is_back() {
    let mut etcd = Etcd::start(3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut nodes = Vec::new();
    for dir in &dirs {
        nodes.push(Node::start(&etcd, dir.path()).await);
    }
    let at = leader(&nodes).await;
    let mut client = Client::connect(&nodes[at].ready).await;
    let token = make(&mut client, &nodes[at].ready, 100, spec("before")).await;
    etcd.kill(0);
    etcd.kill(1);
    for node in &nodes {
        eventually("it says what to do", || async {
            let refusal = node.refuses().await;
            refusal.is_some_and(|refusal| {
                refusal.reason == Reason::NotLeading && refusal.detail.contains("most of its members run")
            })
        })
        .await;
    }
    etcd.run(0);
    etcd.run(1);
    let at = leader(&nodes).await;
    let ready = Ready { client_token: token, ..nodes[at].ready.clone() };
    Client::connect(&ready).await;
    let mut client = Client::connect(&nodes[at].ready).await;
    make(&mut client, &nodes[at].ready, 101, spec("after")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_not_taken_for_one_of_the_other_kind() {
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    Node::start(&etcd, dir.path()).await.stop().await;
    let start = async |config: Config| {
        let (tell, _ready) = oneshot::channel();
        run(config, tell, std::future::pending()).await.unwrap_err().to_string()
    };
    let said = start(Config::new(dir.path(), "127.0.0.1:0")).await;
    assert!(said.contains("--state etcd://"), "{said}");
    std::fs::write(dir.path().join("manager.redb"), "a state").unwrap();
    let said = start(config(&etcd, dir.path())).await;
    assert!(
        said.contains("has a state of its own") && said.contains("braid manager restore FILE --state"),
        "{said}"
    );
}
