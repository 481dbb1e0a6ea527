//! The judgement on the drives' words: which of them to believe. Pure.
//!
//! A *word* is one drive's copy of one stream, as far as its frames follow each other. Frames are chained by
//! digests, so two words that have the same digest at a frame agree on all before it. No key outlives the
//! manager, so what one drive says alone cannot be proved; what two say alike is taken for certain.
//!
//! - Of one stream the version that most drives hold counts. The others are *altered*, and named with the
//!   first frame that differs. Only drives that have that frame count. If as many say one thing as another,
//!   nothing is decided.
//! - Of several streams the newest counts, by term and changes. But a word that stands alone, and is more
//!   than [`ALONE_MS`] ahead of what two drives agree on, is not believed unless it is asked for: the others
//!   may be old copies, or this one may lie.
//!   Nearer than that the word is left out, and said.
//! - What one drive has beyond what two agree on is the *tail*: the last seconds before the manager was lost.
//!   It is taken, and said to be uncertain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{DriveId, ObjectId};

use crate::catalogue::frame::{Age, Digest};

/// Maximum time that a word may be ahead of all others and still be believed, in milliseconds.
pub const ALONE_MS: u64 = 60_000;
/// Maximum time that a word may be behind before its drive is called stale, in milliseconds.
pub const STALE_MS: u64 = 10_000;

/// One frame of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub digest: Digest,
    pub age: Age,
    pub time_ms: u64,
    pub cut: bool,
    pub whole: bool,
}

/// One drive's copy of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub drive: DriveId,
    pub stream: ObjectId,
    /// The frames from the first one on, as far as they follow each other.
    pub frames: Vec<Seen>,
    /// Reason for which the frame after the last one is none; `None`: nothing follows.
    pub broken: Option<String>,
}

impl Word {
    /// Index of the last frame with which the rows are those of one state; `None`: the stream is not whole.
    fn end(&self) -> Option<usize> {
        let whole = self.frames.iter().position(|frame| frame.whole)?;
        self.frames.iter().rposition(|frame| frame.cut).filter(|end| *end >= whole)
    }
}

/// The operator's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trust {
    /// Believe this drive alone.
    pub believe: Option<DriveId>,
    /// Leave out what only one drive says, if two agree on anything.
    pub agreed_only: bool,
}

/// A fault of a drive's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The frame of this number differs from what is believed.
    Altered { frame: u64 },
    /// The frame of this number is none.
    Damaged { frame: u64, why: String },
    /// The drive's newest word is this far behind, in milliseconds.
    Stale { behind_ms: u64 },
    /// The drive's word is newer than what is believed by so much, and stands alone.
    Alone { ahead_ms: u64 },
}

/// The words that are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub stream: ObjectId,
    /// The drive to read the frames from.
    pub drive: DriveId,
    /// Number of frames to take.
    pub frames: u64,
    /// Number of these that at least two drives hold alike; 0: none.
    pub agreed: u64,
    /// Drives that hold these frames, or some from the first on.
    pub witnesses: Vec<DriveId>,
    pub age: Age,
    pub time_ms: u64,
    /// Changes, and the time they took in milliseconds, that only one drive knows.
    pub tail: Option<(u64, u64)>,
    pub faults: Vec<(DriveId, Fault)>,
}

impl Verdict {
    /// Returns true if at least two drives say all of it, and no drive says what is newer.
    pub fn is_certain(&self) -> bool {
        self.agreed > 0 && self.tail.is_none() && !self.leaves_out()
    }

    /// Returns true if what one drive alone says is newer, and is left out.
    pub fn leaves_out(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Alone { .. }))
    }
}

/// Reason for which nothing is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// No drive has a whole stream.
    Nothing,
    /// As many drives say one thing as another about this frame.
    Split { stream: ObjectId, frame: u64, one: Vec<DriveId>, other: Vec<DriveId> },
    /// One drive alone is far ahead of what others agree on.
    Alone { drive: DriveId, ahead_ms: u64, others: Vec<DriveId> },
}

/// Words of one stream that agree, the longest first.
struct Group<'a> {
    words: Vec<(&'a Word, usize)>,
}

impl Group<'_> {
    fn longest(&self) -> (&Word, usize) {
        self.words[0]
    }

    /// Last frame that two drives hold alike.
    fn agreed(&self) -> Option<usize> {
        self.words.get(1).map(|(_, end)| *end)
    }

    /// Returns true if one drive has frames beyond those. Their heads are that drive's word: whether there
    /// are any is told by their place alone.
    fn has_tail(&self) -> bool {
        self.agreed().is_some_and(|agreed| agreed < self.longest().1)
    }

    fn newest(&self) -> Seen {
        let (word, end) = self.longest();
        word.frames[end]
    }

    fn newest_agreed(&self) -> Option<Seen> {
        self.agreed().map(|end| self.longest().0.frames[end])
    }

    fn drives(&self) -> Vec<DriveId> {
        self.words.iter().map(|(word, _)| word.drive).collect()
    }
}

/// Decides what to believe.
pub fn judge(words: &[Word], trust: &Trust) -> Result<Verdict, Undecided> {
    let mut faults = damaged(words);
    let mut groups = Vec::new();
    let mut splits = Vec::new();
    let mut streams: BTreeMap<ObjectId, Vec<(&Word, usize)>> = BTreeMap::new();
    for word in words {
        if trust.believe.is_none_or(|drive| drive == word.drive)
            && let Some(end) = word.end()
        {
            streams.entry(word.stream).or_default().push((word, end));
        }
    }
    for (stream, words) in streams {
        let (group, split) = version(stream, words, &mut faults);
        groups.push(group);
        splits.extend(split);
    }
    let chosen = choose(&groups, trust, &mut faults)?;
    let split = splits.into_iter().find(|(age, _)| *age >= chosen.newest().age);
    if let Some((_, split)) = split {
        return Err(split);
    }
    verdict(chosen, &groups, trust, faults)
}

/// Chooses among the streams.
fn choose<'a, 'b>(
    groups: &'b [Group<'a>],
    trust: &Trust,
    faults: &mut Vec<(DriveId, Fault)>,
) -> Result<&'b Group<'a>, Undecided> {
    let newest = groups.iter().max_by_key(|group| group.newest().age).ok_or(Undecided::Nothing)?;
    let agreed = groups.iter().filter(|group| group.agreed().is_some());
    let Some(agreed) = agreed.max_by_key(|group| group.newest_agreed().map(|seen| seen.age)) else {
        return Ok(newest);
    };
    let said = agreed.newest_agreed().unwrap_or_else(|| agreed.newest());
    let taken = if trust.agreed_only { said } else { agreed.newest() };
    let is_newer = !std::ptr::eq(newest, agreed) && newest.newest().age > taken.age;
    for loudest in [agreed.has_tail().then_some(agreed), is_newer.then_some(newest)].into_iter().flatten() {
        let ahead_ms = loudest.newest().time_ms.saturating_sub(said.time_ms);
        let is_far = ahead_ms > ALONE_MS;
        let drive = loudest.longest().0.drive;
        if is_far && !trust.agreed_only {
            let others = agreed.drives().into_iter().filter(|other| *other != drive).collect();
            return Err(Undecided::Alone { drive, ahead_ms, others });
        }
        // A tail of the same stream is taken, or left out because that is asked for; another stream is left
        // out.
        if is_far || is_newer && std::ptr::eq(loudest, newest) {
            faults.push((drive, Fault::Alone { ahead_ms }));
        }
    }
    // While a new stream is begun, what changes goes into the old one too: it is as new.
    Ok(agreed)
}

fn verdict(
    chosen: &Group<'_>,
    groups: &[Group<'_>],
    trust: &Trust,
    mut faults: Vec<(DriveId, Fault)>,
) -> Result<Verdict, Undecided> {
    let (word, longest) = chosen.longest();
    let end = if trust.agreed_only { chosen.agreed().unwrap_or(longest) } else { longest };
    let last = word.frames[end];
    let tail = chosen.agreed().filter(|agreed| *agreed < end).map(|agreed| {
        let said = word.frames[agreed];
        let changes = last.age.changes.saturating_sub(said.age.changes);
        (changes, last.time_ms.saturating_sub(said.time_ms))
    });
    let mut newest: BTreeMap<DriveId, u64> = BTreeMap::new();
    for (word, end) in groups.iter().flat_map(|group| &group.words) {
        let time_ms = newest.entry(word.drive).or_default();
        *time_ms = word.frames[*end].time_ms.max(*time_ms);
    }
    let bad: BTreeSet<DriveId> = faults.iter().map(|(drive, _)| *drive).collect();
    for (drive, time_ms) in newest {
        let behind_ms = last.time_ms.saturating_sub(time_ms);
        if behind_ms > STALE_MS && !bad.contains(&drive) {
            faults.push((drive, Fault::Stale { behind_ms }));
        }
    }
    let count = |end: usize| u64::try_from(end).unwrap_or(u64::MAX).saturating_add(1);
    Ok(Verdict {
        stream: word.stream,
        drive: word.drive,
        frames: count(end),
        agreed: chosen.agreed().map_or(0, |agreed| count(agreed.min(end))),
        witnesses: chosen.drives(),
        age: last.age,
        time_ms: last.time_ms,
        tail,
        faults,
    })
}

/// The version of a stream that most drives hold, and the first frame about which nothing is decided. At each
/// frame only the words that have it count: a short one agrees with all versions, and tells nothing of which
/// is true.
fn version<'a>(
    stream: ObjectId,
    mut words: Vec<(&'a Word, usize)>,
    faults: &mut Vec<(DriveId, Fault)>,
) -> (Group<'a>, Option<(Age, Undecided)>) {
    words.sort_by_key(|(word, end)| (Reverse(*end), word.drive));
    let drives = |words: &[(&Word, usize)]| words.iter().map(|(word, _)| word.drive).collect::<Vec<_>>();
    let age = |words: &[(&Word, usize)]| words.first().map(|(word, end)| word.frames[*end].age);
    let drive = |words: &[(&Word, usize)]| words.first().map(|(word, _)| word.drive);
    let frames = words.first().map_or(0, |(_, end)| *end + 1);
    let mut split = None;
    for n in 0..frames {
        let mut said: BTreeMap<Digest, Vec<(&Word, usize)>> = BTreeMap::new();
        for word in words.iter().filter(|(_, end)| *end >= n) {
            said.entry(word.0.frames[n].digest).or_default().push(*word);
        }
        let mut said: Vec<Vec<(&Word, usize)>> = said.into_values().collect();
        said.sort_by_key(|words| (Reverse((words.len(), age(words))), drive(words)));
        let frame = u64::try_from(n).unwrap_or(u64::MAX);
        let mut said = said.into_iter();
        let Some(most) = said.next() else { break };
        for other in said {
            words.retain(|(word, _)| !other.iter().any(|(gone, _)| gone.drive == word.drive));
            let others = drives(&other);
            if other.len() < most.len() {
                faults.extend(others.into_iter().map(|drive| (drive, Fault::Altered { frame })));
            } else if split.is_none() {
                let newest = age(&most).max(age(&other)).unwrap_or_default();
                split = Some((newest, Undecided::Split { stream, frame, one: drives(&most), other: others }));
            }
        }
    }
    (Group { words }, split)
}

fn damaged(words: &[Word]) -> Vec<(DriveId, Fault)> {
    let of = |word: &Word| {
        let frame = u64::try_from(word.frames.len()).unwrap_or(u64::MAX);
        word.broken.clone().map(|why| (word.drive, Fault::Damaged { frame, why }))
    };
    words.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word whose frames have these contents, one letter each, a second apart; the second ends the picture.
    fn word(drive: u128, stream: u64, contents: &str) -> Word {
        later(drive, stream, contents, 0)
    }

    fn later(drive: u128, stream: u64, contents: &str, from_ms: u64) -> Word {
        let mut digest = [0u8; 32];
        let frame = |(n, letter): (usize, u8)| {
            let n = u64::try_from(n).unwrap();
            // As a chain: a letter changes all digests after it.
            digest[0] = digest[0].wrapping_mul(31).wrapping_add(letter);
            let age = Age { term: 1, changes: from_ms / 1000 + n };
            let time_ms = from_ms + 1000 * n;
            Seen { digest: Digest(digest), age, time_ms, cut: n > 0, whole: n == 1 }
        };
        let frames = contents.bytes().enumerate().map(frame).collect();
        Word { drive: DriveId(drive), stream: ObjectId(stream), frames, broken: None }
    }

    fn decide(words: &[Word]) -> Result<Verdict, Undecided> {
        judge(words, &Trust::default())
    }

    #[test]
    fn what_all_say_is_certain() {
        let verdict = decide(&[word(1, 5, "abcd"), word(2, 5, "abcd"), word(3, 5, "abcd")]).unwrap();
        assert_eq!((verdict.frames, verdict.agreed, verdict.tail), (4, 4, None));
        assert_eq!(verdict.witnesses.len(), 3);
        assert!(verdict.faults.is_empty());
    }

    #[test]
    fn the_tail_that_one_drive_has_is_taken_and_said() {
        let words = [word(1, 5, "abc"), word(2, 5, "abcd"), word(3, 5, "ab")];
        let verdict = decide(&words).unwrap();
        assert_eq!((verdict.drive, verdict.frames, verdict.agreed), (DriveId(2), 4, 3));
        assert_eq!(verdict.tail, Some((1, 1000)));
        let agreed = judge(&words, &Trust { agreed_only: true, ..Trust::default() }).unwrap();
        assert_eq!((agreed.frames, agreed.agreed, agreed.tail), (3, 3, None));
    }

    /// Whoever writes a frame alone also writes its age and time.
    #[test]
    fn frames_of_one_drive_are_a_tail_whatever_their_heads_say() {
        let mut liar = word(2, 5, "abcd");
        liar.frames[3].age = Age { term: 0, changes: 0 };
        liar.frames[3].time_ms = 0;
        let words = [word(1, 5, "abc"), liar, word(3, 5, "abc")];
        let verdict = decide(&words).unwrap();
        assert_eq!((verdict.frames, verdict.agreed, verdict.tail), (4, 3, Some((0, 0))));
        let mut words = words;
        words[1].frames[3].time_ms = 2000 + ALONE_MS + 1;
        let refused = decide(&words);
        assert!(matches!(refused, Err(Undecided::Alone { drive: DriveId(2), .. })), "{refused:?}");
    }

    #[test]
    fn one_that_lies_is_outvoted_and_named() {
        let verdict = decide(&[word(1, 5, "abcd"), word(2, 5, "aXcdefg"), word(3, 5, "abcd")]).unwrap();
        assert_eq!((verdict.frames, verdict.agreed), (4, 4));
        assert_eq!(verdict.faults, [(DriveId(2), Fault::Altered { frame: 1 })]);
    }

    #[test]
    fn of_two_that_contradict_each_other_none_is_believed_unless_named() {
        let words = [word(1, 5, "abcd"), word(2, 5, "abXd")];
        let split = Undecided::Split {
            stream: ObjectId(5),
            frame: 2,
            one: vec![DriveId(1)],
            other: vec![DriveId(2)],
        };
        assert_eq!(decide(&words), Err(split));
        let named = judge(&words, &Trust { believe: Some(DriveId(2)), ..Trust::default() }).unwrap();
        assert_eq!((named.drive, named.agreed), (DriveId(2), 0));
    }

    /// A short word agrees with both: it is no vote for either.
    #[test]
    fn only_drives_that_have_the_frame_which_differs_count() {
        let mut words = vec![word(1, 5, "abcX"), word(2, 5, "abcY"), word(3, 5, "abc"), word(4, 5, "ab")];
        let decided = decide(&words);
        let Err(Undecided::Split { frame: 3, one, other, .. }) = decided else { panic!("{decided:?}") };
        assert_eq!(BTreeSet::from_iter([one, other].concat()), BTreeSet::from([DriveId(1), DriveId(2)]));
        words.push(word(5, 5, "abcY"));
        let verdict = decide(&words).unwrap();
        assert_eq!((verdict.frames, verdict.agreed), (4, 4));
        assert_eq!(verdict.faults, [(DriveId(1), Fault::Altered { frame: 3 })]);
    }

    /// Two that contradict each other later say the same up to there, as two others say otherwise.
    #[test]
    fn what_contradicts_itself_later_counts_where_it_agrees() {
        let words = [word(1, 5, "abX"), word(2, 5, "abX"), word(3, 5, "abcY"), word(4, 5, "abcZ")];
        let decided = decide(&words);
        assert!(matches!(decided, Err(Undecided::Split { frame: 2, .. })), "{decided:?}");
    }

    #[test]
    fn an_old_copy_is_named_and_does_not_count() {
        let words = [word(1, 4, "uv"), later(2, 5, "abcd", 50_000), later(3, 5, "abcd", 50_000)];
        let verdict = decide(&words).unwrap();
        assert_eq!((verdict.stream, verdict.agreed), (ObjectId(5), 4));
        assert_eq!(verdict.faults, [(DriveId(1), Fault::Stale { behind_ms: 52_000 })]);
    }

    #[test]
    fn one_alone_far_ahead_of_others_is_not_believed_unless_named() {
        let words = [word(1, 4, "uvw"), word(2, 4, "uvw"), later(3, 5, "abcd", 900_000)];
        let alone =
            Undecided::Alone { drive: DriveId(3), ahead_ms: 901_000, others: vec![DriveId(1), DriveId(2)] };
        assert_eq!(decide(&words), Err(alone));
        let named = judge(&words, &Trust { believe: Some(DriveId(3)), ..Trust::default() }).unwrap();
        assert_eq!(named.stream, ObjectId(5));
        let agreed = judge(&words, &Trust { agreed_only: true, ..Trust::default() }).unwrap();
        assert_eq!((agreed.stream, agreed.agreed), (ObjectId(4), 3));
        assert_eq!(agreed.faults[0], (DriveId(3), Fault::Alone { ahead_ms: 901_000 }));
    }

    #[test]
    fn a_stream_that_is_just_begun_does_not_replace_the_one_that_two_hold() {
        let begun = later(1, 6, "a", 2000);
        let words = [word(1, 5, "abcd"), word(2, 5, "abcd"), begun, later(2, 6, "ab", 2000)];
        let verdict = decide(&words).unwrap();
        assert_eq!((verdict.stream, verdict.agreed, verdict.is_certain()), (ObjectId(5), 4, true));
    }

    #[test]
    fn a_newer_stream_of_one_drive_is_left_out_and_said() {
        let words = [word(1, 5, "abcd"), word(2, 5, "abcd"), later(2, 6, "abc", 3000)];
        for agreed_only in [false, true] {
            let verdict = judge(&words, &Trust { agreed_only, ..Trust::default() }).unwrap();
            assert_eq!((verdict.stream, verdict.agreed, verdict.tail), (ObjectId(5), 4, None));
            assert_eq!(verdict.faults, [(DriveId(2), Fault::Alone { ahead_ms: 2000 })]);
            assert!(!verdict.is_certain());
        }
    }

    #[test]
    fn a_stream_that_is_not_whole_or_has_a_bad_frame_ends_there() {
        assert_eq!(decide(&[word(1, 5, "a")]), Err(Undecided::Nothing));
        let mut bad = word(1, 5, "abc");
        bad.broken = Some("its digest is wrong".to_owned());
        let verdict = decide(&[bad, word(2, 5, "abcde")]).unwrap();
        assert_eq!((verdict.frames, verdict.agreed), (5, 3));
        let Fault::Damaged { frame: 3, .. } = verdict.faults[0].1 else { panic!("{verdict:?}") };
    }
}
