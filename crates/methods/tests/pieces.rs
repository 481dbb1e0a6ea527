//! What: the answer for a file that is cut into pieces, in any order and anywhere, is that for the whole.
//! How: random content, cuts and orders; each piece's partial answer and ends are taken as a client does it.

use braid_methods::{
    Answer, Argument, Arguments, ArgumentsError, MethodError, Seams, SeamsError, parse, run_piece,
};
use proptest::prelude::*;

fn arguments(text: &str) -> Arguments {
    let one = |part: &str| {
        let (name, value) = part.split_once('=').expect("name=value");
        Argument { name: name.to_owned(), value: value.replace('~', " ") }
    };
    Arguments(text.split_whitespace().map(one).collect())
}

/// The answer for the content in pieces that end at `cuts`, taken in the order of `turns`.
fn in_pieces(method: &str, text: &str, content: &[u8], cuts: &[usize], turns: &[u32]) -> Answer {
    let program = parse(method, &arguments(text), content.len() as u64).expect("good arguments");
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (content.len() + 1)).collect();
    ends.extend([0, content.len()]);
    ends.sort_unstable();
    ends.dedup();
    let mut pieces: Vec<(u32, &[usize])> = ends
        .windows(2)
        .enumerate()
        .map(|(at, piece)| (turns.get(at).copied().unwrap_or_default(), piece))
        .collect();
    pieces.sort_by_key(|(turn, _)| *turn);
    let mut whole = program.begin();
    let mut seams = Seams::new(1 << 20);
    for (_, piece) in pieces {
        let mut running = program.begin();
        let bytes = &content[piece[0]..piece[1]];
        let edge = run_piece(&*program, &mut *running, piece[0] as u64, bytes).expect("it can be judged");
        whole.absorb(&running.partial()).expect("its own partial answer");
        for record in seams.add(edge).expect("the pieces fit") {
            whole.feed(record.from, &record.bytes).expect("it can be judged");
        }
    }
    if let Some(record) = seams.finish(content.len() as u64).expect("all has come") {
        whole.feed(record.from, &record.bytes).expect("it can be judged");
    }
    whole.finish().expect("all was seen")
}

/// Each method with arguments, and whether its content must be numbers.
const ASKED: &[&str] = &[
    "count",
    "count records=7",
    "grep pattern=a.*b",
    "grep pattern=A|^$ ignore-case=yes",
    "grep pattern=a invert=yes count=yes",
    "histogram to=20 bins=7",
    "histogram of=field field=2 delimiter=, from=-5 to=5",
    "sample count=5 seed=3",
    "sample count=3 records=16",
    "checksum",
    "tree blocks=4",
    "frequent-sets",
    "frequent-sets candidates=1~2;2~3;1~2~3",
    "csv header=x,y columns=y where=x>1",
];

fn content() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::collection::vec(prop::sample::select(b"ab12 3,\n\n-".to_vec()), 0..6000);
    let any = prop::collection::vec(prop::sample::select(b"ab\x00\xff,1\n".to_vec()), 0..300);
    prop_oneof![letters, any]
}

proptest! {
    #[test]
    fn pieces_give_the_answer_of_the_whole(
        content in content(),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
        turns in prop::collection::vec(any::<u32>(), 0..40),
    ) {
        for asked in ASKED {
            let (method, text) = asked.split_once(' ').unwrap_or((asked, ""));
            let whole = in_pieces(method, text, &content, &[], &[]);
            prop_assert_eq!(in_pieces(method, text, &content, &cuts, &turns), whole, "{}", asked);
        }
    }

    #[test]
    fn a_partial_answer_of_anything_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for asked in ASKED.iter().chain(&["checksum algorithm=sha256"]) {
            let (method, text) = asked.split_once(' ').unwrap_or((asked, ""));
            let program = parse(method, &arguments(text), 1 << 40).expect("good arguments");
            let mut running = program.begin();
            if running.absorb(&bytes).is_ok() {
                drop(running.finish());
            }
        }
    }
}

#[test]
fn answers_are_those_of_a_plain_look() {
    let content = b"x,y\n1,ab\n2,\"c,d\"\n3,ab\n";
    let whole = |method: &str, text: &str| in_pieces(method, text, content, &[5, 11], &[]);
    assert_eq!(whole("count", ""), Answer::Count { records: 4, bytes: 22 });
    assert_eq!(whole("grep", "pattern=ab count=yes"), Answer::Count { records: 2, bytes: 10 });
    let rows = whole("csv", "header=x,y columns=y,x where=x>=2");
    assert_eq!(rows, Answer::Rows(b"y,x\n\"c,d\",2\nab,3\n".to_vec()));
    let rows = whole("csv", "header=x,y columns=x where=y=c,d");
    assert_eq!(rows, Answer::Rows(b"x\n2\n".to_vec()));
    let Answer::Digest { digest, .. } = whole("checksum", "") else { panic!("no digest") };
    assert_eq!(digest, *blake3::hash(content).as_bytes());
    let Answer::Histogram { bins, without, .. } = whole("histogram", "of=field field=1 from=1 to=4 bins=3")
    else {
        panic!("no histogram")
    };
    assert_eq!((bins.iter().map(|bin| bin.count).collect::<Vec<_>>(), without), (vec![1, 1, 1], 1));
}

#[test]
fn bad_arguments_are_named() {
    let refused = |method: &str, text: &str| parse(method, &arguments(text), 0).map(drop).unwrap_err();
    let unknown = refused("sort", "").to_string();
    assert!(unknown.contains("\"sort\"") && unknown.contains("histogram"), "{unknown}");
    assert!(matches!(refused("grep", ""), ArgumentsError::Missing { name: "pattern", .. }));
    assert!(matches!(refused("grep", "pattern=("), ArgumentsError::Value { name: "pattern", .. }));
    assert!(matches!(refused("grep", "pattern=a colour=red"), ArgumentsError::Name { .. }));
    assert!(matches!(refused("count", "records=0"), ArgumentsError::Value { .. }));
    assert!(matches!(refused("count", "records=1 records=2"), ArgumentsError::Twice { .. }));
    assert!(matches!(refused("csv", "header=x,y columns=z"), ArgumentsError::Value { name: "columns", .. }));
    assert!(matches!(refused("frequent-sets", "candidates=2~1"), ArgumentsError::Value { .. }));
    let long = format!("pattern={}", "a".repeat(300 << 10));
    assert!(matches!(refused("grep", &long), ArgumentsError::TooLong { .. }));
}

#[test]
fn a_line_break_in_quotes_and_a_record_without_end_are_refused_by_their_places() {
    let program = parse("csv", &arguments("header=x"), 100).expect("good arguments");
    let mut running = program.begin();
    assert_eq!(running.feed(10, b"a\n\"b\nc\"\n"), Err(MethodError::Quotes { offset: 12 }));
    let mut seams = Seams::new(3);
    let edge = run_piece(&*program, &mut *running, 0, b"\nabcd").expect("it can be judged");
    assert_eq!(seams.add(edge), Err(SeamsError::TooLong { from: 1, max: 3 }));
}
