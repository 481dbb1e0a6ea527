//! What: a module does its tasks; one that does wrong harms nothing but its own answer.
//! How: modules in WebAssembly's text form run in real children. The child is this test program: started with
//! a variable in its environment, the test `as_a_child` is what the child does.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use braid_methods::{
    Answer, Arguments, Block, End, Engine, EngineError, MethodError, Module, ModuleKind, Task, parse_code,
};
use braid_wasm::{Bounds, Sandbox, WorkerProgram, lock_down, work};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Names what a process that was started as a child does.
const CHILD: &str = "BRAID_TEST_CHILD";

/// Steps, bytes of memory and bytes of answers that show what is too much in little time.
const BOUNDS: Bounds =
    Bounds { steps: 100_000, steps_per_byte: 100, memory_bytes: 4 << 20, emitted_bytes: 1 << 20 };

#[test]
fn as_a_child() {
    match std::env::var(CHILD).as_deref() {
        Ok("work") => work(BOUNDS).expect("the parent lives longer"),
        Ok("slow") => work(Bounds { steps: u64::MAX, ..BOUNDS }).expect("the parent lives longer"),
        Ok(call) => {
            lock_down().expect("this system can filter system calls");
            match call {
                "file" => drop(File::open("/proc/self/status")),
                "socket" => drop(TcpListener::bind("127.0.0.1:0")),
                "process" => drop(Command::new("/bin/true").spawn()),
                "nothing" => {}
                other => panic!("{other}"),
            }
            std::process::exit(0);
        }
        Err(_) => {}
    }
}

fn child(what: &str) -> WorkerProgram {
    WorkerProgram {
        program: std::env::current_exe().expect("this program"),
        arguments: ["--exact", "as_a_child", "--nocapture", "--test-threads=1"].map(Into::into).to_vec(),
        environment: vec![(CHILD.into(), what.into())],
    }
}

fn sandbox() -> Sandbox {
    Sandbox::new(child("work"))
}

fn module(text: &str) -> Module {
    Module::new(wat::parse_str(text).expect("good text")).expect("it is short")
}

/// A module whose functions `block` and `alloc` are these.
fn with(imports: &str, block: &str, alloc: &str) -> Module {
    module(&format!(
        "(module {imports} (memory (export \"memory\") 2) (func (export \"braid_abi_1\"))
           (func (export \"alloc\") (param i32) (result i32) {alloc})
           (func (export \"block\") (param i32 i32 i64) {block}))"
    ))
}

fn count() -> Module {
    module(include_str!("modules/count.wat"))
}

/// The answer of the module for one block.
fn run(engine: &dyn Engine, module: &Module, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
    module.kind(engine)?;
    let parameters = Arguments::default().with("name", "value");
    let blocks = vec![Block { offset: 7, bytes }];
    engine.run(module, &Task { parameters: &parameters, partials: Vec::new(), blocks, end: End::Partial })
}

fn failure(module: &Module) -> String {
    failure_in(&sandbox(), module)
}

fn failure_in(sandbox: &Sandbox, module: &Module) -> String {
    match run(sandbox, module, b"some bytes\n") {
        Err(EngineError::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fold_counts_merges_and_answers() {
    let sandbox = sandbox();
    let module = count();
    assert_eq!(module.kind(&sandbox), Ok(ModuleKind::Fold { answers: true }));
    let two = run(&sandbox, &module, b"a\nb\n").expect("it counts");
    assert_eq!(two, [2_u64.to_le_bytes()]);
    let parameters = Arguments::default();
    let partials = vec![two[0].as_slice(), &two[0]];
    let blocks = vec![Block { offset: 0, bytes: b"\n" }];
    let task = Task { parameters: &parameters, partials, blocks, end: End::Answer };
    let five = [5_u64.to_le_bytes(), [0; 8]].concat();
    assert_eq!(sandbox.run(&module, &task), Ok(vec![five]));
    assert_eq!(sandbox.idle().len(), 1, "one child did all");
}

#[test]
fn a_filter_gets_parameters_and_offsets_and_emits_for_each_block() {
    let emit = "(import \"braid\" \"emit\" (func $emit (param i32 i32)))
      (import \"braid\" \"parameter\" (func $parameter (param i32 i32 i32 i32) (result i32)))
      (data (i32.const 0) \"name\")";
    let block = "(i64.store (i32.const 100) (local.get 2)) (call $emit (i32.const 100) (i32.const 1))
      (call $emit (i32.const 200)
        (call $parameter (i32.const 0) (i32.const 4) (i32.const 200) (i32.const 50)))
      (if (i32.ne (call $parameter (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 0)) (i32.const -1))
        (then unreachable))
      (call $emit (local.get 0) (local.get 1))";
    let module = with(emit, block, "(i32.const 1024)");
    let sandbox = sandbox();
    assert_eq!(run(&sandbox, &module, b"ab\n"), Ok(vec![b"\x07valueab\n".to_vec()]));
    let program = parse_code(&Arguments::default(), Arc::new(module), Arc::new(sandbox)).expect("it is good");
    let mut running = program.begin();
    for offset in [5, 1, 9] {
        running.feed(offset, &[b'0' + u8::try_from(offset).expect("small"), b'\n']).expect("it runs");
    }
    // The parameter is not given here: 4 GiB - 1 bytes are emitted.
    assert!(matches!(running.settle(), Err(MethodError::Module { at, .. }) if at == "on bytes 1..11"));
}

#[test]
fn the_method_gives_one_answer_however_the_records_come() {
    let sandbox: Arc<dyn Engine> = Arc::new(sandbox());
    let program = parse_code(&Arguments::default(), Arc::new(count()), sandbox).expect("it is good");
    let lines: Vec<u8> = b"abc\n".repeat(50_000);
    let mut whole = program.begin();
    for part in lines.chunks(100_000) {
        let mut running = program.begin();
        running.feed(0, part).expect("it runs");
        running.settle().expect("it runs");
        whole.absorb(&running.partial()).expect("its own");
    }
    (0..10).for_each(|_| whole.feed(0, b"\n").expect("it runs"));
    let sum = [50_010_u64.to_le_bytes(), [0; 8]].concat();
    assert_eq!(whole.finish(), Ok(Answer::Bytes(sum)));
    let nothing = program.begin().finish();
    assert_eq!(nothing, Ok(Answer::Bytes(vec![0; 16])), "of a file without bytes");
}

#[test]
fn what_does_wrong_is_stopped_and_named() {
    let emit = "(import \"braid\" \"emit\" (func $emit (param i32 i32)))";
    let at = "(i32.const 1024)";
    let spins = with("", "(loop $l (br $l))", at);
    assert!(failure(&spins).contains("it took more than 100000 steps"), "{}", failure(&spins));
    let traps = with("", "unreachable", at);
    assert!(failure(&traps).contains("trapped"), "{}", failure(&traps));
    let grows = with("", "(loop $l (drop (memory.grow (i32.const 16))) (br $l))", at);
    assert!(failure(&grows).contains("grows its memory"), "{}", failure(&grows));
    let emits = with(emit, "(loop $l (call $emit (i32.const 0) (i32.const 65536)) (br $l))", at);
    assert!(failure(&emits).contains("emits more"), "{}", failure(&emits));
    let much = with(emit, "(call $emit (i32.const 0) (i32.const -1))", at);
    assert!(failure(&much).contains("emits more"), "{}", failure(&much));
    let outside = with(emit, "(call $emit (i32.const 131000) (i32.const 1000))", at);
    assert!(failure(&outside).contains("outside its memory"), "{}", failure(&outside));
    let nowhere = with("", "", "(i32.const -4)");
    assert!(failure(&nowhere).contains("alloc(11)"), "{}", failure(&nowhere));
    let deep = with("", "(call 2 (local.get 0) (local.get 1) (local.get 2))", at);
    assert!(failure(&deep).contains("trapped") || failure(&deep).contains("steps"), "{}", failure(&deep));
    let says = with(
        "(import \"braid\" \"fail\" (func $fail (param i32 i32))) (data (i32.const 0) \"no numbers\")",
        "(call $fail (i32.const 0) (i32.const 10))",
        at,
    );
    assert_eq!(failure(&says), "it says: no numbers");
}

#[test]
fn what_is_no_such_module_is_refused_before_it_runs() {
    let refused = |module: &Module| match module.kind(&sandbox()) {
        Err(EngineError::Failed(why)) => why,
        other => panic!("{other:?}"),
    };
    let garbage = Module::new(b"#!/bin/sh\n".to_vec()).expect("it is short");
    assert!(!refused(&garbage).is_empty());
    let foreign =
        with("(import \"wasi_snapshot_preview1\" \"fd_write\" (func (param i32)))", "", "i32.const 0");
    assert!(refused(&foreign).contains("wasi_snapshot_preview1"), "{}", refused(&foreign));
    let empty = refused(&module("(module)"));
    assert!(empty.contains("memory"), "{empty}");
    let other = refused(&module(
        "(module (memory (export \"memory\") 1) (func (export \"braid_abi_1\"))
           (func (export \"alloc\") (param i64) (result i32) (i32.const 0)))",
    ));
    assert!(other.contains("\"alloc\" is not a function"), "{other}");
    let large = module(
        "(module (memory (export \"memory\") 1000) (func (export \"braid_abi_1\"))
           (func (export \"alloc\") (param i32) (result i32) (i32.const 0))
           (func (export \"block\") (param i32 i32 i64)))",
    );
    assert!(failure(&large).contains("memory"), "{}", failure(&large));
    assert!(Module::new(vec![0; (4 << 20) + 1]).is_none());
}

#[test]
fn a_failure_harms_no_other_task_and_a_killed_child_is_replaced() {
    let sandbox = sandbox();
    let traps = with("", "unreachable", "(i32.const 1024)");
    let count = count();
    failure_in(&sandbox, &traps);
    let first = sandbox.idle();
    assert_eq!(run(&sandbox, &count, b"\n\n"), Ok(vec![2_u64.to_le_bytes().to_vec()]));
    assert_eq!(sandbox.idle(), first, "a trap ends no process");
    let killed = Command::new("kill").arg("-9").arg(first[0].to_string()).status().expect("kill runs");
    assert!(killed.success());
    // A process ends with the last of its threads: until then it counts as one that works. It is left to the
    // sandbox to bury it.
    let pid = Pid::from_raw(first[0].try_into().expect("a small number"));
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid.expect("not 0")), ended).expect("nobody has waited for it");
    assert_eq!(run(&sandbox, &count, b"\n\n"), Ok(vec![2_u64.to_le_bytes().to_vec()]));
    assert_ne!(sandbox.idle(), first);
}

#[test]
fn a_task_ends_with_its_time_and_with_its_process() {
    let sandbox = Sandbox::new(child("slow")).task_time(Duration::from_secs(2));
    let spins = with("", "(loop $l (br $l))", "(i32.const 1024)");
    spins.kind(&sandbox).expect("it is good");
    assert!(failure_in(&sandbox, &spins).contains("took too long"));
    assert_eq!(sandbox.idle(), [0; 0], "the process is gone");
    let sandbox = Sandbox::new(child("slow"));
    sandbox.look(&spins).expect("it is good");
    let process = sandbox.idle()[0].to_string();
    let why = std::thread::scope(|scope| {
        let failing = scope.spawn(|| failure_in(&sandbox, &spins));
        while !sandbox.idle().is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(Command::new("kill").arg("-9").arg(process).status().expect("kill runs").success());
        failing.join().expect("no panic")
    });
    assert!(why.contains("signal 9"), "{why}");
}

#[test]
fn a_locked_process_ends_at_the_first_call_that_it_may_not_make() {
    let ended = |what: &str| {
        let child = child(what);
        let mut command = Command::new(child.program);
        command.args(child.arguments).envs(child.environment).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("it starts")
    };
    assert!(ended("nothing").success());
    for what in ["file", "socket", "process"] {
        assert_eq!(ended(what).signal(), Some(libc::SIGSYS), "{what}");
    }
}

#[test]
fn a_sandbox_without_its_program_says_so() {
    let nothing = WorkerProgram { program: "/nonexistent".into(), arguments: vec![], environment: vec![] };
    let failed = run(&Sandbox::new(nothing), &count(), b"\n");
    assert!(matches!(failed, Err(EngineError::Unavailable(why)) if why.contains("does not start")));
}
