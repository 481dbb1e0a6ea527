//! The store on a real etcd: as every store, and with members, connections and leaders that fail.

mod faults;
mod leaders;
mod log;
mod proxy;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use braid_meta::records::log::LeaderRecord;
use braid_processes::etcd::Etcd;
use braid_testing::{answer, eventually};
use tokio::task::JoinSet;

use super::cache::Cache;
use super::config::EtcdConfig;
use super::election::{Tenure, campaign};
use super::kv::EtcdKv;
use super::lease::Lease;
use super::link::Link;
use super::pen::Pen;
use super::reader::identify;
use super::run::prepare;
use crate::disk::conformance;

/// Maximum time that a test's etcd is waited for: it is starting.
const WAIT: Duration = Duration::from_secs(60);

/// A manager, as far as its state is concerned.
struct Node {
    link: Arc<Link>,
    cache: Arc<Cache>,
}

/// A manager that leads.
struct Leading {
    kv: Arc<EtcdKv>,
    pen: Pen,
    lease: Arc<Lease>,
    /// Renews the lease.
    keeping: JoinSet<()>,
}

impl Node {
    /// A manager with its copy in this directory.
    async fn new(state: &str, dir: &Path) -> Node {
        let link = Link::new(&EtcdConfig::of_state(state).expect("a state"), None).await.expect("a link");
        let node = Node { link: Arc::new(link), cache: Arc::new(Cache::open(dir).expect("a copy")) };
        identify(&node.link, &node.cache, WAIT).await.expect("the state is found");
        node
    }

    /// Is elected, as soon as no other leads.
    async fn lead(&self) -> Leading {
        let lease = answer("etcd gives a lease", async || Lease::grant(&self.link).await.ok()).await;
        let lease = Arc::new(lease);
        let mut keeping = JoinSet::new();
        let kept = Arc::clone(&lease);
        let link = Arc::clone(&self.link);
        keeping.spawn(async move { kept.keep(&link).await });
        let me = LeaderRecord { address: "a:1".to_owned(), name: "a".to_owned() };
        let elected = async || campaign(&self.link, &lease, &me).await.ok().flatten();
        let revision = answer("it is elected", elected).await;
        let tenure = Arc::new(Tenure::new(revision, Arc::clone(&lease)));
        let pen = Pen { link: Arc::clone(&self.link), tenure };
        prepare(&self.link, &self.cache, &pen).await.expect("it is up to date");
        let logged = Arc::new(AtomicU64::new(0));
        let kv = Arc::new(EtcdKv::new(Arc::clone(&self.cache), pen.clone(), logged));
        Leading { kv, pen, lease, keeping }
    }
}

impl Leading {
    /// Works with the store on a thread that may block.
    async fn with<R: Send + 'static>(&self, work: impl FnOnce(&EtcdKv) -> R + Send + 'static) -> R {
        let kv = Arc::clone(&self.kv);
        tokio::task::spawn_blocking(move || work(&kv)).await.expect("it does not panic")
    }

    /// Gives the lead back.
    async fn resign(mut self) {
        self.keeping.shutdown().await;
        self.pen.tenure.end("it resigns");
        self.lease.end(&self.pen.link).await;
    }

    /// Is gone, as after a crash; etcd learns of it when the lease ends, or, to save time, now.
    async fn crash(mut self, etcd: &Etcd) {
        self.keeping.shutdown().await;
        etcd.ctl(&["lease", "revoke", &format!("{:x}", self.lease.id)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_on_etcd_conforms_and_others_have_the_same_state() {
    let etcd = Etcd::start(3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let first = Node::new(&etcd.state(), dirs[0].path()).await;
    let second = Node::new(&etcd.state(), dirs[1].path()).await;
    let leading = first.lead().await;
    leading.with(|kv| conformance::check(kv)).await;
    let rows = leading.with(|kv| conformance::rows(kv)).await;
    leading.resign().await;
    let leading = second.lead().await;
    assert_eq!(leading.with(|kv| conformance::rows(kv)).await, rows);
    assert_eq!(first.cache.place(), second.cache.place());
}

/// Follows the log until it is as far as this.
async fn follow_to(node: &Node, index: u64) {
    eventually("it follows", async || {
        let _ = super::reader::catch_up(&node.link, &node.cache, WAIT).await;
        node.cache.place().index >= index
    })
    .await;
}
