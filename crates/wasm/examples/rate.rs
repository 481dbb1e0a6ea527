//! Measures a module that counts lines beside the built-in method, in this process's sandbox:
//!
//!     clang --target=wasm32 -O2 -msimd128 -nostdlib -Wl,--no-entry contrib/methods/lines.c -o lines.wasm
//!     cargo run --release -p braid-wasm --example rate lines.wasm

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_methods::{Arguments, Engine, Module, Program, parse, parse_code, run_piece};
use braid_wasm::{Bounds, Sandbox, WorkerProgram, work};

/// Bytes a second, and rounds, of a program on pieces like this.
fn rate(program: &dyn Program, piece: &[u8]) -> [f64; 2] {
    let began = Instant::now();
    let mut rounds = 0.0;
    while began.elapsed() < Duration::from_secs(1) {
        let mut running = program.begin();
        run_piece(program, &mut *running, 0, piece).expect("it runs");
        running.settle().expect("it runs");
        running.partial();
        rounds += 1.0;
    }
    let seconds = began.elapsed().as_secs_f64();
    let bytes = f64::from(u32::try_from(piece.len()).expect("a piece is small"));
    [rounds * bytes / seconds, seconds / rounds]
}

fn main() {
    let argument = std::env::args().nth(1).expect("a module's file");
    if argument == "work" {
        return work(Bounds::default()).expect("the parent lives longer");
    }
    let module = Arc::new(Module::new(std::fs::read(argument).expect("a file")).expect("it is short"));
    let sandbox = Arc::new(Sandbox::new(WorkerProgram {
        program: "/proc/self/exe".into(),
        arguments: vec!["work".into()],
        environment: Vec::new(),
    }));
    let began = Instant::now();
    sandbox.look(&module).expect("it is good");
    println!("process started and module compiled: {:?}", began.elapsed());
    let wasm = parse_code(&Arguments::default(), module, sandbox).expect("it is good");
    let count = parse("count", &Arguments::default(), 0).expect("it is good");
    let text = b"The quick brown fox jumps over the lazy dog, and so on.\n".repeat(9362);
    for _ in 0..3 {
        let [built_in, _] = rate(&*count, &text);
        let [module, _] = rate(&*wasm, &text);
        let [_, start] = rate(&*wasm, b"a\nb\n");
        println!(
            "built in {:.2} GB/s, module {:.2} GB/s ({:.2}); a start {:.0} us",
            built_in / 1e9,
            module / 1e9,
            module / built_in,
            start * 1e6
        );
    }
}
