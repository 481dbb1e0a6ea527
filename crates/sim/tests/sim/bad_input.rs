//! Nonsense is refused, with its key, its line and what would be right.

use braid_sim::spec::points;
use braid_sim::{Spec, trace};

const GOOD: &str = "\
seed = 1

[cluster]
clients = 2
drives = 4

[files]
scheme = \"raid0\"
width = 4
unit = \"64K\"

[parts]
disk = \"nvme-2026\"
link = \"25GbE\"
client = \"server-2026\"
drive = \"server-2026\"

[[load]]
rate = 100.0
";

/// The message for the good spec with `from` replaced by `to`.
fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    match Spec::parse(&text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_good_one_is_good() {
    let spec = Spec::parse(GOOD).expect("it is");
    assert_eq!(Spec::parse(&spec.to_toml()), Ok(spec), "and is read back");
}

#[test]
fn every_error_names_its_key_and_its_line() {
    let cases = [
        ("drives = 4", "drives = 0", "line 5: cluster.drives: 0 is not possible: give 1 to 4096"),
        ("clients = 2", "clients = 0", "line 4: cluster.clients: 0 is not possible: give 1 to 4096"),
        ("width = 4", "width = 5", "line 9: files.width: 5 columns need as many drives"),
        ("rate = 100.0", "rate = -3.0", "line 19: load.0.rate: a rate of -3 requests a second is not"),
        ("rate = 100.0", "rate = 3.0\nread = 1.5", "line 20: load.0.read: the share of reads"),
        ("rate = 100.0", "rate = 3.0\nrats = 1", "line 20: rats: unknown field `rats`, expected one of"),
        ("rate = 100.0", "rate = 3.0\noutstanding = 1", "line 18: load.0: give exactly one of"),
        ("unit = \"64K\"", "unit = \"60K\"", "line 10: files.unit: unit of 61440 bytes"),
        ("scheme = \"raid0\"", "scheme = \"raid9\"", "line 8: files.scheme: unknown scheme \"raid9\""),
        ("clients = 2", "clients = 2\ndown = [1]", "line 5: cluster.down: 1 drives are out"),
        ("clients = 2", "clients = 2\ndown = [7]", "line 5: cluster.down: there is no drive 7"),
        ("disk = \"nvme-2026\"", "disk = \"floppy\"", "line 13: disk: no disk has the name \"floppy\""),
        ("seed = 1", "seed = 1\n[run]\nprecision = 2.0", "line 3: run.precision: 2 is not between 0 and 1"),
        ("[files]", "[fils]", "line 7: fils: unknown field `fils`"),
        ("[[load]]\nrate = 100.0", "", "missing field `load`"),
        ("drives = 4", "", "line 3: cluster: missing field `drives`"),
        ("seed = 1", "seed = 9223372036854775808", "line 1: seed: 9223372036854775808 is not possible"),
        ("rate = 100.0", "rate = 3.0\n[[load]]\nrate = 3.0", "line 20: load.1.name: two loads have the name"),
        (
            "rate = 100.0",
            "rate = 3.0\nthink = \"1s\"",
            "line 20: load.0.think: only clients of a closed load",
        ),
        (
            "drive = \"server-2026\"",
            "drive = \"server-2026\"\n[parts.protocol]\nrequests = \"multicast\"\nrequest = \"65K\"",
            "line 19: parts.protocol.request: a multicast goes in one burst",
        ),
        ("seed = 1", "seed =", "line 1: seed"),
        ("[cluster]", "[clutter]", "line 3: clutter: unknown field `clutter`"),
        ("rate = 100.0", "rate = 1.0\nsize = \"0\"", "line 20: load.0.size: a request of 0 bytes"),
        ("rate = 100.0", "rate = 1.0\nsize = \"2G\"", "line 20: load.0.size: requests of 2147483648 bytes"),
    ];
    for (from, to, expected) in cases {
        let message = refused(from, to);
        assert!(message.starts_with(expected), "{message}\n  is not\n{expected}");
    }
    let none = format!("load = []\n{}", GOOD.split("[[load]]").next().expect("the beginning"));
    let message = Spec::parse(&none).expect_err("nothing to do").to_string();
    assert_eq!(message, "line 1: load: there is no load: add a [[load]]");
}

#[test]
fn numbers_with_units_say_how_they_are_written() {
    let table = |line: &str| {
        format!(
            "[parts.disk]\nseek = {{ constant = \"1ms\" }}\nread_rate = \"1GB/s\"\nwrite_rate = \"1GB/s\"\n{line}"
        )
    };
    let moved = GOOD.replacen("disk = \"nvme-2026\"\n", "", 1);
    let message = |line: &str, from: &str| {
        let text = format!("{moved}{}", table("").replacen(from, line, 1));
        Spec::parse(&text).expect_err("it is nonsense").to_string()
    };
    let negative = message("read_rate = \"-1GB/s\"", "read_rate = \"1GB/s\"");
    assert!(negative.starts_with("line 21: read_rate: -1GB/s is negative"), "{negative}");
    let zero = message("read_rate = \"0GB/s\"", "read_rate = \"1GB/s\"");
    assert!(zero.contains("above 0"), "{zero}");
    let unit = message("seek = { constant = \"1 fortnight\" }", "seek = { constant = \"1ms\" }");
    assert!(unit.starts_with("line 20: seek: ") && unit.contains("ns, us, ms or s"), "{unit}");
    let kind = message("seek = { normal = \"1ms\" }", "seek = { constant = \"1ms\" }");
    assert!(kind.contains("unknown variant `normal`"), "{kind}");
}

#[test]
fn a_sweep_says_which_of_its_values_is_wrong() {
    let text = format!("{GOOD}[[sweep]]\nkey = \"cluster.drives\"\nvalues = [4, 2]\n");
    let error = points(&text, &Spec::parse(&text).expect("a spec")).expect_err("width over drives");
    assert!(error.to_string().contains("with cluster.drives = 2: files.width: 4 columns"), "{error}");
    let text = format!("{GOOD}[[sweep]]\nkey = \"cluster.wheels\"\nvalues = [4]\n");
    let error = points(&text, &Spec::parse(&text).expect("a spec")).expect_err("no such key");
    assert!(error.to_string().contains("unknown field `wheels`"), "{error}");
    let text = format!("{GOOD}[[sweep]]\nkey = \"load.7.rate\"\nvalues = [4.0]\n");
    let error = points(&text, &Spec::parse(&text).expect("a spec")).expect_err("no such load");
    assert_eq!(error.to_string(), "line 21: sweep.0.key: there is no key load.7.rate");
}

#[test]
fn a_trace_names_the_line_that_is_wrong() {
    let spec = Spec::parse(&GOOD.replacen("rate = 100.0", "trace = \"a.csv\"", 1)).expect("a spec");
    let good = format!("# comment\n{}\n0.0,0,read,0,0,65536\n\n0.5,1,write,0,65536,4096\n", trace::HEADER);
    let entries = trace::parse(&good, &spec).expect("a trace");
    assert_eq!((entries.len(), entries[1].at, entries[1].write), (2, 500_000_000, true));
    let outcome = braid_sim::run(&spec, &entries);
    assert_eq!(outcome.ending, braid_sim::outcome::Ending::Done);
    assert_eq!((outcome.loads[0].reads, outcome.loads[0].writes), (1, 1));

    let cases = [
        ("0.0,0,read,0,0,65536", "0.0,0,read,0,0", "line 3: 5 fields, but there are 6"),
        ("0.0,0,read,0,0,65536", "zero,0,read,0,0,1", "line 3: \"zero\" is not a time in seconds"),
        ("0.0,0,read", "0.0,2,read", "line 3: there is no client 2: the spec has 2"),
        ("0.0,0,read", "0.0,0,reed", "line 3: operation \"reed\" is neither read nor write"),
        ("0.0,0,read,0", "0.0,0,read,1", "line 3: there is no file 1"),
        ("0.0,0,read", "0.9,0,read", "line 5: it is before the request above it"),
        ("65536,4096", "-1,4096", "line 5: offset \"-1\" is not a number"),
        (
            "65536,4096",
            "1073741824,4096",
            "line 5: bytes 1073741824+4096 are an empty range, or not in a file",
        ),
        ("65536,4096", "0,0", "line 5: bytes 0+0 are an empty range"),
        ("seconds,", "minutes,", "line 2: \"minutes,"),
    ];
    for (from, to, expected) in cases {
        let error = trace::parse(&good.replacen(from, to, 1), &spec).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error}\n  is not\n{expected}");
    }
    let error = trace::parse(trace::HEADER, &spec).expect_err("nothing in it").to_string();
    assert_eq!(error, "line 1: there is no request");
}
