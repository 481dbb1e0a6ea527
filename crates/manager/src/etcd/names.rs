//! The keys of a cluster in etcd: all begin with its prefix. Numbers are in hexadecimal, of fixed length, so
//! that keys sort as their numbers do.

/// The keys of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned() }
    }

    /// The mark that tells this state from others.
    pub(super) fn state(&self) -> String {
        format!("{}state", self.prefix)
    }

    /// The manager that leads.
    pub(super) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    /// The newest checkpoint.
    pub(super) fn head(&self) -> String {
        format!("{}head", self.prefix)
    }

    /// A record of the log.
    pub(super) fn record(&self, index: u64) -> String {
        format!("{}log/{index:016x}", self.prefix)
    }

    /// The end of the log's keys.
    pub(super) fn records_end(&self) -> String {
        format!("{}log0", self.prefix)
    }

    /// The first key of the parts of records from this one on.
    pub(super) fn parts_from(&self, index: u64) -> String {
        format!("{}part/{index:016x}/", self.prefix)
    }

    /// The end of the keys of parts.
    pub(super) fn parts_end(&self) -> String {
        format!("{}part0", self.prefix)
    }

    /// A part of the record of this leader.
    pub(super) fn part(&self, index: u64, leader: u64, number: u32) -> String {
        format!("{}part/{index:016x}/{leader:016x}/{number:08x}", self.prefix)
    }

    /// Beginning of the keys of a checkpoint's chunks begin with.
    pub(super) fn checkpoint(&self, index: u64, writer: u64) -> String {
        format!("{}checkpoint/{index:016x}-{writer:016x}/", self.prefix)
    }

    /// A chunk of a checkpoint.
    pub(super) fn chunk(&self, index: u64, writer: u64, number: u32) -> String {
        format!("{}{number:08x}", self.checkpoint(index, writer))
    }

    /// Beginning of the keys of all checkpoints begin with.
    pub(super) fn checkpoints(&self) -> String {
        format!("{}checkpoint/", self.prefix)
    }

    /// A manager that runs.
    pub(super) fn fellow(&self, address: &str) -> String {
        format!("{}managers/{address}", self.prefix)
    }

    /// Beginning of the keys of all managers begin with.
    pub(super) fn fellows(&self) -> String {
        format!("{}managers/", self.prefix)
    }
}

/// The end of the range of keys that begin with this.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1; // '/' becomes '0': no key has the byte 255
    }
    end
}
