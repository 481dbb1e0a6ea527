//! What: the examples of modules in `contrib/methods` build, and answer as the built-in methods do.
//! How: they are built as their first lines say, and run in real children; see `sandbox.rs`. `make
//! setup-wasm` installs what builds them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use braid_methods::{Answer, Arguments, Module, Program, parse_code, run_piece};
use braid_wasm::{Bounds, Sandbox, WorkerProgram, work};

const CHILD: &str = "BRAID_TEST_CHILD";

#[test]
fn as_a_child() {
    if std::env::var_os(CHILD).is_some() {
        work(Bounds::default()).expect("the parent lives longer");
    }
}

fn sandbox() -> Sandbox {
    Sandbox::new(WorkerProgram {
        program: std::env::current_exe().expect("this program"),
        arguments: ["--exact", "as_a_child", "--nocapture", "--test-threads=1"].map(Into::into).to_vec(),
        environment: vec![(CHILD.into(), "1".into())],
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/methods").join(name)
}

/// Builds an example with the command in its first lines, which ends with `-o` and its product.
fn built(name: &str) -> Arc<Module> {
    let source = source(name);
    let text = std::fs::read_to_string(&source).expect("the example");
    let lines = text.lines().map(|line| line.trim_start_matches(['/', '!', '*', ' ']));
    let command: Vec<&str> = lines
        .skip_while(|line| !line.starts_with("rustc ") && !line.starts_with("clang "))
        .take_while(|line| !line.starts_with("braid "))
        .flat_map(str::split_whitespace)
        .filter(|word| *word != "\\")
        .collect();
    let product = std::env::temp_dir().join(format!("braid-{}-{name}.wasm", std::process::id()));
    let is_replaced = |word: &str| word.starts_with("contrib/") || word.ends_with(".wasm");
    let arguments = command[1..].iter().filter(|word| !is_replaced(word) && **word != "-o");
    let status = Command::new(command[0]).args(arguments).arg(&source).arg("-o").arg(&product).status();
    let status = status.unwrap_or_else(|error| panic!("{}: {error}: run `make setup-wasm`", command[0]));
    assert!(status.success(), "{command:?}: `make setup-wasm` installs what it needs");
    let bytes = std::fs::read(&product).expect("the module");
    std::fs::remove_file(&product).expect("removed");
    Arc::new(Module::new(bytes).expect("it is short"))
}

/// Returns true if Rust can build modules: its toolchain gets the target over the network only.
fn has_rust_target() -> bool {
    let mut asked = Command::new("rustc");
    asked.args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]);
    let said = asked.output().expect("rustc builds this test");
    Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_dir()
}

/// Says why a part is not run here, also in the file that `BRAID_NOT_RUN` names (tools/test-lanes.sh).
fn not_run(why: &str) {
    println!("not run: {why}");
    if let Some(path) = std::env::var_os("BRAID_NOT_RUN") {
        let list = std::fs::File::options().append(true).create(true).open(path);
        writeln!(list.expect("the list is open"), "not run: a module in Rust: {why}").expect("noted");
    }
}

/// The answer for the content in pieces of this length, without the records across their ends: the content's
/// pieces have none.
fn answer(program: &dyn Program, content: &[u8], piece: usize) -> Answer {
    let mut whole = program.begin();
    for (at, piece) in (0_u64..).step_by(piece).zip(content.chunks(piece)) {
        let mut running = program.begin();
        let edge = run_piece(program, &mut *running, at, piece).expect("it runs");
        running.settle().expect("it runs");
        whole.absorb(&running.partial()).expect("its own");
        whole.feed(at, &edge.head).expect("it runs");
    }
    whole.finish().expect("an answer")
}

#[test]
fn the_examples_count_as_the_built_in_method_does() {
    let sandbox = Arc::new(sandbox());
    let content = b"one two  three\n\n\tfour five\n no end\n".repeat(30_000);
    let lines = content.iter().filter(|&&byte| byte == b'\n').count();
    let words = 30_000 * 7;
    let program = |name| {
        parse_code(&Arguments::default(), built(name), Arc::<Sandbox>::clone(&sandbox)).expect("it is good")
    };
    let expected = |text: String| Answer::Bytes(text.into_bytes());
    let piece = 14_000 * 35;
    assert_eq!(answer(&*program("lines.c"), &content, piece), expected(format!("{lines}\n")));
    if !has_rust_target() {
        return not_run("Rust's target wasm32-unknown-unknown is not there: `make setup-wasm`");
    }
    assert_eq!(answer(&*program("words.rs"), &content, piece), expected(format!("{lines} {words}\n")));
}
