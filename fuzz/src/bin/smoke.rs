//! The smoke: every target, on stable, without libFuzzer. Good inputs are mutated (bits, lengths, pieces of
//! one another) or made up, from a seed, so that a failure comes again. Exit code 1 if a target panics or
//! takes more memory than it may.
//!
//! usage: smoke [SEED] [SECONDS PER TARGET]
//!        smoke --only TARGET INPUTS [SEED]        so many inputs of one target, however long it takes
//!        smoke --input TARGET HEX                 one input, as a failure shows it
//!        smoke --corpus FOLDER                    writes the good inputs for libFuzzer

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use braid_fuzz::{TARGETS, Target, corpus};

/// Inputs per target, unless time is up before.
const ITERATIONS: u64 = 100_000;
/// Seconds per target, unless told otherwise.
const SECONDS: u64 = 4;
/// One input in this many is a megabyte long.
const LONG_EVERY: u64 = 500;
/// The longest body on the wire.
const LONG_BYTES: usize = 1 << 20;
/// What decoding may take: a bound of its own, and so much per byte of input.
const MEMORY_BASE: usize = 16 << 20;
const MEMORY_PER_BYTE: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder] = &arguments[..]
        && flag == "--corpus"
    {
        return write_corpus(folder);
    }
    let number = |at: usize, default: u64| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| format!("\"{text}\" is not a number: smoke [SEED] [SECONDS]")),
        None => Ok(default),
    };
    if let [flag, name, hex] = &arguments[..]
        && flag == "--input"
        && let Some((_, target)) = TARGETS.iter().find(|(known, _)| known == name)
    {
        let digits = hex.as_bytes().chunks(2).map_while(|pair| std::str::from_utf8(pair).ok());
        let input: Vec<u8> = digits.map_while(|pair| u8::from_str_radix(pair, 16).ok()).collect();
        target(&input);
        return ExitCode::SUCCESS;
    }
    if let [flag, name, ..] = &arguments[..]
        && flag == "--only"
    {
        let target = TARGETS.iter().find(|(known, _)| known == name);
        return match (target, number(2, ITERATIONS), number(3, 1)) {
            (Some(target), Ok(inputs), Ok(seed)) if run(target, seed, inputs, Duration::MAX) => {
                ExitCode::SUCCESS
            }
            (Some(_), Ok(_), Ok(_)) => ExitCode::FAILURE,
            _ => {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                eprintln!("smoke --only TARGET INPUTS [SEED]; targets: {}", names.join(" "));
                ExitCode::from(2)
            }
        };
    }
    let (seed, seconds) = match (number(0, 1), number(1, SECONDS)) {
        (Ok(seed), Ok(seconds)) => (seed, seconds),
        (Err(wrong), _) | (_, Err(wrong)) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    println!("seed {seed}, at most {ITERATIONS} inputs and {seconds} s per target");
    let failed =
        TARGETS.iter().filter(|target| !run(target, seed, ITERATIONS, Duration::from_secs(seconds))).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the target held.
fn run(&(name, target): &Target, seed: u64, most: u64, bound: Duration) -> bool {
    let seeds = corpus::seeds(name);
    let start = Instant::now();
    let mut random = Random(seed);
    let good = seeds.iter().cloned();
    let made = std::iter::repeat_with(|| mutate(&seeds, &mut random));
    let (mut inputs, mut bytes) = (0u64, 0);
    for input in good.chain(made) {
        if inputs >= most || start.elapsed() >= bound {
            break;
        }
        inputs += 1;
        if inputs.is_multiple_of(1_000_000) {
            println!("{name:16} {inputs} inputs, {:.0} s", start.elapsed().as_secs_f64());
        }
        bytes += input.len();
        let before = ALLOCATED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        let allowed = MEMORY_BASE + MEMORY_PER_BYTE * input.len();
        if outcome.is_err() || taken > allowed {
            let hex: String = input.iter().take(4096).map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{name}: FAILED on input {inputs} of seed {seed} ({} bytes)", input.len());
            eprintln!("it took {taken} bytes of memory; {allowed} are allowed");
            eprintln!("input: {hex}");
            return false;
        }
    }
    println!("{name:16} {inputs:6} inputs, {bytes:9} bytes, {:.1} s", start.elapsed().as_secs_f64());
    true
}

fn write_corpus(folder: &str) -> ExitCode {
    for (name, _) in TARGETS {
        let folder = std::path::Path::new(folder).join(name);
        let written = std::fs::create_dir_all(&folder).and_then(|()| {
            let mut seeds = corpus::seeds(name).into_iter().enumerate();
            seeds.try_for_each(|(i, seed)| std::fs::write(folder.join(format!("seed-{i:03}")), seed))
        });
        if let Err(error) = written {
            eprintln!("write the corpus to {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A new input from the good ones.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(LONG_EVERY) == 0 {
        return long(seeds, random);
    }
    if random.below(10) == 0 {
        return (0..random.index(400)).map(|_| random.byte()).collect();
    }
    let mut input = seeds[random.index(seeds.len())].clone();
    for _ in 0..=random.below(3) {
        if input.is_empty() {
            break;
        }
        let at = random.index(input.len());
        match random.below(7) {
            0 | 1 => input[at] ^= 1 << random.below(8),
            2 => input[at] = random.byte(),
            3 => input.truncate(at),
            4 => {
                const NUMBERS: [u32; 8] = [0, 1, 64, 65, 1024, 1 << 20, i32::MAX as u32, u32::MAX];
                let number = NUMBERS[random.index(NUMBERS.len())].to_le_bytes();
                let end = input.len().min(at + 4);
                input[at..end].copy_from_slice(&number[..end - at]);
            }
            5 => {
                let other = &seeds[random.index(seeds.len())];
                let from = random.index(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let more = (0..=random.below(16)).map(|_| random.byte()).collect::<Vec<_>>();
                input.splice(at..at, more);
            }
        }
    }
    input
}

/// A good beginning, then one byte over and over: what a list with a great count is made of.
fn long(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.index(seeds.len())].clone();
    input.truncate(random.index(input.len() + 1));
    let count = [u32::MAX, 1 << 20, 1 << 16, 1024, 64][random.index(5)];
    input.extend_from_slice(&count.to_le_bytes());
    input.resize(LONG_BYTES, [0, 1, 2, 0xff][random.index(4)]);
    input
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one only counts")]
// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's requirement.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
