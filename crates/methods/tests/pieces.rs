//! What: the answer for a file that is cut into pieces, in any order and anywhere, is that for the whole.
//! How: random content, cuts and orders; each piece's partial answer and ends are taken as a client does it.

use braid_methods::{
    Answer, Argument, Arguments, ArgumentsError, METHODS, MethodError, Seams, SeamsError, parse, run_piece,
    run_piece_in_steps,
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
        // As drives do it; and as the client does it if a drive leaves the piece out.
        let from = piece[0] as u64;
        let stepped = run_piece_in_steps(&*program, &mut *running, from, bytes, &mut || true);
        let edge = stepped.expect("it can be judged").unwrap_or_else(|| {
            running = program.begin();
            run_piece(&*program, &mut *running, from, bytes).expect("it can be judged")
        });
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
    "csv header=x,y columns=y where=x>1 skip-first=yes",
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
    let rows = whole("csv", "header=x,y columns=y,x where=x>=2 skip-first=yes");
    assert_eq!(rows, Answer::Rows(b"y,x\n\"c,d\",2\nab,3\n".to_vec()));
    let rows = whole("csv", "header=x,y columns=x where=y=c,d skip-first=yes");
    assert_eq!(rows, Answer::Rows(b"x\n2\n".to_vec()));
    let rows = whole("csv", "header=number,text columns=number where=text=ab");
    assert_eq!(rows, Answer::Rows(b"number\n1\n3\n".to_vec()));
    let rows = whole("csv", "header=number,text columns=number where=text=y");
    assert_eq!(rows, Answer::Rows(b"number\nx\n".to_vec()), "the first line is a row");
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
    let twice = refused("csv", "header=x,y columns=x,y,x").to_string();
    assert!(twice.contains("named twice"), "{twice}");
    let wide: Vec<String> = (0..1001).map(|number| format!("c{number}")).collect();
    let many = refused("csv", &format!("header={}", wide.join(","))).to_string();
    assert!(many.contains("at most 1000"), "{many}");
    assert!(parse("csv", &arguments(&format!("header={} columns=c1000", wide.join(","))), 0).is_ok());
    let pattern = refused("grep", &format!("pattern={}", "a".repeat(9000))).to_string();
    assert!(pattern.contains("at most 8192 bytes"), "{pattern}");
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

#[test]
fn a_drive_gives_a_piece_up_between_steps_and_before_a_line_that_is_too_long() {
    let program = parse("grep", &arguments("pattern=a{200,1000}b"), 1 << 30).expect("good arguments");
    let lines = b"aaaaaaa\n".repeat(16 << 10);
    let steps = |content: &[u8], most: usize| {
        let mut looks = 0;
        let mut goes_on = || {
            looks += 1;
            looks <= most
        };
        let judged = run_piece_in_steps(&*program, &mut *program.begin(), 0, content, &mut goes_on);
        (judged.expect("it can be judged").is_some(), looks)
    };
    let (is_done, looks) = steps(&lines, usize::MAX);
    assert!(is_done && looks >= 4, "{looks} looks at the clock");
    assert_eq!(steps(&lines, 2), (false, 3));
    let long = [b"\n", &vec![b'a'; 100 << 10][..], b"\nb\n"].concat();
    assert!(!steps(&long, usize::MAX).0, "time for a line is in proportion to its length");
    assert_eq!(program.hindrance(), None);
    let large = parse("grep", &arguments("pattern=\\w{20}"), 1 << 30).expect("the client runs it");
    assert!(large.hindrance().is_some(), "it has more than 256 KiB");
    let candidates: Vec<String> = (1..5000).map(|item| format!("0~{item}")).collect();
    let sets = arguments(&format!("candidates={}", candidates.join(";")));
    let sets = parse("frequent-sets", &sets, 1 << 30).expect("good arguments");
    assert!(sets.step_bytes() < 16 << 10, "{}", sets.step_bytes());
}

#[test]
fn a_bounded_answer_fails_before_it_is_large() {
    let header: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
    for (method, text) in [("csv", format!("header={}", header.join(","))), ("grep", "pattern=.".to_owned())]
    {
        let program = parse(method, &arguments(&text), 1 << 30).expect("good arguments");
        let lines = b"a\n".repeat(64 << 10);
        assert_eq!(program.begin().feed(2, &lines), Ok(()), "{method}");
        let refused = program.begin_within(100_000).feed(2, &lines);
        assert!(matches!(refused, Err(MethodError::TooLarge { max: 100_000, .. })), "{method}: {refused:?}");
    }
}

#[test]
fn different_items_are_bounded_wherever_they_are_counted() {
    let program = parse("frequent-sets", &arguments("limit=3"), 100).expect("good arguments");
    let refused = Err(MethodError::TooLarge { max: 3, of: "different items" });
    let fed = |lines: &[u8]| program.begin().feed(0, lines);
    assert_eq!(fed(b"1 2 3\n3 2 1\n"), Ok(()));
    assert_eq!(fed(b"1 2 3\n4\n"), refused, "below 65,536");
    assert_eq!(fed(b"100001 100002 100003\n100001\n"), Ok(()), "one that is known is not refused");
    assert_eq!(fed(b"1 100002 100003\n100001\n"), refused);
}

#[test]
fn pieces_at_the_end_of_all_offsets_are_judged_or_refused() {
    for method in METHODS {
        for text in ["", "records=1000", "pattern=a", "header=x", "algorithm=sha256"] {
            let Ok(program) = parse(method.name, &arguments(text), u64::MAX) else { continue };
            for from in [u64::MAX - 5000, u64::MAX - 4096] {
                let mut running = program.begin();
                let piece = b"ab\n\xff".repeat(1024);
                drop(run_piece_in_steps(&*program, &mut *running, from, &piece, &mut || true));
                drop(running.partial());
            }
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_judged_as_bytes() {
    let content = b"x\xff,1\n\xfe\xff,2\na,\xff3\n";
    let whole = |method: &str, text: &str| in_pieces(method, text, content, &[5, 11], &[]);
    assert_eq!(whole("csv", "header=x,y columns=x where=y=2"), Answer::Rows(b"x\n\xfe\xff\n".to_vec()));
    let Answer::Histogram { bins, without, .. } = whole("histogram", "of=field field=2 from=1 to=4 bins=3")
    else {
        panic!("no histogram")
    };
    assert_eq!((bins.iter().map(|bin| bin.count).collect::<Vec<_>>(), without), (vec![1, 1, 0], 1));
}
