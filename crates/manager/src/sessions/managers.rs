//! The cluster's managers, and the members of the etcd that holds their state, as this manager knows them.
//!
//! Peers are told the list in each session's Welcome, and its mark with every reply. A manager whose state is
//! in its own directory is the only one: it tells no list, as it may not know the address at which others
//! reach it.

use braid_wire::control::{ManagerRow, MemberRow, managers_mark};

/// The managers and etcd's members, as far as they are known.
#[derive(Debug, Default)]
pub struct KnownManagers {
    /// Rows for status, the leader first.
    rows: Vec<ManagerRow>,
    members: Vec<MemberRow>,
    /// Addresses of the managers that vote in the etcd that Braid runs.
    voters: Vec<String>,
    /// Addresses that peers are told, the leader first; empty for the only manager.
    told: Vec<String>,
    mark: u32,
}

impl KnownManagers {
    /// This manager is the only one; it listens at this address.
    pub fn handle_alone(&mut self, address: String) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let row = ManagerRow { address, leads: true, silent_ms: 0, lag: 0, version };
        *self = KnownManagers { rows: vec![row], ..KnownManagers::default() };
    }

    /// The managers as the leader, which this one is, found them.
    pub fn handle_managers(&mut self, mut rows: Vec<ManagerRow>) {
        rows.sort_by(|a, b| b.leads.cmp(&a.leads).then_with(|| a.address.cmp(&b.address)));
        self.told = rows.iter().map(|row| row.address.clone()).collect();
        self.mark = managers_mark(&self.told);
        self.rows = rows;
    }

    /// The members of etcd as they answered last.
    pub fn handle_members(&mut self, members: Vec<MemberRow>) {
        self.members = members;
    }

    /// The managers that vote in the etcd that Braid runs: also one that is away is one of them.
    pub fn handle_voters(&mut self, voters: Vec<String>) {
        self.voters = voters;
    }

    /// A manager was taken out.
    pub fn handle_removed(&mut self, address: &str) {
        self.voters.retain(|voter| voter != address);
        self.members.retain(|member| member.name != address);
        let rows = self.rows.iter().filter(|row| row.address != address).cloned().collect();
        self.handle_managers(rows);
    }

    /// Addresses of the managers that vote in the etcd that Braid runs.
    pub fn voters(&self) -> &[String] {
        &self.voters
    }

    /// Rows of the managers, the leader first.
    pub fn rows(&self) -> &[ManagerRow] {
        &self.rows
    }

    /// Rows of etcd's members.
    pub fn members(&self) -> &[MemberRow] {
        &self.members
    }

    /// Addresses that peers are told.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Mark of these addresses.
    pub fn mark(&self) -> u32 {
        self.mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_told_the_leader_first_and_its_change_leaves_the_mark() {
        let row = |address: &str, leads| ManagerRow {
            address: address.to_owned(),
            leads,
            silent_ms: 0,
            lag: 0,
            version: String::new(),
        };
        let mut known = KnownManagers::default();
        known.handle_alone("h:1".to_owned());
        assert_eq!((known.rows().len(), known.told().len(), known.mark()), (1, 0, 0));
        known.handle_managers(vec![row("a:1", false), row("c:1", false), row("b:1", true)]);
        assert_eq!(known.told(), ["b:1", "a:1", "c:1"]);
        let mark = known.mark();
        known.handle_managers(vec![row("a:1", true), row("c:1", false), row("b:1", false)]);
        assert_eq!((known.told()[0].as_str(), known.mark()), ("a:1", mark));
        known.handle_managers(vec![row("a:1", true), row("b:1", false)]);
        assert_ne!(known.mark(), mark);
    }

    #[test]
    fn one_that_was_taken_out_is_told_to_nobody() {
        let mut known = KnownManagers::default();
        let row = |address: &str| ManagerRow {
            address: address.to_owned(),
            leads: address == "a:1",
            silent_ms: 0,
            lag: 0,
            version: String::new(),
        };
        known.handle_managers(vec![row("a:1"), row("b:1")]);
        known.handle_voters(vec!["a:1".to_owned(), "b:1".to_owned()]);
        known.handle_removed("b:1");
        assert_eq!((known.voters(), known.told()), (&["a:1".to_owned()][..], &["a:1".to_owned()][..]));
        assert_eq!(known.rows().len(), 1);
    }
}
