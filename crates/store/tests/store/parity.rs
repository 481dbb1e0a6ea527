//! A parity unit (PROTOCOL R5, R6) against a plain model: data units that keep every version's bytes. In
//! every state the parity's bytes for a cover are the xor of the data units at these versions.

use braid_layout::{ClientId, Column, ColumnMask, Generation, Lease, ObjectId, OperationNumber, Version};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;

mod cut_offs;
const O: ObjectId = ObjectId(1);
/// Data units of a stripe.
const K: u8 = 3;
const BYTES: u32 = 16 << 10;

#[derive(Debug, Clone)]
enum Step {
    /// A unit write's delta.
    Delta {
        data: u8,
        from: u32,
        length: u32,
        settled: bool,
    },
    /// The newest delta of a chain again.
    Again {
        data: u8,
    },
    /// A delta that skips a version.
    Broken {
        data: u8,
    },
    /// A stripe write of some data units.
    Stripe {
        touched: u8,
        from: u32,
        length: u32,
    },
    /// The pending stripe write is settled or taken back.
    Verdict {
        forward: bool,
    },
    /// A lost column's unsettled versions are cut off.
    CutOff {
        data: u8,
    },
    /// A base is installed, as a rebuild does.
    Install,
    Reopen {
        killed: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BYTES, prop_oneof![1..300_u32, 4000..BYTES]);
    prop_oneof![
        16 => (0..K, range.clone(), 0..3_u8).prop_map(|(data, (from, length), settled)| Step::Delta {
            data, from, length, settled: settled > 0,
        }),
        2 => (0..K).prop_map(|data| Step::Again { data }),
        1 => (0..K).prop_map(|data| Step::Broken { data }),
        3 => (1..1_u8 << K, range).prop_map(|(touched, (from, length))| Step::Stripe { touched, from, length }),
        2 => any::<bool>().prop_map(|forward| Step::Verdict { forward }),
        1 => (0..K).prop_map(|data| Step::CutOff { data }),
        1 => Just(Step::Install),
        2 => any::<bool>().prop_map(|killed| Step::Reopen { killed }),
    ]
}

/// A data unit: its versions that can still be read, oldest first, each with its bytes.
#[derive(Debug, Clone)]
struct Chain {
    versions: Vec<(Version, Vec<u8>)>,
    /// Number of the versions that are settled.
    settled: usize,
}

#[derive(Debug, Clone)]
struct Pending {
    stamp: Version,
    touched: u8,
    /// Per data unit, the version that the stripe write is based on.
    below: Vec<usize>,
}

struct Run {
    dir: tempfile::TempDir,
    store: Store,
    chains: Vec<Chain>,
    pending: Option<Pending>,
    n: u64,
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("small")
}

impl Chain {
    fn tip(&self) -> Version {
        self.versions.last().expect("a version").0
    }

    fn overlaid(&self, from: u32, own: &[u8]) -> Vec<u8> {
        let mut bytes = self.versions.last().expect("a version").1.clone();
        bytes[size(from)..size(from) + own.len()].copy_from_slice(own);
        bytes
    }
}

impl Run {
    fn new() -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(dir.path(), options());
        store.commit(create(1)).expect("create");
        let unwritten = Chain { versions: vec![(Version::ZERO, vec![0; size(BYTES)])], settled: 1 };
        Run { dir, store, chains: vec![unwritten; usize::from(K)], pending: None, n: 0 }
    }

    fn next(&mut self) -> Version {
        self.n += 1;
        version(1, self.n)
    }

    fn chain(&mut self, data: u8) -> &mut Chain {
        &mut self.chains[usize::from(data)]
    }

    fn delta(&self, data: u8, from: u32, bytes: &[u8], versions: (Version, Version)) -> Delta {
        Delta {
            partition: P,
            object: O,
            unit: 0,
            from,
            to: from + u32::try_from(bytes.len()).expect("small"),
            column: Column(data + 1),
            data,
            from_version: versions.0,
            to_version: versions.1,
            end: end_of(versions.1),
            client: ClientId(5),
            operation: OperationNumber(versions.1.n),
            watermark: OperationNumber::NONE,
            g: Generation(1),
            settled_to: Version::ZERO,
            body: body(from, bytes),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Delta { data, from, length, settled } => self.unit_write(data, from, length, settled),
            Step::Again { data } => {
                let tip = self.chain(data).tip();
                if !tip.is_zero() {
                    let again = self.delta(data, 0, &[1, 2, 3], (Version::ZERO, tip));
                    let answer = self.store.commit(Mutation::Delta(again)).expect("again");
                    assert_eq!(answer, MutationOutcome::Counted { tip });
                }
            }
            Step::Broken { data } => {
                let tip = self.chain(data).tip();
                let beyond = version(1, self.n + 100);
                let broken = self.delta(data, 0, &[1], (beyond, version(1, self.n + 101)));
                let answer = self.store.commit(Mutation::Delta(broken));
                assert!(matches!(answer, Err(Error::Chain { tip: told }) if told == tip), "{answer:?}");
            }
            Step::Stripe { touched, from, length } => self.stripe(touched, from, length),
            Step::Verdict { forward } => self.verdict(forward),
            Step::CutOff { data } => self.cut_off(data),
            Step::Install => self.install(),
            Step::Reopen { killed } => self.reopen(killed),
        }
    }

    fn unit_write(&mut self, data: u8, from: u32, length: u32, settled: bool) {
        let to = self.next();
        let own = pattern(to.n, size((from + length).min(BYTES) - from));
        let chain = self.chain(data);
        let tip = chain.tip();
        let before = chain.versions.last().expect("a version").1.clone();
        let after = chain.overlaid(from, &own);
        let changed: Vec<u8> = before.iter().zip(&after).map(|(old, new)| old ^ new).collect();
        let bytes = &changed[size(from)..size(from) + own.len()];
        let mut delta = self.delta(data, from, bytes, (tip, to));
        if settled {
            delta.settled_to = to;
        }
        let answer = self.store.commit(Mutation::Delta(delta)).expect("a delta");
        assert_eq!(answer, MutationOutcome::Counted { tip: to });
        // A delta that starts from the stamp settles the stripe write.
        if self.pending.as_ref().is_some_and(|p| p.stamp == tip) {
            self.settle();
        }
        let chain = self.chain(data);
        chain.versions.push((to, after));
        if settled {
            chain.settled = chain.versions.len();
        }
    }

    fn stripe(&mut self, touched: u8, from: u32, length: u32) {
        // C1: the stripe write settles the versions below it.
        self.settle();
        let stamp = self.next();
        let to = (from + length).min(BYTES);
        let below = self.chains.iter().map(|chain| chain.versions.len()).collect();
        let own = pattern(stamp.n, size(to - from));
        let mut cover = Vec::new();
        for (data, chain) in (0..K).zip(&mut self.chains) {
            if touched >> data & 1 == 1 {
                let new: Vec<u8> = own.iter().map(|byte| byte.wrapping_add(data)).collect();
                let bytes = chain.overlaid(from, &new);
                chain.versions.push((stamp, bytes));
            }
            cover.push(chain.tip());
        }
        let bytes = self.xor(&cover)[size(from)..size(to)].to_vec();
        let mut write = counting(write(1, 0, from, to, stamp), WriteKind::StripeParity, cover);
        (write.body, write.columns) = (body(from, &bytes), ColumnMask(u64::from(touched) << 1));
        assert_eq!(
            self.store.commit(Mutation::Write(write)).expect("stripe write"),
            MutationOutcome::Applied
        );
        self.pending = Some(Pending { stamp, touched, below });
    }

    /// The pending stripe write is settled, and with it everything that its cover includes.
    fn settle(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        for (data, chain) in (0..K).zip(&mut self.chains) {
            let touched = pending.touched >> data & 1 == 1;
            let base = pending.below[usize::from(data)] - usize::from(!touched);
            chain.versions.drain(..base);
            chain.settled = chain.settled.saturating_sub(base).max(1);
        }
    }

    fn verdict(&mut self, forward: bool) {
        let Some(pending) = self.pending.clone() else { return };
        let (yes, no) = if forward { (vec![pending.stamp], vec![]) } else { (vec![], vec![pending.stamp]) };
        let units = vec![UnitVerdict { unit: 0, forward: yes, back: no, cut_offs: vec![] }];
        let verdict = Mutation::Verdict { partition: P, object: O, g: Generation(1), units };
        assert_eq!(self.store.commit(verdict).expect("verdict"), MutationOutcome::Applied);
        if forward {
            self.settle();
        } else {
            self.pending = None;
            for (data, chain) in (0..K).zip(&mut self.chains) {
                if pending.touched >> data & 1 == 1 {
                    chain.versions.truncate(pending.below[usize::from(data)]);
                }
            }
        }
    }

    fn cut_off(&mut self, data: u8) {
        if self.pending.is_some() {
            return;
        }
        let chain = self.chain(data);
        let version = chain.versions[chain.settled - 1].0;
        let count = chain.settled;
        let news = chain.versions.len() > count;
        let cut_offs = vec![(Column(data + 1), version)];
        let units = vec![UnitVerdict { unit: 0, forward: vec![], back: vec![], cut_offs }];
        let answer = self
            .store
            .commit(Mutation::Verdict { partition: P, object: O, g: Generation(1), units })
            .expect("cut");
        assert_eq!(answer, if news { MutationOutcome::Applied } else { MutationOutcome::Already });
        self.chain(data).versions.truncate(count);
    }

    fn install(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let cover: Vec<Version> =
            self.chains.iter().map(|chain| chain.versions[chain.settled - 1].0).collect();
        let stamp = cover.iter().copied().max().unwrap_or(Version::ZERO);
        if stamp.is_zero() {
            return;
        }
        let bytes = self.xor(&cover);
        let base = Write { standing: Standing::Installed, ..write(1, 0, 0, BYTES, stamp) };
        let write = Write { body: body(0, &bytes), ..counting(base, WriteKind::ParityBase, cover) };
        let answer = self.store.commit(Mutation::Write(write)).expect("install");
        assert!(matches!(answer, MutationOutcome::Applied | MutationOutcome::Already), "{answer:?}");
        for chain in &mut self.chains {
            chain.versions.drain(..chain.settled - 1);
            chain.settled = 1;
        }
    }

    fn reopen(&mut self, killed: bool) {
        let dir = tempfile::tempdir().expect("a directory");
        if killed {
            self.store.commit(Mutation::Flush).expect("flush");
            copy(self.dir.path(), dir.path());
            self.store.close().expect("close");
        } else {
            self.store.close().expect("close");
            copy(self.dir.path(), dir.path());
        }
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
        (self.dir, self.store) = (dir, store);
    }

    /// The xor of the data units at these versions.
    fn xor(&self, cover: &[Version]) -> Vec<u8> {
        let mut out = vec![0; size(BYTES)];
        for (chain, asked) in self.chains.iter().zip(cover) {
            let found = chain.versions.iter().find(|(version, _)| version == asked);
            let (_, bytes) = found.unwrap_or_else(|| panic!("{asked} in {:?}", chain.versions.len()));
            out.iter_mut().zip(bytes).for_each(|(to, from)| *to ^= from);
        }
        out
    }

    fn check(&self) {
        let view = |want| self.store.read(P, O, 0, 0..BYTES, want).expect("a view");
        let mut tips: Vec<Version> = self.chains.iter().map(Chain::tip).collect();
        let newest = view(Want::Newest);
        let cover = |mut cover: Vec<Version>| {
            cover.resize(usize::from(K), Version::ZERO);
            cover
        };
        assert_eq!(cover(newest.cover.clone()), tips);
        [Want::Newest, Want::Settled].into_iter().for_each(|want| assert_ends(&view(want)));
        assert_eq!(newest.pending, self.pending.is_some());
        let bytes = content(&self.store, 1, 0, 0, BYTES, Want::Newest).expect("read");
        assert!(bytes == self.xor(&tips), "newest");
        let settled = cover(view(Want::Settled).cover);
        let bytes = content(&self.store, 1, 0, 0, BYTES, Want::Settled).expect("read");
        assert!(bytes == self.xor(&settled), "settled");
        // Cuts between the settled versions and the tips: one chain is set back at a time.
        for (i, chain) in self.chains.iter().enumerate() {
            let touched = |p: &Pending| p.touched >> i & 1 == 1;
            if self.pending.as_ref().is_some_and(touched) {
                continue;
            }
            let first =
                self.pending.as_ref().map_or(chain.settled, |pending| pending.below[i].max(chain.settled));
            for (version, _) in &chain.versions[first - 1..] {
                let tip = std::mem::replace(&mut tips[i], *version);
                let view = self.store.read_cover(P, O, 0, 100..9000, &tips).expect("a cut");
                let bytes = read_stored(&view).expect("its bytes");
                if view.stored_bytes() == 8900 {
                    assert_eq!(view.blocks(), block_crcs(100, &bytes));
                    assert!(bytes == self.xor(&tips)[100..9000], "{tips:?}");
                }
                assert_ends(&view);
                assert_eq!(cover(view.cover), tips);
                tips[i] = tip;
            }
        }
        tips[0] = version(9, 9);
        let gone = self.store.read_cover(P, O, 0, 0..1, &tips);
        assert!(matches!(gone, Err(Error::Gone { .. })), "{gone:?}");
        self.store.verify_unit(P, O, 0).expect("verify");
        let stat = self.store.stat().expect("stat");
        assert_eq!(stat.live, self.store.partition(P).expect("partition").used, "the accounts agree");
    }
}

/// `PROPTEST_CASES` overrides the number of cases.
fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        default
    } else {
        ProptestConfig { cases: 48, ..default }
    }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn parity_equals_data_for_every_cut(steps in prop::collection::vec(step(), 1..150)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            if matches!(step, Step::Stripe { .. } | Step::Verdict { .. } | Step::Reopen { .. }) {
                run.check();
            }
        }
        run.check();
        run.reopen(false);
        run.check();
    }
}

#[test]
fn an_installed_base_is_compared_column_by_column() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let install = |cover: [u64; 2], byte: u8| {
        // The base is named like a cut: by the newest version that it includes.
        let write = write(1, 0, 0, BYTES, version(1, cover[0].max(cover[1])));
        let base = Write { standing: Standing::Installed, body: body(0, &vec![byte; size(BYTES)]), ..write };
        let write = counting(base, WriteKind::ParityBase, cover.map(|n| version(1, n)).to_vec());
        store.commit(Mutation::Write(write)).expect("answered")
    };
    let is = |byte| content(&store, 1, 0, 0, BYTES, Want::Settled).expect("read") == vec![byte; size(BYTES)];
    assert_eq!(install([3, 1], 1), MutationOutcome::Applied);
    assert_eq!(install([3, 1], 2), MutationOutcome::Already);
    assert_eq!(install([3, 3], 3), MutationOutcome::Applied, "another cover under the same name");
    assert!(is(3));
    let tip = version(1, 3);
    assert_eq!(install([3, 1], 4), MutationOutcome::Older { tip });
    assert_eq!(
        install([2, 9], 5),
        MutationOutcome::Older { tip },
        "newer in one column and older in another"
    );
    assert!(is(3));
    assert_eq!(install([4, 3], 6), MutationOutcome::Applied);
    assert!(is(6));
}

#[test]
fn settled_deltas_are_folded_in() {
    let mut run = Run::new();
    for i in 0..70 {
        run.unit_write(u8::try_from(i % 2).expect("small"), i * 100, 300, true);
    }
    run.store.commit(Mutation::Flush).expect("flush");
    let chain = &run.store.versions(P, O, 0..1).expect("versions")[0];
    assert_eq!(chain.entries.len(), 1, "a base was made");
    assert_eq!(chain.entries[0].kind, WriteKind::ParityBase);
    assert_eq!(run.store.unsettled(P, O).expect("list"), []);
    run.check();
    let tip = run.chains[0].tip();
    let last = run.delta(0, 0, &[0], (Version::ZERO, tip));
    let answer = run.store.commit(Mutation::Delta(last)).expect("late");
    assert_eq!(answer, MutationOutcome::Counted { tip });
    run.reopen(true);
    run.check();
}

#[test]
fn unsettled_deltas_are_listed_and_bounded() {
    let mut run = Run::new();
    for i in 0..DELTAS_MAX {
        run.unit_write(0, 0, 1 + u32::try_from(i).expect("small"), false);
    }
    assert_eq!(run.store.unsettled(P, O).expect("list"), [0]);
    let tips = &run.store.versions(P, O, 0..1).expect("versions")[0].tips;
    let up_to = run.chains[0].tip();
    assert_eq!(tips[..], [ChainTip { column: Column(1), version: up_to, end: end_of(up_to) }]);
    let more = run.delta(0, 0, &[1], (run.chains[0].tip(), version(1, 9999)));
    assert!(matches!(run.store.commit(Mutation::Delta(more.clone())), Err(Error::Backlog(DELTAS_MAX))));
    run.check();
    // Once the store is told which deltas are settled, it makes room for more.
    let settled =
        |g| Mutation::DeltasSettled { partition: P, object: O, g: Generation(g), unit: 0, data: 0, up_to };
    assert!(matches!(run.store.commit(settled(9)), Err(Error::StaleGeneration { .. })));
    assert_eq!(run.store.commit(settled(1)).expect("settled"), MutationOutcome::Applied);
    assert_eq!(run.store.commit(settled(1)).expect("again"), MutationOutcome::Already);
    assert_eq!(run.store.unsettled(P, O).expect("list"), []);
    run.store.commit(Mutation::Flush).expect("a fold comes between two commits");
    run.store.commit(Mutation::Flush).expect("flush");
    assert!(matches!(run.store.commit(Mutation::Delta(more)), Ok(MutationOutcome::Counted { .. })));
}

#[test]
fn who_retires_settles_the_deltas_of_its_lease() {
    let mut run = Run::new();
    for i in 0..3 {
        run.unit_write(i, 100, 300, false);
    }
    run.unit_write(0, 0, 700, false);
    let tip = run.chains[0].tip();
    let retire = |lease, n| settled(1, Version { lease: Lease(lease), n, ..tip });
    for (lease, n, outcome) in [(1, u64::MAX, MutationOutcome::Already), (0, tip.n, MutationOutcome::Applied)]
    {
        assert_eq!(run.store.commit(retire(tip.lease.0 + lease, n)).expect("retire"), outcome);
        assert_eq!(run.store.unsettled(P, O).expect("list"), [0], "not the last of this lease");
    }
    assert_eq!(run.store.commit(retire(tip.lease.0, tip.n + 1)).expect("all"), MutationOutcome::Applied);
    assert_eq!(run.store.unsettled(P, O).expect("list"), []);
    run.reopen(true);
    assert_eq!(run.store.unsettled(P, O).expect("list"), []);
    run.check();
}

#[test]
fn a_damaged_delta_is_named_and_not_folded() {
    let mut run = Run::new();
    run.unit_write(0, 0, 5000, false);
    run.store.close().expect("close");
    let dir = tempfile::tempdir().expect("a directory");
    copy(run.dir.path(), dir.path());
    let path = segments(dir.path()).pop().expect("a segment");
    let mut bytes = std::fs::read(&path).expect("read");
    // The delta's bytes are stored unchanged.
    let own = pattern(1, 5000);
    let at = bytes.windows(16).position(|window| window == &own[2000..2016]).expect("the payload");
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    (run.store, _) = open(dir.path());
    let store = &run.store;
    for want in [Want::Newest, Want::Exactly(version(9, 9))] {
        let read = store.read(P, O, 0, 0..100, want);
        assert!(matches!(read, Err(Error::Damaged { .. } | Error::Gone { .. })), "{read:?}");
    }
    assert!(store.verify_unit(P, O, 0).is_err());
    run.step(&Step::Again { data: 0 });
}
