//! A client process's connection to its cluster.

use braid_client::{Client, Config};

use crate::error::{Doing, Error};

/// A client that connects when it is first needed, and is kept for the next jobs.
#[derive(Debug)]
pub(crate) struct Connected {
    config: Config,
    client: Option<Client>,
}

impl Connected {
    /// A client of the cluster that `config` names.
    pub(crate) fn new(config: Config) -> Connected {
        Connected { config, client: None }
    }

    /// The client, which is connected.
    pub(crate) async fn client(&mut self) -> Result<Client, Error> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::connect(self.config.clone()).await.doing("connect a client")?;
        Ok(self.client.insert(client).clone())
    }
}
