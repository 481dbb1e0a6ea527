//! The damage of each damaged image, and its position in the healthy one.

use braid_store::decode_record;
use braid_store::format::record::{Kind, Record};
use braid_store::format::segment::{self, SegmentHeader};

use super::text::{Image, Patch};
use crate::common::*;

/// A damaged image.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Description of the damage.
    pub(super) what: &'static str,
    /// Makes the damage.
    pub(super) plant: fn(&Image) -> Vec<Patch>,
}

const OLDER: &str = "checkpoint/00000004.ckp";
const NEWEST: &str = "checkpoint/00000005.ckp";
/// The offset of a small checkpoint's first page.
const FIRST_PAGE: usize = 1024;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "payload",
        what: "A byte of a payload that was moved long ago is another.",
        plant: |image| {
            let (file, at, record) = moved(image, 1);
            vec![flip(image, &file, at + header(&record) + 12_000)]
        },
    },
    Case {
        name: "header",
        what: "A byte of a record's header, long before the tail, is another.",
        plant: |image| {
            let (file, at, _) = moved(image, 3);
            vec![flip(image, &file, at + 90)]
        },
    },
    Case {
        name: "tail_header",
        what: "A byte of a write's header in the tail, which the next commit vouches for, is another.",
        plant: |image| {
            let (file, at, _) = written(image, version(2, 71));
            vec![flip(image, &file, at + 130)]
        },
    },
    Case {
        name: "tail_payload",
        what: "A byte of a payload in the tail, which the next commit vouches for, is another.",
        plant: |image| {
            let (file, at, record) = written(image, version(2, 71));
            vec![flip(image, &file, at + header(&record) + 500)]
        },
    },
    Case {
        name: "tail_attributes",
        what: "The record with an object's newest attributes is damaged.",
        plant: |image| {
            let (file, at, _) = last(image, |record| record.kind == Kind::ObjectAttributes);
            vec![flip(image, &file, at)]
        },
    },
    Case {
        name: "tail_partition",
        what: "The record with a partition's newest values is damaged.",
        plant: |image| {
            let (file, at, _) = last(image, |record| record.kind == Kind::PartitionSet);
            vec![flip(image, &file, at + 16)]
        },
    },
    Case {
        name: "tail_create",
        what: "The record that made an object in the tail is damaged.",
        plant: |image| {
            let (file, at, _) =
                last(image, |record| record.kind == Kind::ObjectCreate && record.object.0 == 6);
            vec![flip(image, &file, at + 256)]
        },
    },
    Case {
        name: "tail_two_headers",
        what: "Two records of one page in the tail are damaged: the record after them tells what they were about.",
        plant: |image| {
            let (file, at, record) = last(image, |record| record.kind == Kind::PartitionSet);
            let next = at + usize::try_from(record.disk_bytes()).expect("small");
            vec![flip(image, &file, at + 200), flip(image, &file, next + 200)]
        },
    },
    Case {
        name: "tail_two_pages",
        what: "Two records in a row in the tail, on different pages, are damaged: nobody knows what the first was about.",
        plant: |image| {
            let (file, at, record) =
                last(image, |record| record.kind.writes() && record.payload_bytes > 4096);
            let next = at + usize::try_from(record.disk_bytes()).expect("small");
            vec![flip(image, &file, at + 200), flip(image, &file, next + 200)]
        },
    },
    Case {
        name: "tail_wrong_place",
        what: "A header in the tail was written over another's.",
        plant: |image| {
            let (from, at, _) = written(image, version(2, 71));
            let bytes = image[&from][at..at + 512].to_vec();
            let (file, offset, _) = written(image, version(2, 76));
            vec![Patch::Put { file, offset, bytes }]
        },
    },
    Case {
        name: "torn",
        what: "The last commit is there in part: it was never acknowledged.",
        plant: |image| {
            let (file, at, record) = last(image, |_| true);
            vec![Patch::Cut { file, length: at + header(&record) + 100 }]
        },
    },
    Case {
        name: "torn_payload",
        what: "A byte of the very last payload is another, which cannot be told from a torn write.",
        plant: |image| {
            let (file, at, record) = last(image, |_| true);
            vec![flip(image, &file, at + header(&record) + 3)]
        },
    },
    Case {
        name: "missing_segment",
        what: "A segment before the tail is gone.",
        plant: |image| vec![Patch::Remove { file: moved(image, 3).0 }],
    },
    Case {
        name: "missing_tail_segment",
        what: "A segment of the tail is gone.",
        plant: |image| vec![Patch::Remove { file: written(image, version(1, 72)).0 }],
    },
    Case {
        name: "short_segment",
        what: "A sealed segment of the tail ends in the middle of a record.",
        plant: |image| {
            let (file, at, _) = written(image, version(1, 73));
            vec![Patch::Cut { file, length: at + 5000 }]
        },
    },
    Case {
        name: "segment_header",
        what: "A byte of the header of a segment of the tail is another.",
        plant: |image| vec![flip(image, &written(image, version(1, 73)).0, 44)],
    },
    Case {
        name: "foreign_segment",
        what: "The header of a segment of the tail is another store's.",
        plant: |image| {
            let file = written(image, version(1, 73)).0;
            let own = SegmentHeader::decode(&image[&file][..segment::BYTES]).expect("a header");
            let bytes = SegmentHeader { salt: own.salt + 1, ..own }.encode().to_vec();
            vec![Patch::Put { file, offset: 0, bytes }]
        },
    },
    Case {
        name: "behind_segment",
        what: "Bytes stand behind the end of a sealed segment, as a failed write leaves them.",
        plant: |image| {
            let file = moved(image, 3).0;
            let offset = image[&file].len();
            vec![Patch::Put { file, offset, bytes: vec![7; 40] }]
        },
    },
    Case {
        name: "page",
        what: "A byte of a page of the newest checkpoint is another; the older one is whole.",
        plant: |image| vec![flip(image, NEWEST, FIRST_PAGE + 300)],
    },
    Case {
        name: "page_alone",
        what: "A byte of a page of the only checkpoint is another, and the log's beginning is gone: its keys are lost.",
        plant: |image| vec![Patch::Remove { file: OLDER.to_owned() }, flip(image, NEWEST, FIRST_PAGE + 300)],
    },
    Case {
        name: "checkpoint_header",
        what: "A byte of the newest checkpoint's header is another: its trailer will do.",
        plant: |image| vec![flip(image, NEWEST, 20)],
    },
    Case {
        name: "checkpoint_trailer",
        what: "A byte of the newest checkpoint's trailer is another: its header will do.",
        plant: |image| vec![flip(image, NEWEST, image[NEWEST].len() - 400)],
    },
    Case {
        name: "checkpoint_ends",
        what: "Both ends of the newest checkpoint are damaged: it is as if the file was not there.",
        plant: |image| vec![flip(image, NEWEST, 20), flip(image, NEWEST, image[NEWEST].len() - 400)],
    },
    Case {
        name: "no_checkpoint",
        what: "Both checkpoints are gone, and so is the log's beginning.",
        plant: |_| [OLDER, NEWEST].map(|file| Patch::Remove { file: file.to_owned() }).into(),
    },
    Case {
        name: "superblock",
        what: "A byte of the superblock is another.",
        plant: |image| vec![flip(image, "superblock", 40)],
    },
];

/// A file, an offset in it, and the record there.
type LogPosition = (String, usize, Record);

/// A flipped bit in a byte.
fn flip(image: &Image, file: &str, offset: usize) -> Patch {
    Patch::Put { file: file.to_owned(), offset, bytes: vec![image[file][offset] ^ 0x10] }
}

fn header(record: &Record) -> usize {
    record.header_padded()
}

/// The last record in the log that `is` accepts.
fn last(image: &Image, is: impl Fn(&Record) -> bool) -> LogPosition {
    let places = image.iter().filter(|(file, _)| file.starts_with("log/")).flat_map(|(file, bytes)| {
        (0..bytes.len()).step_by(512).filter_map(move |at| {
            let record = decode_record(&bytes[at..]).ok()?;
            Some((file.clone(), at, record))
        })
    });
    places.filter(|(_, _, record)| is(record)).last().expect("such a record")
}

/// The last record that wrote a version.
fn written(image: &Image, version: braid_layout::Version) -> LogPosition {
    last(image, |record| record.kind.writes() && record.version == version)
}

/// The last record in which the cleaner moved a unit of object 1.
fn moved(image: &Image, unit: u64) -> LogPosition {
    last(image, |record| record.kind == Kind::Move && record.object.0 == 1 && record.unit == unit)
}
