//! Text in, text out: the cases in `tests/plans/*.plan`.
//!
//! A case is some lines of input, a line `---`, and the printed plan set (or `error: ...`) that is expected;
//! a line `====` ends it. Input lines, `#` for comments:
//!
//! ```text
//! layout raid5 4+1 4K [bytes 0..100]     scheme, columns (`k` or `k+m`), unit, bytes of the file
//! out 1 2                                columns that are not in the set; so also `joining`, `away`
//! read 0..100 [settled]
//! write 0..100 size 50 [reach 50] [any]    any: unit writes too
//! punch 0..100 size 200
//! unit-write 0..100 [shared]
//! rebuild 0..2 columns 1
//! check 0..2
//! ```
//!
//! Every set is verified, too. `BRAID_BLESS=1 cargo test -p braid-plan --test plans` writes the results into
//! the files: read the difference before you commit it.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Lease, ObjectId, OperationNumber, Scheme, Segment,
    Shape, Version,
};
use braid_plan::{
    Body, Health, PlanError, PlanSet, Stamped, Target, Want, Write, check, read, rebuild, unit_write, verify,
    write, write_cheapest,
};

#[test]
fn plans_print_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let bless = std::env::var_os("BRAID_BLESS").is_some();
    let mut wrong = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let now = text.split_inclusive("====\n").map(|case| answer(case, &path)).collect::<String>();
        if now == text {
            continue;
        }
        if bless {
            #[expect(clippy::disallowed_methods, reason = "a test that keeps its expectations in files")]
            std::fs::write(&path, now).unwrap();
        } else {
            let line = text.lines().zip(now.lines()).take_while(|(a, b)| a == b).count();
            let was = text.lines().nth(line);
            let is = now.lines().nth(line);
            let location = format!("{}:{}", path.display(), line + 1);
            writeln!(wrong, "{location}: expected {was:?}, got {is:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The case with the plan set as it is compiled now.
fn answer(case: &str, path: &Path) -> String {
    let Some((input, _)) = case.split_once("---\n") else {
        assert!(case.trim().is_empty(), "{}: a case without ---: {case}", path.display());
        return case.to_owned();
    };
    let parsed = Case::parse(input);
    let output = match parsed.compile() {
        Ok(set) => {
            assert_eq!(verify(&set, &parsed.segment), Ok(()), "{}: {input}{set}", path.display());
            set.to_string()
        }
        Err(error) => format!("error: {error}\n"),
    };
    format!("{input}---\n{output}====\n")
}

struct Case {
    segment: Segment,
    health: Health,
    request: Vec<String>,
}

impl Case {
    fn parse(input: &str) -> Case {
        let mut segment = None;
        let mut out = ColumnMask::EMPTY;
        let mut joining = ColumnMask::EMPTY;
        let mut away = ColumnMask::EMPTY;
        let mut request = Vec::new();
        for line in input.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            match words[0].as_str() {
                "layout" => segment = Some(parse_segment(&words[1..])),
                "out" => out = columns(&words[1..]),
                "joining" => joining = columns(&words[1..]),
                "away" => away = columns(&words[1..]),
                _ => request = words,
            }
        }
        let segment = segment.expect("a case has a layout");
        let set = ColumnMask::all(segment.shape.width()).minus(out);
        Case { segment, health: Health { g: Generation(3), set, joining, away }, request }
    }

    fn compile(&self) -> Result<PlanSet, PlanError> {
        let target = Target { segment: &self.segment, index: 0, health: self.health };
        let range = parse_range(&self.request[1]);
        let number = |word: &str| {
            let at = self.request.iter().position(|other| other == word)?;
            Some(self.request[at + 1].parse::<u64>().unwrap())
        };
        let has = |word: &str| self.request.iter().any(|other| other == word);
        let request = |body| Write {
            range: range.clone(),
            body,
            size: number("size").unwrap_or(0),
            reach: number("reach").unwrap_or(u64::MAX),
            stamp: Version { g: Generation(3), lease: Lease(5), n: 100 },
        };
        match self.request[0].as_str() {
            "read" => {
                read(&target, range.clone(), 0, if has("settled") { Want::Settled } else { Want::Newest })
            }
            "write" if has("any") => {
                write_cheapest(&target, request(Body::Buffer { offset: 0 }), OperationNumber(40))
            }
            "write" => write(&target, request(Body::Buffer { offset: 0 })),
            "punch" => write(&target, request(Body::Zeros)),
            "unit-write" => {
                let stamped = if has("shared") { Stamped::ByDrive } else { Stamped::ByClient };
                unit_write(&target, request(Body::Buffer { offset: 0 }), OperationNumber(40), stamped)
            }
            "rebuild" => rebuild(&target, range.clone(), columns(&self.request[3..])),
            "check" => check(&target, range.clone()),
            other => panic!("no such request: {other}"),
        }
    }
}

/// `raid5 4+1 4K bytes 0..100`; without the end, all bytes of the file.
fn parse_segment(words: &[String]) -> Segment {
    let scheme = Scheme::ALL.iter().copied().find(|scheme| scheme.to_string() == words[0]);
    let scheme = scheme.unwrap_or_else(|| panic!("no such scheme: {}", words[0]));
    let (k, m) = words[1].split_once('+').unwrap_or((&words[1], "0"));
    let unit = words[2].strip_suffix('K').unwrap().parse::<u32>().unwrap() * 1024;
    let shape = Shape::new(scheme, k.parse().unwrap(), m.parse().unwrap(), unit).unwrap();
    let component =
        |column: u8| Component { drive: DriveId((0xd0 + u128::from(column)) << 96), object: ObjectId(7) };
    let bytes = words.get(4).map_or(0..u64::MAX, |range| parse_range(range));
    let components = (0..shape.width()).map(component).collect();
    Segment { start: bytes.start, end: bytes.end, shape, components }
}

fn parse_range(word: &str) -> Range<u64> {
    let (from, to) = word.split_once("..").expect("a range is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

fn columns(words: &[String]) -> ColumnMask {
    words.iter().map(|word| Column(word.parse().unwrap())).collect()
}
