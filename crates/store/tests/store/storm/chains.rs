//! A model of a store's units by PROTOCOL section 2 and the rules R1 to R6, in plain arrays: no extents, no
//! layers, no folding. Decisions that depend on folding are not tested, or either answer is accepted.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ClientId, Column, Generation, ObjectId, OperationNumber, Version};
use braid_store::*;

use crate::common::*;

/// Data units of a stripe.
pub(super) const K: usize = 3;
/// One version per data unit.
pub(super) type Cover = [Version; K];

/// A unit of a data or of a parity column.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// The settled version, or the base.
    pub(super) version: Version,
    bytes: Vec<u8>,
    cover: Cover,
    pub(super) pending: Option<Pending>,
    pub(super) owed: Vec<Owed>,
    pub(super) deltas: Vec<Step>,
}

/// A stripe write that may still be taken back.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) version: Version,
    cover: Cover,
    from: usize,
    own: Vec<u8>,
}

/// A unit write that the parity columns may not have yet.
#[derive(Debug, Clone)]
pub(super) struct Owed {
    pub(super) version: Version,
    client: ClientId,
    operation: OperationNumber,
    from: usize,
    own: Vec<u8>,
    /// True if the version was owed when the store was opened.
    doubt: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Step {
    column: Column,
    data: u8,
    pub(super) from: Version,
    to: Version,
    client: ClientId,
    operation: OperationNumber,
    at: usize,
    own: Vec<u8>,
    pub(super) settled: bool,
}

/// State that is remembered of a client.
#[derive(Debug, Clone, Default)]
struct Client {
    watermark: OperationNumber,
    done: BTreeMap<(OperationNumber, u64, u8), Version>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    pub(super) g: Generation,
    pub(super) units: BTreeMap<u64, Unit>,
    clients: BTreeMap<ClientId, Client>,
    joining: bool,
    /// The units that the object's column has caught up with since it joined.
    ready: BTreeSet<u64>,
}

/// Objects, all of one partition. They exist from the start.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) objects: BTreeMap<ObjectId, Object>,
}

/// An answer, and true if it took a record.
type Answer = (Result<MutationOutcome, Error>, bool);

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("small")
}

fn own(body: &Body, from: u32, to: u32) -> Vec<u8> {
    match body {
        Body::Bytes { payload, .. } => payload.to_vec(),
        Body::Hole => vec![0; size(to - from)],
    }
}

fn padded(cover: &[Version]) -> Cover {
    std::array::from_fn(|data| cover.get(data).copied().unwrap_or(Version::ZERO))
}

fn xor(to: &mut [u8], at: usize, own: &[u8]) {
    to[at..at + own.len()].iter_mut().zip(own).for_each(|(to, own)| *to ^= own);
}

impl Default for Unit {
    fn default() -> Unit {
        Unit {
            version: Version::ZERO,
            bytes: vec![0; size(UNIT)],
            cover: [Version::ZERO; K],
            pending: None,
            owed: Vec::new(),
            deltas: Vec::new(),
        }
    }
}

impl Pending {
    fn touches(&self, data: u8) -> bool {
        self.cover[usize::from(data)] == self.version
    }
}

impl Unit {
    pub(super) fn tip(&self) -> Version {
        let pending = self.pending.as_ref().map_or(self.version, |pending| pending.version);
        self.owed.last().map_or(pending, |owed| owed.version)
    }

    /// The newest version of a data unit that is included here.
    pub(super) fn chain_tip(&self, data: u8) -> Version {
        match &self.pending {
            Some(pending) if pending.touches(data) => pending.version,
            _ => self.below_pending(data),
        }
    }

    fn below_pending(&self, data: u8) -> Version {
        let last = self.deltas.iter().rev().find(|delta| delta.data == data);
        last.map_or(self.cover[usize::from(data)], |delta| delta.to)
    }

    /// Returns true if a delta is newer than the versions that the pending one includes.
    fn is_above(&self, pending: &Pending, at: usize) -> bool {
        let delta = &self.deltas[at];
        let cover = pending.cover[usize::from(delta.data)];
        let first = self.deltas.iter().position(|d| d.data == delta.data && d.from == cover);
        !pending.touches(delta.data) && first.is_some_and(|first| at >= first)
    }

    /// The pending version's bytes without the deltas on top of it.
    fn with_pending(&self, pending: &Pending) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, delta) in self.deltas.iter().enumerate() {
            if !self.is_above(pending, at) {
                xor(&mut bytes, delta.at, &delta.own);
            }
        }
        bytes[pending.from..pending.from + pending.own.len()].copy_from_slice(&pending.own);
        bytes
    }

    fn settle(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let bytes = self.with_pending(&pending);
        let above: Vec<bool> = (0..self.deltas.len()).map(|at| self.is_above(&pending, at)).collect();
        let mut above = above.into_iter();
        self.deltas.retain(|_| above.next().expect("one for each"));
        (self.bytes, self.version, self.cover) = (bytes, pending.version, pending.cover);
    }

    fn settle_owed(&mut self, up_to: Version) {
        let Some(last) = self.owed.iter().position(|owed| owed.version == up_to) else { return };
        for owed in self.owed.drain(..=last) {
            self.bytes[owed.from..owed.from + owed.own.len()].copy_from_slice(&owed.own);
        }
        self.version = up_to;
    }

    /// Parity bytes and versions: the newest, or the settled ones.
    pub(super) fn cut(&self, newest: bool) -> (Cover, Vec<u8>) {
        let pending = self.pending.as_ref().filter(|_| newest);
        let (mut cover, mut bytes) = match pending {
            Some(pending) => (pending.cover, self.with_pending(pending)),
            None => (self.cover, self.bytes.clone()),
        };
        for (at, delta) in self.deltas.iter().enumerate() {
            let counts = pending.map_or(newest || delta.settled, |pending| self.is_above(pending, at));
            if counts {
                xor(&mut bytes, delta.at, &delta.own);
                cover[usize::from(delta.data)] = delta.to;
            }
        }
        (cover, bytes)
    }

    /// A data unit's versions, oldest first: each with true if it is settled, and its bytes.
    pub(super) fn versions(&self) -> Vec<(Version, bool, Vec<u8>)> {
        let mut bytes = self.bytes.clone();
        let mut all = vec![(self.version, true, bytes.clone())];
        let pending = self.pending.iter().map(|pending| (pending.version, pending.from, &pending.own));
        let owed = self.owed.iter().map(|owed| (owed.version, owed.from, &owed.own));
        for (version, from, own) in pending.chain(owed) {
            bytes[from..from + own.len()].copy_from_slice(own);
            all.push((version, false, bytes.clone()));
        }
        all.retain(|(version, ..)| !version.is_zero());
        all
    }

    /// The bytes that a reader of a data unit gets: no owed version.
    pub(super) fn shown(&self, want: Want) -> Vec<u8> {
        match &self.pending {
            Some(pending) if want == Want::Newest => self.with_pending(pending),
            _ => self.bytes.clone(),
        }
    }

    /// Number of data units that have deltas here.
    pub(super) fn chains(&self) -> usize {
        let chains: BTreeSet<u8> = self.deltas.iter().map(|delta| delta.data).collect();
        chains.len()
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.owed.iter().any(|owed| owed.doubt)
    }

    pub(super) fn is_unsettled(&self) -> bool {
        self.pending.is_some() || !self.owed.is_empty() || self.deltas.iter().any(|delta| !delta.settled)
    }
}

impl Object {
    pub(super) fn knows(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    pub(super) fn is_ready(&self, unit: u64) -> bool {
        !self.joining || self.ready.contains(&unit)
    }

    fn done(
        &mut self,
        client: ClientId,
        operation: (OperationNumber, u64, u8),
        version: Version,
        watermark: OperationNumber,
    ) {
        let known = self.clients.entry(client).or_default();
        if operation.0 >= known.watermark {
            known.done.insert(operation, version);
        }
        self.retire(client, watermark);
    }

    fn retire(&mut self, client: ClientId, watermark: OperationNumber) -> bool {
        let known = self.clients.entry(client).or_default();
        let news = watermark > known.watermark;
        known.watermark = known.watermark.max(watermark);
        known.done = known.done.split_off(&(known.watermark, 0, 0));
        news
    }

    fn forget(&mut self, client: ClientId, operation: (OperationNumber, u64, u8)) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.done.remove(&operation);
        }
    }

    fn unit_write(&mut self, write: &UnitWrite) -> Answer {
        let operation = (write.operation, write.unit, 0);
        let unit = self.units.entry(write.unit).or_default();
        if let Some(client) = self.clients.get(&write.client) {
            if let Some(&version) = client.done.get(&operation) {
                let settled = !unit.owed.iter().any(|owed| owed.version == version);
                return (Ok(MutationOutcome::Known { version, settled }), false);
            }
            if write.operation < client.watermark {
                return (Ok(MutationOutcome::Already), false);
            }
        }
        let tip = unit.tip();
        let same = (tip.g, tip.lease) == (write.g, write.lease);
        let made = Version { g: write.g, lease: write.lease, n: if same { tip.n + 1 } else { 1 } };
        let version = write.stamp.unwrap_or(made);
        if version <= tip {
            return (Ok(MutationOutcome::Older { tip }), false);
        }
        if unit.owed.len() >= OWED_MAX {
            return (Err(Error::Backlog(OWED_MAX)), false);
        }
        unit.settle();
        unit.owed.push(Owed {
            version,
            client: write.client,
            operation: write.operation,
            from: size(write.from),
            own: own(&write.body, write.from, write.to),
            doubt: false,
        });
        self.done(write.client, operation, version, write.watermark);
        (Ok(MutationOutcome::Owed { from: tip, version }), true)
    }

    fn delta(&mut self, delta: &Delta) -> Answer {
        let unit = self.units.entry(delta.unit).or_default();
        let (data, tip) = (delta.data, unit.chain_tip(delta.data));
        let stamp = unit.pending.as_ref().filter(|pending| pending.touches(data)).map(|p| p.version);
        let from = delta.from_version;
        let to = delta.to_version;
        let on_chain = unit.deltas.iter().any(|d| d.data == data && d.to == to);
        if to == unit.cover[usize::from(data)] || stamp == Some(to) || on_chain {
            return (Ok(MutationOutcome::Counted { tip }), false);
        }
        if from != unit.below_pending(data) && stamp != Some(from) {
            return (Err(Error::Chain { tip }), false);
        }
        if stamp == Some(from) {
            unit.settle();
        }
        unit.deltas.push(Step {
            column: delta.column,
            data,
            from,
            to,
            client: delta.client,
            operation: delta.operation,
            at: size(delta.from),
            own: own(&delta.body, delta.from, delta.to),
            settled: false,
        });
        let up_to = unit.deltas.iter().rposition(|d| d.data == data && d.to == delta.settled_to);
        for step in unit.deltas.iter_mut().take(up_to.map_or(0, |last| last + 1)) {
            step.settled |= step.data == data;
        }
        self.done(delta.client, (delta.operation, delta.unit, data), to, delta.watermark);
        (Ok(MutationOutcome::Counted { tip: to }), true)
    }

    fn write(&mut self, write: &Write) -> Answer {
        let unit = self.units.entry(write.unit).or_default();
        let mut own = own(&write.body, write.from, write.to);
        let version = write.stamp;
        let mut from = size(write.from);
        let cover = padded(&write.cover);
        if write.standing == Standing::Whole {
            own.splice(0..0, vec![0; std::mem::take(&mut from)]);
            own.resize(size(UNIT), 0);
        }
        if write.standing == Standing::Installed {
            unit.bytes = vec![0; size(UNIT)];
            unit.bytes[from..from + own.len()].copy_from_slice(&own);
            (unit.version, unit.cover, unit.pending) = (version, cover, None);
            let mut above = [false; K];
            unit.deltas.retain(|delta| {
                let data = usize::from(delta.data);
                above[data] |= delta.from == cover[data];
                above[data]
            });
            return (Ok(MutationOutcome::Applied), true);
        }
        let tip = unit.tip();
        if version == tip || version == unit.version {
            return (Ok(MutationOutcome::Already), false);
        }
        if version < tip {
            return (Ok(MutationOutcome::Older { tip }), false);
        }
        unit.settle_owed(tip);
        unit.settle();
        unit.pending = Some(Pending { version, cover, from, own });
        (Ok(MutationOutcome::Applied), true)
    }

    fn owed_settled(&mut self, unit: u64, up_to: Version) -> Answer {
        let unit = self.units.entry(unit).or_default();
        if unit.owed.iter().any(|owed| owed.version == up_to) {
            unit.settle_owed(up_to);
            return (Ok(MutationOutcome::Applied), true);
        }
        let settled = up_to <= unit.version;
        (if settled { Ok(MutationOutcome::Already) } else { Err(Error::Chain { tip: unit.tip() }) }, false)
    }

    /// A fence drops what is not settled on a joining column.
    fn drop_unsettled(&mut self) {
        let mut undone = Vec::new();
        for (&number, unit) in self.units.iter_mut().filter(|(_, unit)| unit.is_unsettled()) {
            unit.pending = None;
            undone.extend(unit.owed.drain(..).map(|owed| (owed.client, (owed.operation, number, 0))));
            let mut ended = BTreeSet::new();
            let (gone, stay): (Vec<_>, Vec<_>) = unit.deltas.drain(..).partition(|delta| {
                if !delta.settled {
                    ended.insert(delta.data);
                }
                ended.contains(&delta.data)
            });
            unit.deltas = stay;
            undone.extend(gone.iter().map(|delta| (delta.client, (delta.operation, number, delta.data))));
        }
        undone.into_iter().for_each(|(client, operation)| self.forget(client, operation));
    }

    fn verdict(&mut self, verdict: &UnitVerdict) -> bool {
        let unit = self.units.entry(verdict.unit).or_default();
        let mut undone = Vec::new();
        let mut changed = false;
        for &version in &verdict.forward {
            changed |= unit.owed.iter().any(|owed| owed.version == version);
            unit.settle_owed(version);
            if unit.pending.as_ref().is_some_and(|pending| pending.version == version) {
                unit.settle();
                changed = true;
            }
        }
        for &version in &verdict.back {
            if unit.pending.as_ref().is_some_and(|pending| pending.version == version) {
                unit.pending = None;
                changed = true;
            }
            if let Some(first) = unit.owed.iter().position(|owed| owed.version == version) {
                undone.extend(unit.owed.split_off(first).into_iter().map(|o| (o.client, o.operation, 0)));
            }
        }
        for &(column, version) in &verdict.cut_offs {
            let is_above = |delta: &Step| delta.column == column && delta.to > version;
            let (gone, stay): (Vec<_>, Vec<_>) =
                std::mem::take(&mut unit.deltas).into_iter().partition(is_above);
            unit.deltas = stay;
            undone.extend(gone.into_iter().map(|delta| (delta.client, delta.operation, delta.data)));
        }
        changed |= !undone.is_empty();
        for (client, operation, data) in undone {
            self.forget(client, (operation, verdict.unit, data));
        }
        changed
    }
}

impl Model {
    /// Apply a mutation and return the expected answer.
    pub(super) fn commit(&mut self, mutation: &Mutation) -> Answer {
        let applied = |changed| {
            (Ok(if changed { MutationOutcome::Applied } else { MutationOutcome::Already }), changed)
        };
        match mutation {
            Mutation::UnitWrite(write) => self.object(write.object).unit_write(write),
            Mutation::Delta(delta) => self.object(delta.object).delta(delta),
            Mutation::Write(write) => self.object(write.object).write(write),
            Mutation::OwedSettled { object, unit, up_to, .. } => {
                self.object(*object).owed_settled(*unit, *up_to)
            }
            Mutation::Verdict { object, units, .. } => {
                let object = self.object(*object);
                applied(units.iter().fold(false, |changed, unit| object.verdict(unit) | changed))
            }
            Mutation::Retire { object, client, watermark, .. } => {
                applied(self.object(*object).retire(*client, *watermark))
            }
            Mutation::Fence { object, g, joining, .. } => {
                let object = self.object(*object);
                let joins = joining.contains(attributes().column);
                object.ready.clear();
                (object.g, object.joining) = (*g, joins);
                if joins {
                    object.drop_unsettled();
                }
                applied(true)
            }
            Mutation::Ready { object, unit, units, .. } => {
                let object = self.object(*object);
                let all = *unit..unit + u64::from(*units);
                let news = all.fold(false, |news, unit| object.ready.insert(unit) | news);
                if !object.joining {
                    object.ready.clear();
                }
                applied(object.joining && news)
            }
            other => panic!("{other:?} is not modelled"),
        }
    }

    fn object(&mut self, id: ObjectId) -> &mut Object {
        self.objects.get_mut(&id).expect("it is there from the begin")
    }

    /// Notes that the store was reopened: owed versions are in doubt.
    pub(super) fn doubt(&mut self) {
        let units = self.objects.values_mut().flat_map(|object| object.units.values_mut());
        units.flat_map(|unit| &mut unit.owed).for_each(|owed| owed.doubt = true);
    }
}
