//! Bytes that are looked for, and the places where they were found. A needle is known by its first 8 bytes,
//! which are compared with those at each place of each stream.

use std::collections::HashMap;

use braid_wire::base64;

use crate::Result;
use crate::streams::Streams;

/// Bytes by which a needle is known, and of a piece of a file or secret.
const PIECE: usize = 8;
/// Bits of the filter before the table.
const FILTER_BITS: u32 = 27;
/// Places that are told of one thing.
const TOLD: usize = 3;

#[derive(Default)]
pub(crate) struct Needles {
    pub(crate) wanted: Vec<Wanted>,
    table: HashMap<u64, Vec<Needle>>,
    filter: Vec<u64>,
}

/// The needles of one line.
pub(crate) struct Wanted {
    hidden: bool,
    name: String,
    needles: u32,
    /// Needles of it that were found.
    found: u32,
    places: Vec<(&'static str, usize, usize)>,
}

struct Needle {
    of: usize,
    form: &'static str,
    /// The bytes after the first 8.
    rest: Vec<u8>,
    found: bool,
}

impl Needles {
    /// Looks for every piece of a file.
    pub(crate) fn file(&mut self, hidden: bool, name: &str, bytes: &[u8]) {
        let of = self.want(hidden, format!("file {name}"));
        for piece in bytes.chunks_exact(PIECE) {
            self.add(of, "as it is", piece);
        }
    }

    /// Looks for any part of a secret, and for all of it in hex and in base64.
    pub(crate) fn secret(&mut self, hidden: bool, name: &str, bytes: &[u8]) -> Result<()> {
        long_enough(bytes, name)?;
        let of = self.want(hidden, format!("secret {name}"));
        for part in bytes.windows(PIECE) {
            self.add(of, "as it is", part);
        }
        self.as_text(of, bytes);
        Ok(())
    }

    /// Looks for a name.
    pub(crate) fn name(&mut self, hidden: bool, bytes: &[u8]) -> Result<()> {
        let name = String::from_utf8_lossy(bytes);
        long_enough(bytes, &name)?;
        let of = self.want(hidden, format!("name {name}"));
        self.add(of, "as it is", bytes);
        self.as_text(of, bytes);
        Ok(())
    }

    fn want(&mut self, hidden: bool, name: String) -> usize {
        if let Some(known) = self.wanted.iter().position(|known| known.name == name) {
            return known;
        }
        self.wanted.push(Wanted { hidden, name, needles: 0, found: 0, places: Vec::new() });
        self.wanted.len() - 1
    }

    fn as_text(&mut self, of: usize, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.add(of, "in hex", hex.as_bytes());
        self.add(of, "in hex", hex.to_uppercase().as_bytes());
        // Base64 depends on where the bytes begin among three.
        for before in 0..3 {
            let text = base64::encode(&[&vec![0; before], bytes].concat());
            let whole = (before + bytes.len()) * 8 / 6;
            self.add(of, "in base64", &text.as_bytes()[(before * 8).div_ceil(6)..whole]);
        }
    }

    fn add(&mut self, of: usize, form: &'static str, bytes: &[u8]) {
        let Some((first, rest)) = bytes.split_first_chunk() else { return };
        let first = u64::from_le_bytes(*first);
        let there = self.table.entry(first).or_default();
        if there.iter().any(|it| it.of == of && it.rest == rest) {
            return;
        }
        there.push(Needle { of, form, rest: rest.to_vec(), found: false });
        self.wanted[of].needles += 1;
        self.filter.resize(1 << (FILTER_BITS - 6), 0);
        let bit = place_of(first);
        self.filter[bit >> 6] |= 1 << (bit & 63);
    }

    pub(crate) fn pieces(&self) -> u32 {
        self.wanted.iter().map(|wanted| wanted.needles).sum()
    }

    pub(crate) fn search(&mut self, streams: &Streams) {
        for (number, stream) in streams.all.iter().enumerate() {
            for (at, eight) in stream.bytes.windows(PIECE).enumerate() {
                let first = u64::from_le_bytes(eight.try_into().unwrap_or_default());
                let bit = place_of(first);
                if self.filter.get(bit >> 6).is_none_or(|bits| bits >> (bit & 63) & 1 == 0) {
                    continue;
                }
                for needle in self.table.get_mut(&first).into_iter().flatten() {
                    if stream.bytes[at + PIECE..].starts_with(&needle.rest) {
                        let wanted = &mut self.wanted[needle.of];
                        wanted.found += u32::from(!needle.found);
                        needle.found = true;
                        if wanted.places.len() < TOLD {
                            wanted.places.push((needle.form, number, at));
                        }
                    }
                }
            }
        }
    }

    /// Says what was found that should not be, and what was not that should. Returns true if all is right.
    pub(crate) fn report(&self, streams: &Streams) -> bool {
        let mut is_right = true;
        for Wanted { hidden, name, needles, found, places } in &self.wanted {
            if *hidden && *found > 0 {
                is_right = false;
                println!("SEEN: {name}, which is to be hidden: {found} of {needles} pieces");
                for (form, stream, at) in places {
                    let stream = &streams.all[*stream];
                    let from = at.saturating_sub(48);
                    let near = &stream.bytes[from..stream.bytes.len().min(at + 48)];
                    println!(
                        "  {form}, at {at} of {} to {}: {}",
                        stream.from,
                        stream.to,
                        near.escape_ascii()
                    );
                }
            }
            if !*hidden {
                // Hex may be of capital letters or small ones, and base64 begins in one of three places.
                let all = !name.starts_with("file ") || found == needles;
                let forms = ["as it is", "in hex", "in base64"];
                let has =
                    |form: &&&str| places.iter().any(|(there, ..)| there == *form) || self.has(name, form);
                let shown =
                    *found > 0 && all && (name.starts_with("file ") || forms.iter().filter(has).count() == 3);
                println!(
                    "{}: {name}: {found} of {needles} pieces",
                    if shown { "found, as it must be" } else { "NOT FOUND" }
                );
                is_right &= shown;
            }
        }
        let hidden = self.wanted.iter().filter(|wanted| wanted.hidden && wanted.found == 0).count();
        println!("not seen, as it must be: {hidden} secrets, names and files");
        is_right
    }

    fn has(&self, name: &str, form: &str) -> bool {
        let mut all = self.table.values().flatten();
        all.any(|needle| needle.found && needle.form == form && self.wanted[needle.of].name == name)
    }
}

fn place_of(first: u64) -> usize {
    let mixed = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS);
    usize::try_from(mixed).unwrap_or_default()
}

fn long_enough(bytes: &[u8], name: &str) -> Result<()> {
    let enough = bytes.len() >= PIECE;
    if enough {
        Ok(())
    } else {
        Err(format!("{name} is shorter than {PIECE} bytes: chance could find it").into())
    }
}
