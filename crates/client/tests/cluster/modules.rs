//! Modules of users: the answer of the drives is that of the client, and a module that does wrong ends its
//! own run only. Drives and client share one sandbox here; its processes are this program, started anew.

use std::sync::Arc;

use braid_client::{
    Answer, Arguments, Client, Engine, Error, Kind, Module, Name, OpenOptions, Ran, RunAsk, RunAt, RunFailure,
};
use braid_layout::Scheme;
use braid_wasm::{Bounds, Sandbox, WorkerProgram, work};
use braid_wire::control::Methods;

use crate::common::{Cluster, ENGINE, Random, name, shape};

/// Says that this process is one of the sandbox.
const CHILD: &str = "BRAID_TEST_CHILD";

#[test]
fn as_a_child() {
    if std::env::var_os(CHILD).is_some() {
        work(Bounds::default()).expect("the parent lives longer");
    }
}

/// The sandbox of all clusters in this process.
fn engine() -> Arc<dyn Engine> {
    let arguments = ["--exact", "modules::as_a_child", "--nocapture", "--test-threads=1"];
    Arc::new(Sandbox::new(WorkerProgram {
        program: std::env::current_exe().expect("this program"),
        arguments: arguments.map(Into::into).to_vec(),
        environment: vec![(CHILD.into(), "1".into())],
    }))
}

fn module(text: &str) -> Arc<Module> {
    Arc::new(Module::new(wat::parse_str(text).expect("good text")).expect("it is short"))
}

fn count() -> Arc<Module> {
    module(include_str!("../../../wasm/tests/modules/count.wat"))
}

fn sevens() -> Arc<Module> {
    module(include_str!("../../../wasm/tests/modules/sevens.wat"))
}

fn first_is(digit: &str) -> Arguments {
    Arguments::default().with("first", digit)
}

async fn start(drives: usize) -> (Cluster, Client) {
    ENGINE.get_or_init(engine);
    let cluster = Cluster::start(drives).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    client.volume_set_methods("main", Methods::Wasm).await.expect("set");
    (cluster, client)
}

async fn run(client: &Client, at: &Name, ask: RunAsk) -> Ran {
    client.run(at, &ask).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Lines of digits, of many lengths.
fn text(random: &mut Random, bytes: usize, longest: u64) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < bytes {
        let length = random.draw() % longest;
        text.extend((0..length).map(|_| b'0' + u8::try_from(random.draw() % 10).expect("small")));
        text.push(b'\n');
    }
    text.truncate(bytes);
    text
}

/// The answers that the modules must give.
fn expected(text: &[u8]) -> [Answer; 2] {
    let ends = text.iter().filter(|&&byte| byte == b'\n').count();
    let mut sum = vec![0; 16];
    sum[..8].copy_from_slice(&u64::try_from(ends).expect("small").to_le_bytes());
    let lines = text.split_inclusive(|&byte| byte == b'\n').filter(|line| line[0] == b'7');
    [Answer::Bytes(sum), Answer::Bytes(lines.flatten().copied().collect())]
}

/// Has both modules answer at the drives and at the client.
async fn check(client: &Client, at: &Name, text: &[u8], all_there: bool) {
    let expected = expected(text);
    let asks = [RunAsk::module(count(), Arguments::default()), RunAsk::module(sevens(), first_is("7"))];
    for (ask, expected) in asks.iter().zip(&expected) {
        for place in [RunAt::Drives, RunAt::Client] {
            let ran = run(client, at, ask.clone().at(place)).await;
            assert!(ran.answer == *expected, "{at} {place:?}: not the answer of a plain look");
            match place {
                RunAt::Client => assert_eq!(ran.bytes_at_drives, 0, "{at}"),
                _ => assert!(ran.bytes_at_drives == ran.bytes || !all_there, "{at}: no byte of it moves"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_answer_at_the_drives_as_at_the_client_in_any_layout_and_without_a_drive() {
    let (mut cluster, client) = start(5).await;
    let mut random = Random(77);
    let mut files = Vec::new();
    let shapes = [
        shape(Scheme::Raid0, 3, 0, 4096),
        shape(Scheme::Raid1, 1, 1, 16384),
        shape(Scheme::Raid5, 4, 1, 8192),
        shape(Scheme::Rs, 3, 2, 65536),
    ];
    for (number, shape) in (1..).zip(shapes) {
        let at = name(&format!("f{number}"));
        let longest = [3, 40, 900, 9000][usize::try_from(random.draw() % 4).expect("small")];
        let bytes = 1 + usize::try_from(random.draw() % 700_000).expect("small");
        let bytes = text(&mut random, bytes, longest);
        let file = client.open(&at, &OpenOptions::new().write(true).create(true).shape(shape)).await;
        let file = file.expect("create");
        file.write_at(&bytes, 0).await.expect("write");
        file.close().await.expect("close");
        check(&client, &at, &bytes, true).await;
        if shape.m() > 0 {
            files.push((at, bytes));
        }
    }
    cluster.kill(1);
    for (at, bytes) in files {
        check(&client, &at, &bytes, false).await;
    }
}

async fn write(client: &Client, at: &Name, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid5, 2, 1, 4096));
    let file = client.open(at, &options).await.expect("create");
    file.write_at(bytes, 0).await.expect("write");
    file.close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_does_wrong_ends_its_own_run_and_says_where() {
    let (_cluster, client) = start(3).await;
    let at = name("f");
    write(&client, &at, &b"7\n".repeat(50_000)).await;
    let with = |block: &str| {
        module(&format!(
            "(module (memory (export \"memory\") 20) (func (export \"braid_abi_1\"))
               (func (export \"alloc\") (param i32) (result i32) (i32.const 1024))
               (func (export \"block\") (param i32 i32 i64) {block}))"
        ))
    };
    let wrong = [
        (with("(loop $l (br $l))"), "it took more than"),
        (with("unreachable"), "it trapped"),
        (with("(loop $l (drop (memory.grow (i32.const 100))) (br $l))"), "it grows its memory"),
        (module("(module)"), "it exports no memory"),
        (Arc::new(Module::new(b"nonsense".to_vec()).expect("short")), "before it ran"),
    ];
    for (module, why) in wrong {
        for place in [RunAt::Drives, RunAt::Client] {
            let ask = RunAsk::module(Arc::clone(&module), Arguments::default()).at(place);
            let error = client.run(&at, &ask).await.expect_err("it does wrong").to_string();
            assert!(error.contains(why) && error.contains(&module.name()[..12]), "{place:?}: {error}");
        }
    }
    let told = client.run(&at, &RunAsk::module(sevens(), Arguments::default()).at(RunAt::Drives)).await;
    let Err(Error::Run { why, .. }) = told else { panic!("{told:?}") };
    let RunFailure::AtDrive { why, .. } = &*why else { panic!("{why}") };
    assert!(why.contains("on bytes ") && why.contains("it says: give first=BYTE"), "{why}");
    let ran = run(&client, &at, RunAsk::module(count(), Arguments::default()).at(RunAt::Drives)).await;
    assert_eq!(ran.bytes_at_drives, ran.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn drives_run_no_modules_of_a_volume_that_does_not_let_them() {
    let (_cluster, client) = start(3).await;
    let at = name("f");
    write(&client, &at, b"7\n8\n").await;
    client.volume_set_methods("main", Methods::Builtin).await.expect("set");
    let ask = RunAsk::module(sevens(), first_is("8"));
    let ran = run(&client, &at, ask.clone()).await;
    assert_eq!((ran.bytes_at_drives, ran.answer), (0, Answer::Bytes(b"8\n".to_vec())));
    let refused = client.run(&at, &ask.at(RunAt::Drives)).await.expect_err("it is not allowed");
    assert_eq!(refused.kind(), Kind::Permission, "{refused}");
    assert!(refused.to_string().contains("--methods wasm"), "{refused}");
    let count = client.run(&at, &RunAsk::new("count", Arguments::default()).at(RunAt::Drives)).await;
    assert_eq!(count.expect("it is theirs").bytes_at_drives, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_stored_in_a_volume_and_named_by_its_hash() {
    let (cluster, client) = start(3).await;
    let at = name("f");
    write(&client, &at, b"7\n8\n").await;
    let sevens = sevens();
    let ask = RunAsk::new("wasm", first_is("8").with("module", sevens.name()));
    let missing = client.run(&at, &ask).await.expect_err("it is not there").to_string();
    assert!(missing.contains(".modules/") && missing.contains("module put"), "{missing}");
    for _ in 0..2 {
        let stored = client.put_module("main", &sevens).await.expect("stored");
        assert_eq!(stored.to_string(), format!("braid://main/.modules/{}.wasm", sevens.name()));
    }
    assert_eq!(run(&client, &at, ask.clone()).await.answer, Answer::Bytes(b"8\n".to_vec()));
    let named = client.run(&at, &RunAsk::new("wasm", first_is("8").with("module", "count"))).await;
    assert_eq!(named.expect_err("no hash").kind(), Kind::Usage);
    // A program without an engine says so.
    let plain = Client::connect(braid_client::Config { engine: None, ..cluster.config() }).await;
    let refused = plain.expect("a client").run(&at, &ask).await.expect_err("it has no engine");
    assert!(refused.to_string().contains("engine"), "{refused}");
    // What has another hash than its name is not run.
    let file = name(&format!(".modules/{}.wasm", sevens.name()));
    let open = client.open(&file, &OpenOptions::new().write(true)).await.expect("open");
    open.write_at(b"x", 20).await.expect("write");
    open.close().await.expect("close");
    let changed = client.run(&at, &ask).await.expect_err("it is changed").to_string();
    assert!(changed.contains("its bytes are not those of the hash"), "{changed}");
}
