//! Methods on files: the answer of the drives is that of the client, whatever the layout, the records and the
//! failures.

use std::sync::Arc;
use std::time::Duration;

use braid_client::{
    Answer, Argument, Arguments, Client, Error, Kind, Name, OpenOptions, Ran, RunAsk, RunAt, RunFailure,
};
use braid_layout::{Scheme, Shape};
use braid_wire::control::Methods;
use tokio::time::timeout;

use crate::common::{Cluster, Random, name, shape};
use crate::sealed::sealed_cluster;

/// Each method with arguments.
const ASKED: &[&str] = &[
    "count",
    "count records=1000",
    "count records=300000",
    "grep pattern=7+5",
    "grep pattern=. count=yes",
    "histogram of=length to=40 bins=8",
    "sample count=7 seed=9",
    "checksum",
    "checksum algorithm=sha256",
    "tree blocks=9",
    "frequent-sets",
    "frequent-sets candidates=1~2;3~5~7",
    "csv columns=a where=b>500 header=a,b",
    "csv columns=a where=b>500 header=a,b skip-first=yes",
];

fn asked(text: &str) -> RunAsk {
    let mut words = text.split_whitespace();
    let method = words.next().expect("a method");
    let argument = |word: &str| {
        let (name, value) = word.split_once('=').expect("name=value");
        Argument { name: name.to_owned(), value: value.replace('~', " ") }
    };
    RunAsk::new(method, Arguments(words.map(argument).collect()))
}

/// Lines of numbers with spaces and commas, of many lengths.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut text = Vec::new();
    while text.len() < bytes {
        for _ in 0..random.draw() % 9 {
            text.extend_from_slice((random.draw() % 1000).to_string().as_bytes());
            text.push(if random.draw().is_multiple_of(3) { b',' } else { b' ' });
        }
        text.push(b'\n');
    }
    text.truncate(bytes);
    text
}

async fn write(client: &Client, at: &Name, shape: Shape, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).create(true).shape(shape);
    let file = client.open(at, &options).await.expect("create");
    file.write_at(bytes, 0).await.expect("write");
    file.close().await.expect("close");
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("small")
}

async fn run(client: &Client, at: &Name, text: &str, place: RunAt) -> Ran {
    client.run(at, &asked(text).at(place)).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Has each method answer at the drives and at the client.
async fn check_all(client: &Client, at: &Name, what: &str) {
    for text in ASKED {
        let here = run(client, at, text, RunAt::Client).await;
        let there = run(client, at, text, RunAt::Drives).await;
        assert_eq!(here.bytes_at_drives, 0, "{what}: {text}");
        assert!(here.answer == there.answer, "{what}: {text}: {:?}, {:?}", here.answer, there.answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drives_answer_as_the_client_does_in_any_layout_and_without_a_drive() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let shapes = [
        shape(Scheme::Raid0, 3, 0, 4096),
        shape(Scheme::Raid1, 1, 1, 16384),
        shape(Scheme::Raid5, 4, 1, 8192),
        shape(Scheme::Rs, 3, 2, 4096),
        shape(Scheme::Raid5, 2, 1, 1 << 20),
    ];
    let mut names = Vec::new();
    for (number, shape) in (1..).zip(shapes) {
        let at = name(&format!("f{number}"));
        let bytes = text(number, 150_000 + usize::try_from(number).expect("small") * 61_111);
        write(&client, &at, shape, &bytes).await;
        check_all(&client, &at, &format!("{shape}")).await;
        let all = run(&client, &at, "count", RunAt::Drives).await;
        assert_eq!(all.bytes_at_drives, all.bytes, "{shape}: no byte of it moves");
        assert!(all.answer_bytes < all.bytes / 20, "{shape}: {} of {}", all.answer_bytes, all.bytes);
        if shape.m() > 0 {
            names.push(at);
        }
    }
    cluster.kill(1);
    for at in names {
        check_all(&client, &at, "a drive is away").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_holes_and_damage_are_answered_for() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let raid5 = shape(Scheme::Raid5, 2, 1, 4096);
    for (number, bytes) in [0, 1, 1023, 1024, 1025, 4096, 8192, 8193].into_iter().enumerate() {
        let at = name(&format!("small{number}"));
        write(&client, &at, raid5, &text(3, bytes)).await;
        check_all(&client, &at, &format!("{bytes} bytes")).await;
    }
    let sparse = name("sparse");
    write(&client, &sparse, raid5, b"begin\n").await;
    let file = client.open(&sparse, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"middle\n", 70_000).await.expect("write");
    file.set_len(200_000).await.expect("longer");
    file.close().await.expect("close");
    check_all(&client, &sparse, "holes").await;

    let at = name("rotten");
    let bytes = text(5, 300_000);
    write(&client, &at, raid5, &bytes).await;
    let before = run(&client, &at, "checksum", RunAt::Client).await.answer;
    assert_eq!(cluster.rot(0, &bytes), 1, "a block of the file is there");
    assert_eq!(
        run(&client, &at, "checksum", RunAt::Drives).await.answer,
        before,
        "damage is answered around"
    );
    cluster.stop(0).await;
    check_all(&client, &at, "damage and a drive that is away").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_when_its_file_is_written_or_removed_meanwhile() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &text(1, 100_000)).await;
    let reader = client.open(&at, &OpenOptions::new().read(true)).await.expect("open");
    assert!(!reader.run(&asked("count")).await.expect("run").changed);
    let writer = client.open(&at, &OpenOptions::new().write(true)).await.expect("open");
    writer.write_at(b"other\n", 50_000).await.expect("write");
    writer.close().await.expect("close");
    // Since it was opened.
    assert!(reader.run(&asked("count").at(RunAt::Drives)).await.expect("run").changed);
    client.unlink(&at).await.expect("unlink");
    let gone = client.run(&at, &asked("count")).await.expect_err("it is gone");
    assert_eq!(gone.kind(), Kind::NotFound);
    let removed = reader.run(&asked("count").at(RunAt::Drives)).await;
    assert!(removed.is_err_and(|error| error.kind() == Kind::NotFound), "the open file is gone too");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_questions_and_records_without_end_are_named() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    let mut bytes = text(1, 50_000);
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').expect("a line") + 1);
    let begin = bytes.len();
    bytes.resize(begin + 100_000, b'x');
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &bytes).await;
    let error = client.run(&at, &asked("sort")).await.expect_err("there is none");
    assert!(error.to_string().contains("checksum, count, csv"), "{error}");
    let error = client.run(&at, &asked("grep pattern=(")).await.expect_err("no expression");
    assert_eq!(error.kind(), Kind::Usage);
    // Whether it lies across units, or in one.
    let wide = name("wide");
    write(&client, &wide, shape(Scheme::Raid0, 2, 0, 1 << 20), &bytes).await;
    for (at, place) in
        [(&at, RunAt::Drives), (&at, RunAt::Client), (&wide, RunAt::Drives), (&wide, RunAt::Client)]
    {
        let short = RunAsk { record_max: 64 << 10, ..asked("count").at(place) };
        let error = client.run(at, &short).await.expect_err("a record is too long");
        let named = format!("the record at byte {begin} is longer than 65536 bytes");
        assert!(error.to_string().contains(&named), "{place:?}: {error}");
    }
    let quotes = name("quotes.csv");
    write(&client, &quotes, shape(Scheme::Raid0, 2, 0, 4096), b"a,b\n1,2\n3,\"x\ny\"\n").await;
    for place in [RunAt::Drives, RunAt::Client] {
        let error = client.run(&quotes, &asked("csv").at(place)).await.expect_err("a row of two lines");
        assert!(error.to_string().contains("the line at byte 8"), "{place:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_may_switch_methods_off_and_then_the_client_answers() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &text(1, 100_000)).await;
    let before = run(&client, &at, "count", RunAt::Cheapest).await;
    assert_eq!(before.bytes_at_drives, before.bytes);
    client.volume_set_methods("main", Methods::None).await.expect("set");
    let list = client.volume_list().await.expect("listed");
    let main = list.volumes.iter().find(|row| row.name == "main").expect("the volume");
    assert_eq!(list.methods_of(main.volume), Methods::None);
    let after = run(&client, &at, "count", RunAt::Cheapest).await;
    assert_eq!((after.bytes_at_drives, &after.answer), (0, &before.answer));
    let refused = client.run(&at, &asked("count").at(RunAt::Drives)).await.expect_err("it is off");
    let Error::Run { why, .. } = &refused else { panic!("{refused}") };
    assert!(matches!(**why, RunFailure::NotAtDrives(_)), "{refused}");
    client.volume_set_methods("main", Methods::Builtin).await.expect("set");
    assert_eq!(run(&client, &at, "count", RunAt::Drives).await.answer, before.answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn frequent_sets_and_differences_are_found_at_the_drives() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let sales = b"1 2 3\n2 3\n1 2 3 4\n9\n2 1\n".repeat(2000);
    let at = name("sales");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &sales).await;
    let progress = Arc::default();
    let mined = client.frequent_sets(&at, 4000, 5, RunAt::Drives, &progress).await.expect("mined");
    assert_eq!(
        (mined.bytes, mined.bytes_at_drives),
        (mined.bytes_at_drives, 3 * length(&sales)),
        "three runs"
    );
    let Answer::Sets { sets: found, lines: 10_000, bad_lines: 0 } = mined.answer else { panic!("sets") };
    let found: Vec<(Vec<u32>, u64)> = found.into_iter().map(|set| (set.items, set.count)).collect();
    let set = |items: &[u32], count| (items.to_vec(), count);
    let expected = [
        set(&[1], 6000),
        set(&[2], 8000),
        set(&[3], 6000),
        set(&[1, 2], 6000),
        set(&[1, 3], 4000),
        set(&[2, 3], 6000),
        set(&[1, 2, 3], 4000),
    ];
    assert_eq!(found, expected);

    let other = name("other");
    let mut changed = sales.clone();
    changed[33_333] ^= 1;
    write(&client, &other, shape(Scheme::Raid0, 3, 0, 8192), &changed).await;
    let compared = async |left: &Name, right: &Name| {
        let ran = client.compare(left, right, RunAt::Drives, &progress).await.expect("compared");
        assert!(!ran.changed);
        ran.answer
    };
    assert_eq!(compared(&at, &at).await, Answer::Difference { first: None });
    assert_eq!(compared(&at, &other).await, Answer::Difference { first: Some(33_333) });
    let longer = name("longer");
    write(&client, &longer, shape(Scheme::Raid0, 3, 0, 8192), &[&sales[..], b"x"].concat()).await;
    assert_eq!(compared(&at, &longer).await, Answer::Difference { first: Some(length(&sales)) });
    let Answer::Count { records, .. } = run(&client, &at, "count", RunAt::Drives).await.answer else {
        panic!()
    };
    assert_eq!(records, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_at_once_end() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 64 << 10), &text(1, 4 << 20)).await;
    let before = run(&client, &at, "count", RunAt::Client).await.answer;
    // More than there are permits for plan sets.
    let runs = (0..64).map(|_| {
        let client = client.clone();
        let at = at.clone();
        tokio::spawn(async move { run(&client, &at, "count", RunAt::Client).await.answer })
    });
    let runs: Vec<_> = runs.collect();
    for one in runs {
        let answer = timeout(Duration::from_secs(120), one).await.expect("none waits for another");
        assert_eq!(answer.expect("it ends"), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_runs_nothing_and_a_plan_says_why_no_drive_does() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &text(1, 100_000)).await;
    let writer = client.open(&at, &OpenOptions::new().write(true)).await.expect("open");
    let refused = writer.run(&asked("count").at(RunAt::Drives)).await.expect_err("it is open for writing");
    assert!(matches!(refused, Error::Access { access: "reading", .. }), "{refused}");
    writer.close().await.expect("close");

    let plan = client.plan_run(&at, &asked("count")).await.expect("planned");
    assert_eq!((plan.is_at_drives, plan.hindrance), (true, None));
    let large = asked("grep pattern=\\w{20}");
    let plan = client.plan_run(&at, &large).await.expect("planned");
    assert!(!plan.is_at_drives && plan.hindrance.is_some_and(|why| why.contains("too large")));
    let ran = client.run(&at, &large).await.expect("the client runs it");
    assert_eq!(ran.bytes_at_drives, 0);
    client.volume_set_methods("main", Methods::None).await.expect("set");
    let plan = client.plan_run(&at, &asked("count")).await.expect("planned");
    assert!(!plan.is_at_drives && plan.hindrance.is_some_and(|why| why.contains("methods are off")));
    for several in ["compare with=braid://main/f", "frequent-sets support=3"] {
        let refused = client.plan_run(&at, &asked(several)).await.expect_err("it takes several runs");
        assert!(refused.to_string().contains("several runs"), "{several}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_has_its_header_in_its_first_line_or_from_the_caller() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("t.csv");
    write(&client, &at, shape(Scheme::Raid0, 2, 0, 4096), b"a,b\n1,2\n3,4\n").await;
    let rows = |text: &[u8]| Answer::Rows(text.to_vec());
    for place in [RunAt::Drives, RunAt::Client] {
        assert_eq!(run(&client, &at, "csv columns=b", place).await.answer, rows(b"b\n2\n4\n"));
        assert_eq!(run(&client, &at, "csv columns=y header=x,y", place).await.answer, rows(b"y\nb\n2\n4\n"));
    }
    write(&client, &at, shape(Scheme::Raid0, 2, 0, 4096), b"\xff,b\n1,2\n3,4\n").await;
    let refused = client.run(&at, &asked("csv columns=b")).await.expect_err("it is no text");
    assert!(refused.to_string().contains("not UTF-8: give header="), "{refused}");
    let answer = run(&client, &at, "csv columns=y header=x,y skip-first=yes", RunAt::Drives).await.answer;
    assert_eq!(answer, rows(b"y\n2\n4\n"));
}

/// Has a method run again and again while the work goes on, and calls `check` with what came of it.
async fn run_beside(
    client: &Client,
    at: &Name,
    text: &str,
    work: impl Future<Output = ()> + Send + 'static,
    check: impl Fn(Result<Ran, Error>),
) {
    let work = tokio::spawn(work);
    loop {
        let is_last = work.is_finished();
        for place in [RunAt::Drives, RunAt::Client] {
            check(client.run(at, &asked(text).at(place)).await);
        }
        if is_last {
            break;
        }
    }
    work.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_during_a_run_is_seen_in_some_state_or_said_to_have_changed() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let at = name("f");
    let content = |digit: u8| [digit, digit, digit, digit, digit, digit, b'\n'].repeat(20_000);
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 4096), &content(b'0')).await;

    // Written: whatever digits there are, a line stays a line.
    let writer = client.open(&at, &OpenOptions::new().write(true)).await.expect("open");
    let work = async move {
        for digit in b'1'..=b'9' {
            writer.write_at(&content(digit), 0).await.expect("write");
            writer.flush().await.expect("flush");
        }
        writer.close().await.expect("close");
    };
    run_beside(&client, &at, "count", work, |ran| {
        let counted = Answer::Count { records: 20_000, bytes: 140_000 };
        assert_eq!(ran.expect("it runs").answer, counted);
    })
    .await;

    // Cut and grown: all lines, half of them, or the run says that it does not know.
    let writer = client.open(&at, &OpenOptions::new().write(true)).await.expect("open");
    let work = async move {
        for _ in 0..10 {
            writer.set_len(70_000).await.expect("cut");
            writer.write_at(&content(b'1')[70_000..], 70_000).await.expect("write");
            writer.flush().await.expect("flush");
        }
        writer.close().await.expect("close");
    };
    run_beside(&client, &at, "count", work, |ran| match ran {
        Ok(Ran { changed: true, .. }) => {}
        Ok(Ran { answer: Answer::Count { records: 10_000 | 20_000, .. }, .. }) => {}
        Ok(other) => panic!("{other:?}"),
        Err(Error::Run { why, .. }) => assert_eq!(*why, RunFailure::Cut),
        Err(error) => panic!("{error}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_answers_for_files_of_encrypted_volumes() {
    let (_cluster, _key, client) = sealed_cluster(4).await;
    let at: Name = "braid://secret/f".parse().expect("a good name");
    let bytes = text(3, 200_000);
    let file = client.open(&at, &OpenOptions::new().write(true).create(true)).await.expect("create");
    file.write_at(&bytes, 0).await.expect("write");
    file.close().await.expect("close");
    let ran = run(&client, &at, "count records=1000", RunAt::Cheapest).await;
    assert_eq!((ran.answer, ran.bytes_at_drives), (Answer::Count { records: 200, bytes: 200_000 }, 0));
    let refused = client.run(&at, &asked("count").at(RunAt::Drives)).await.expect_err("drives have no key");
    assert!(refused.to_string().contains("drives have no key"), "{refused}");
    let plan = client.plan_run(&at, &asked("count")).await.expect("planned");
    assert!(!plan.is_at_drives && plan.hindrance.is_some());
}
