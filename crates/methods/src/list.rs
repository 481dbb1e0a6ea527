//! The methods that there are.

use crate::arguments::{Arguments, ArgumentsError};
use crate::checksum::Checksum;
use crate::code::WASM;
use crate::count::Count;
use crate::csv::Csv;
use crate::frequent_sets::FrequentSets;
use crate::grep::Grep;
use crate::histogram::Histogram;
use crate::program::{Method, Program};
use crate::sample::Sample;
use crate::tree::Tree;

/// Every method that there is, by name.
pub const METHODS: &[Method] = &[
    Method {
        name: "checksum",
        about: "the file's BLAKE3 or SHA-256",
        arguments: "algorithm=blake3|sha256",
        answer_permille: 0,
        byte_ps: 700,
        needs_header: false,
        memory_bytes: 0,
        parse: Checksum::parse,
    },
    Method {
        name: "count",
        about: "how many records there are, and how many bytes",
        arguments: "records=lines|BYTES",
        answer_permille: 0,
        byte_ps: 150,
        needs_header: false,
        memory_bytes: 0,
        parse: Count::parse,
    },
    Method {
        name: "csv",
        about: "columns of the rows for which a condition holds, as CSV",
        arguments: "columns=NAME,... where='NAME<VALUE and ...' delimiter=CHARACTER format=csv|arrow header=LINE \
                    skip-first=yes|no",
        answer_permille: 50,
        byte_ps: 2_500,
        needs_header: true,
        memory_bytes: 0,
        parse: Csv::parse,
    },
    Method {
        name: "frequent-sets",
        about: "how many lines hold each set of items: one pass of the apriori algorithm",
        arguments: "candidates='1 2;1 3' limit=NUMBER",
        answer_permille: 5,
        byte_ps: 8_000,
        needs_header: false,
        memory_bytes: 0,
        parse: FrequentSets::parse,
    },
    Method {
        name: "grep",
        about: "the lines that a regular expression matches, with their offsets",
        arguments: "pattern=REGEX ignore-case=yes|no invert=yes|no count=yes|no",
        answer_permille: 20,
        byte_ps: 500,
        needs_header: false,
        memory_bytes: 0,
        parse: Grep::parse,
    },
    Method {
        name: "histogram",
        about: "how the lengths of records, or the numbers in a field of lines, are spread",
        arguments: "of=length|field field=NUMBER delimiter=CHARACTER from=NUMBER to=NUMBER bins=NUMBER",
        answer_permille: 1,
        byte_ps: 1_500,
        needs_header: false,
        memory_bytes: 0,
        parse: Histogram::parse,
    },
    Method {
        name: "sample",
        about: "some records, drawn by a seed: the same ones, however the file is laid out",
        arguments: "count=NUMBER seed=NUMBER records=lines|BYTES",
        answer_permille: 1,
        byte_ps: 400,
        needs_header: false,
        memory_bytes: 0,
        parse: Sample::parse,
    },
    Method {
        name: "tree",
        about: "hashes of the file's blocks, by which two files are compared",
        arguments: "blocks=NUMBER",
        answer_permille: 1,
        byte_ps: 700,
        needs_header: false,
        memory_bytes: 0,
        parse: Tree::parse,
    },
    Method {
        name: WASM,
        about: "what code of your own, compiled to WebAssembly, answers (docs/methods.md)",
        arguments: "module=HASH|FILE records=lines|BYTES, and those of the module",
        answer_permille: 20,
        byte_ps: 1_000,
        needs_header: false,
        memory_bytes: 0,
        parse: crate::code::parse,
    },
];

/// The method of this name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// The method of this name with its arguments, for a file of `size` bytes.
pub fn parse(name: &str, arguments: &Arguments, size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
    let method = find(name).ok_or_else(|| unknown(name))?;
    (method.parse)(arguments, size)
}

/// The error for a name that no method has.
pub fn unknown(name: &str) -> ArgumentsError {
    let known = METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", ");
    ArgumentsError::Unknown { name: name.to_owned(), known }
}
