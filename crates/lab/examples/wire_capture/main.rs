//! Records what goes over a network, and looks for what must not be there to be read.
//!
//!     wire_capture record FILE            packets of all interfaces of this network namespace, as pcap
//!     wire_capture search FILE WANTED     looks for all that the lines of WANTED name
//!
//! `record` needs root, and goes on until it is ended by a signal. `search` puts together what was sent in
//! each direction of each connection. It fails if anything of that is missing, as it could be there. Lines of
//! WANTED:
//!
//! | line | what is looked for |
//! |---|---|
//! | `hidden file NAME PATH` | the file's bytes, in pieces of 8, all over it: none may be there |
//! | `shown file NAME PATH` | the same: all must be there, which proves that the search finds |
//! | `hidden secret NAME HEX`, `shown ...` | any 8 bytes of it; all of it in hex and in base64 |
//! | `hidden name TEXT`, `shown ...` | the text as it is, in hex and in base64; from 8 bytes on |
//! | `hidden state PATH` | all secrets and names in a backup of the manager |
//! | `hidden drive NAME ID KEY` | the drive's master key, all keys that follow from it, and the private part of each capability of the drive that the capture itself shows |

mod keys;
mod needles;
mod record;
mod state;
mod streams;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use needles::Needles;
use streams::Streams;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["record", file] => record::record(Path::new(file)).map(|()| ExitCode::SUCCESS),
        ["search", file, wanted] => search(Path::new(file), &fs::read_to_string(wanted)?),
        _ => Err("say `record FILE` or `search FILE WANTED`".into()),
    }
}

fn search(file: &Path, wanted: &str) -> Result<ExitCode> {
    let streams = Streams::of_pcap(&fs::read(file)?)?;
    let mut needles = Needles::default();
    let mut drives = Vec::new();
    for line in wanted.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let hidden = match words[0] {
            "hidden" => true,
            "shown" => false,
            other => return Err(format!("{other:?} is neither hidden nor shown: {line}").into()),
        };
        match (words[1..].as_ref(), hidden) {
            (["file", name, path], _) => needles.file(hidden, name, &fs::read(path)?),
            (["secret", name, hex], _) => needles.secret(hidden, name, &keys::bytes(hex)?)?,
            (["name", text], _) => needles.name(hidden, text.as_bytes())?,
            (["state", path], true) => state::all_of(&fs::read(path)?, &mut needles)?,
            (["drive", name, id, key], true) => drives.push(keys::Drive::read(name, id, key)?),
            _ => return Err(format!("this line is not understood: {line}").into()),
        }
    }
    let capabilities = keys::all_of(&drives, &streams, &mut needles)?;
    println!(
        "{} streams, {} bytes; {capabilities} capabilities are seen in the clear; {} are looked for, in {} pieces",
        streams.all.len(),
        streams.bytes(),
        needles.wanted.len(),
        needles.pieces(),
    );
    needles.search(&streams);
    let lacks = streams.report_lacks();
    let is_right = needles.report(&streams);
    Ok(if is_right && !lacks { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
