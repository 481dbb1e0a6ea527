//! The clients that were heard lately, and those that are shut out. A pure machine: time is a parameter.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ClientId, TokenId};
use braid_wire::{Reason, Refusal};

/// Maximum number of clients that are remembered as heard.
const HEARD_MAX: usize = 4096;
/// Time, in milliseconds, after which a silent client is forgotten.
const FORGET_MS: u64 = 600_000;

/// The clients of a manager.
#[derive(Debug, Default)]
pub struct Clients {
    heard: BTreeMap<ClientId, Heard>,
    shut_out: BTreeSet<ClientId>,
}

#[derive(Debug)]
struct Heard {
    address: String,
    /// The token of the session in which it was heard.
    token: TokenId,
    at_ms: u64,
}

impl Clients {
    /// A client has sent a request from this address, in a session with this token.
    pub fn handle_request(&mut self, client: ClientId, token: TokenId, address: &str, now_ms: u64) {
        if client == ClientId::NONE {
            return;
        }
        if let Some(heard) = self.heard.get_mut(&client) {
            heard.at_ms = now_ms;
            heard.token = token;
            if heard.address != address {
                heard.address = address.to_owned();
            }
            return;
        }
        if self.heard.len() >= HEARD_MAX {
            self.heard.retain(|_, heard| now_ms < heard.at_ms + FORGET_MS);
        }
        if self.heard.len() < HEARD_MAX {
            self.heard.insert(client, Heard { address: address.to_owned(), token, at_ms: now_ms });
        }
    }

    /// Shuts a client out.
    pub fn shut_out(&mut self, client: ClientId) {
        self.shut_out.insert(client);
        self.heard.remove(&client);
    }

    /// Ok unless the client is shut out.
    pub fn check(&self, client: ClientId) -> Result<(), Refusal> {
        if self.shut_out.contains(&client) {
            let detail = format!("client {client} was shut out: start it anew, if it is to come back");
            return Err(Refusal::new(Reason::NotAllowed, detail));
        }
        Ok(())
    }

    /// The clients that were heard last in sessions with this token.
    pub fn with_token(&self, token: TokenId) -> Vec<ClientId> {
        let heard = self.heard.iter().filter(|(_, heard)| heard.token == token);
        heard.map(|(client, _)| *client).collect()
    }

    /// The clients that were heard lately, each with its address and the milliseconds since then, those heard
    /// last first.
    pub fn heard(&self, now_ms: u64) -> Vec<(ClientId, String, u64)> {
        let lately = self.heard.iter().filter(|(_, heard)| now_ms < heard.at_ms + FORGET_MS);
        let row = |(client, heard): (&ClientId, &Heard)| {
            (*client, heard.address.clone(), now_ms.saturating_sub(heard.at_ms))
        };
        let mut rows: Vec<_> = lately.map(row).collect();
        rows.sort_by_key(|(_, _, silent_ms)| *silent_ms);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_shut_out_stays_out_and_is_listed_no_more() {
        let mut clients = Clients::default();
        clients.handle_request(ClientId(1), TokenId(1), "a:1", 0);
        clients.handle_request(ClientId(2), TokenId(2), "b:1", 10);
        clients.handle_request(ClientId::NONE, TokenId(1), "c:1", 10);
        clients.handle_request(ClientId(1), TokenId(1), "a:2", 20);
        assert_eq!(clients.heard(30), [(ClientId(1), "a:2".into(), 10), (ClientId(2), "b:1".into(), 20)]);
        assert_eq!(clients.with_token(TokenId(2)), [ClientId(2)]);
        clients.shut_out(ClientId(1));
        assert!(clients.check(ClientId(1)).is_err() && clients.check(ClientId(2)).is_ok());
        assert_eq!(clients.heard(30).len(), 1);
        assert!(clients.heard(30 + FORGET_MS).is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut clients = Clients::default();
        for client in 1..=2 * HEARD_MAX as u64 {
            clients.handle_request(ClientId(client), TokenId(1), "a:1", 0);
        }
        assert_eq!(clients.heard(1).len(), HEARD_MAX);
        clients.handle_request(ClientId(u64::MAX), TokenId(1), "a:1", FORGET_MS);
        assert_eq!(clients.heard(FORGET_MS).len(), 1, "those that are silent for long make room");
    }
}
