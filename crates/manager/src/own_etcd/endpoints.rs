//! Where the members of the managers' etcd are, as it changes while a manager runs.
//!
//! What: all clones share one list. The host that begins a cluster knows its own etcd alone at first; whoever
//! follows the members ([`Endpoints::set`]) has all that ask etcd know those that joined since.

use std::sync::{Arc, Mutex, PoisonError};

/// Addresses of etcd's members for managers, `host:port`; this host's first.
#[derive(Debug, Clone)]
pub struct Endpoints(Arc<Mutex<Arc<[String]>>>);

impl Endpoints {
    /// A list of its own.
    pub fn new(endpoints: Vec<String>) -> Endpoints {
        Endpoints(Arc::new(Mutex::new(endpoints.into())))
    }

    /// The addresses now.
    pub fn now(&self) -> Arc<[String]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over the addresses for all clones.
    pub fn set(&self, endpoints: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = endpoints.into();
    }
}

impl Default for Endpoints {
    fn default() -> Endpoints {
        Endpoints::new(Vec::new())
    }
}
