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
}
