//! Completed operations per client, so that a repeated unit write or delta is answered, not executed again.

use std::collections::BTreeMap;

use braid_layout::{ClientId, OperationNumber, Version};

/// The known operations on an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dedup {
    clients: BTreeMap<ClientId, Client>,
    /// The number of operations of all clients.
    operations: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Client {
    /// The client repeats no operation below this one.
    watermark: OperationNumber,
    /// (operation, unit, data unit (0 at a data column)) and the version that was made.
    done: BTreeMap<Operation, Version>,
}

/// One operation on one unit: (operation, unit, data unit).
pub(crate) type Operation = (OperationNumber, u64, u8);

impl Dedup {
    /// The version that the operation made.
    pub(crate) fn find(&self, client: ClientId, operation: Operation) -> Option<Version> {
        self.clients.get(&client)?.done.get(&operation).copied()
    }

    /// Number of known operations and clients together.
    pub(crate) fn len(&self) -> usize {
        self.operations + self.clients.len()
    }

    /// Returns true if anything is known of `client`.
    pub(crate) fn knows(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// [`Dedup::len`] once `client` is known and its operations below the watermark are forgotten.
    pub(crate) fn len_after(&self, client: ClientId, watermark: OperationNumber) -> usize {
        let Some(known) = self.clients.get(&client) else { return self.len() + 1 };
        self.len() - known.done.range(..(watermark, 0, 0)).count()
    }

    /// Returns true if the client has retired the operation: it has the answer and will not repeat it.
    pub(crate) fn is_retired(&self, client: ClientId, operation: OperationNumber) -> bool {
        self.clients.get(&client).is_some_and(|client| operation < client.watermark)
    }

    /// Records that the operation made this version.
    pub(crate) fn add(&mut self, client: ClientId, operation: Operation, version: Version) {
        let client = self.clients.entry(client).or_default();
        if operation.0 >= client.watermark && client.done.insert(operation, version).is_none() {
            self.operations += 1;
        }
    }

    /// Forgets an operation whose version was taken back.
    pub(crate) fn forget(&mut self, client: ClientId, operation: Operation) {
        let known = self.clients.get_mut(&client);
        if known.is_some_and(|client| client.done.remove(&operation).is_some()) {
            self.operations -= 1;
        }
    }

    /// Returns true if [`Dedup::retire`] would change anything.
    pub(crate) fn is_news(&self, client: ClientId, watermark: OperationNumber) -> bool {
        let have = self.clients.get(&client);
        if watermark == OperationNumber::ALL {
            have.is_some()
        } else {
            have.map_or(OperationNumber::NONE, |have| have.watermark) < watermark
        }
    }

    /// Forgets the client's operations below `watermark`, which it will not repeat. The highest value forgets
    /// the client, as it never repeats anything.
    pub(crate) fn retire(&mut self, client: ClientId, watermark: OperationNumber) {
        if !self.is_news(client, watermark) {
            return;
        }
        if watermark == OperationNumber::ALL {
            self.operations -= self.clients.remove(&client).map_or(0, |gone| gone.done.len());
            return;
        }
        let client = self.clients.entry(client).or_default();
        client.watermark = watermark;
        let kept = client.done.split_off(&(watermark, 0, 0));
        self.operations -= std::mem::replace(&mut client.done, kept).len();
    }

    /// All clients: number, watermark, operations in order.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (ClientId, OperationNumber, &BTreeMap<Operation, Version>)> {
        self.clients.iter().map(|(&number, client)| (number, client.watermark, &client.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_until_they_are_retired() {
        let version = |n| Version { n, ..Version::ZERO };
        let mut dedup = Dedup::default();
        for operation in 1..5 {
            dedup.add(ClientId(7), (OperationNumber(operation), 0, 0), version(operation));
        }
        assert_eq!(dedup.find(ClientId(7), (OperationNumber(3), 0, 0)), Some(version(3)));
        assert_eq!(
            dedup.find(ClientId(7), (OperationNumber(3), 1, 0)),
            None,
            "another unit is another operation"
        );
        assert!(dedup.is_news(ClientId(7), OperationNumber(3)));
        dedup.retire(ClientId(7), OperationNumber(3));
        assert!(
            !dedup.is_news(ClientId(7), OperationNumber(3))
                && !dedup.is_news(ClientId(7), OperationNumber(2))
        );
        assert_eq!(dedup.len(), 3, "a client and two operations");
        assert_eq!(
            (
                dedup.len_after(ClientId(7), OperationNumber(4)),
                dedup.len_after(ClientId(8), OperationNumber(4))
            ),
            (2, 4)
        );
        assert_eq!(
            (
                dedup.find(ClientId(7), (OperationNumber(2), 0, 0)),
                dedup.find(ClientId(7), (OperationNumber(3), 0, 0))
            ),
            (None, Some(version(3)))
        );
        assert!(
            dedup.is_retired(ClientId(7), OperationNumber(2))
                && !dedup.is_retired(ClientId(7), OperationNumber(3))
                && !dedup.is_retired(ClientId(8), OperationNumber(2))
        );
        dedup.add(ClientId(7), (OperationNumber(1), 0, 0), version(9));
        assert_eq!(
            dedup.find(ClientId(7), (OperationNumber(1), 0, 0)),
            None,
            "what is retired does not come back"
        );
        dedup.forget(ClientId(7), (OperationNumber(3), 0, 0));
        assert_eq!(dedup.find(ClientId(7), (OperationNumber(3), 0, 0)), None);
        dedup.add(ClientId(7), (OperationNumber(4), 0, 0), version(9));
        assert_eq!(dedup.len(), 2, "what is known already counts once");
        dedup.retire(ClientId(7), OperationNumber::ALL);
        assert_eq!(dedup, Dedup::default());
    }
}
