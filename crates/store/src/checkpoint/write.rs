//! Writes checkpoints.

use std::io;

use super::{DIR, KeptCheckpoint, file_name, new_name};
use crate::disk::{Syncing, tolerate, write_full};
use crate::files::Files;
use crate::format::checkpoint::{CheckpointEnd, ROWS_MAX, SegmentRow, Totals};
use crate::format::page::{FIXED_BYTES, Key, PAGE_BYTES_MAX, PageHead};
use crate::format::superblock::Superblock;
use crate::index::large_object;
use crate::index::locked::Locked;

/// Pages are gathered into writes of about this many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// Waits for a turn at the disk in which so many bytes are written.
pub(crate) type Turn<'a> = &'a dyn Fn(u64) -> Option<Box<dyn Send>>;

/// Writes checkpoint `number` of `index` and renames it to its final name. If that fails, the unfinished file
/// is removed, unless it was renamed already.
pub(crate) fn write(
    files: &Files,
    index: &Locked,
    superblock: &Superblock,
    number: u32,
    syncing: Syncing,
    turn: Turn<'_>,
) -> io::Result<KeptCheckpoint> {
    let disk = files.disk();
    // Formatting the store made the directory. It is made again here in case the owner has deleted it.
    match disk.make_dir(DIR) {
        Ok(()) if syncing.is_on() => disk.sync_dir("")?,
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let temporary = new_name(number);
    tolerate(io::ErrorKind::NotFound, disk.remove(&temporary))?;
    let written = write_new(files, index, superblock, number, syncing, turn).and_then(|kept| {
        disk.rename(&temporary, &file_name(number))?;
        if syncing.is_on() {
            disk.sync_dir(DIR)?;
        }
        Ok(kept)
    });
    if written.is_err() {
        let _ = disk.remove(&temporary);
    }
    written
}

fn write_new(
    files: &Files,
    index: &Locked,
    superblock: &Superblock,
    number: u32,
    syncing: Syncing,
    turn: Turn<'_>,
) -> io::Result<KeptCheckpoint> {
    let file = files.disk().create(&new_name(number))?;
    let mut end = begin(index, superblock, number);
    if end.segments.len() > ROWS_MAX {
        return Err(io::Error::other("the log has more segments than a checkpoint can name"));
    }
    let mut buffer = end.encode();
    let mut at = 0;
    let mut pages = 0;
    let mut durable_to = end.replay.sequence - 1;
    let mut from = Key::FIRST;
    while from != Key::End {
        let page = index.read().image(from);
        // An object that was removed meanwhile has no page: look again from the same key.
        let Some(image) = page.or_else(|| large_object::image(index, from)) else { continue };
        let parts = u32::try_from(image.parts.len()).expect("an object's pages are bounded");
        for (part, entries) in (0..).zip(&image.parts) {
            if entries.len() > PAGE_BYTES_MAX - FIXED_BYTES {
                let what = format!("the entry of {from} is longer than a page may be");
                return Err(io::Error::other(what));
            }
            let head = PageHead {
                checkpoint: number,
                salt: superblock.salt,
                index: pages,
                as_of: image.as_of,
                from,
                to: image.to,
                part,
                parts,
            };
            buffer.extend_from_slice(&head.encode(entries));
            pages += 1;
            if buffer.len() >= WRITE_BYTES {
                let bytes = u64::try_from(buffer.len()).expect("a length");
                let _turn = turn(bytes);
                write_full(&*file, &[&buffer], at)?;
                file.start_writing(at..at + bytes)?;
                at += bytes;
                buffer.clear();
            }
        }
        durable_to = durable_to.max(image.as_of);
        from = image.to;
    }
    end.totals = Some(Totals { pages, durable_to });
    buffer.extend_from_slice(&end.encode());
    write_full(&*file, &[&buffer], at)?;
    at += u64::try_from(buffer.len()).expect("a length");
    if syncing.is_on() {
        file.sync_all()?;
    }
    Ok(KeptCheckpoint { number, bytes: at, replay: end.replay })
}

/// The header's contents: everything that replay needs to know of the log as it is now.
fn begin(index: &Locked, superblock: &Superblock, number: u32) -> CheckpointEnd {
    let index = index.read();
    let rows = index.segments.all.iter().map(|(&number, segment)| SegmentRow {
        number,
        damaged: segment.damaged,
        bytes: segment.bytes,
        first_sequence: segment.first_sequence,
    });
    CheckpointEnd {
        number,
        drive: superblock.drive,
        salt: superblock.salt,
        replay: index.head,
        appended: index.appended,
        segments: rows.collect(),
        totals: None,
    }
}
