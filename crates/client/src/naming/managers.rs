//! Managers that leave the cluster.

use braid_wire::control::RemoveManager;

use crate::client::Client;
use crate::error::Result;

impl Client {
    /// Takes a manager that is lost out of the cluster, for ever: by its address, or the host part of that.
    pub async fn remove_manager(&self, address: &str) -> Result<()> {
        let subject = format!("manager {address}");
        self.ask_done(&subject, RemoveManager { address: address.to_owned() }).await
    }
}
