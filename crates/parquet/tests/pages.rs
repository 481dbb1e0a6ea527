//! Tables of many kinds, judged page by page in pieces of any length: the result is that of the crate
//! parquet's own reader.

#[path = "tables/mod.rs"]
mod tables;

use std::collections::BTreeMap;
use std::ops::Range;

use braid_methods::run_piece;
use braid_parquet::{
    AT_CLIENT, AT_DRIVE, Answer, Asked, Chunk, Condition, Dictionary, Footer, Form, Limits, Next, PAGES,
    Page, PageError, Parts, Rows, Step, Table, TableError, Values, Walk, entries, joined, request, rows_of,
    values_of,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use tables::{CONDITIONS, Draw, expected, of_stream};

const COLUMNS: &[&str] =
    &["s", "id", "f", "d", "t", "b", "u", "large", "word", "fixed", "date", "a", "list", "both"];

/// A file in memory, read as a client does.
struct Reading<'a> {
    file: &'a [u8],
    table: Table,
    draw: Draw,
    /// Pages that the method of drives did not judge.
    left: usize,
}

fn cut(file: &[u8], range: &Range<u64>) -> Vec<u8> {
    let at = |byte: u64| usize::try_from(byte).expect("small");
    file[at(range.start)..at(range.end)].to_vec()
}

fn open(file: &[u8], columns: Option<&str>, condition: Option<&str>) -> Result<Table, TableError> {
    let bytes = u64::try_from(file.len()).expect("small");
    let mut footer = Footer::new(bytes)?;
    loop {
        match footer.step()? {
            Next::Known(metadata) => return Table::new(*metadata, bytes, columns, condition),
            Next::Read(range) => footer.push(range.clone(), cut(file, &range))?,
        }
    }
}

impl Reading<'_> {
    fn chunk(&self, group: usize, leaf: usize) -> Chunk {
        if let Some(range) = self.table.places_range(group, leaf) {
            return self.table.placed(group, leaf, &cut(self.file, &range)).expect("a good index");
        }
        let mut walk = Walk::new(self.table.chunk_range(group, leaf), self.table.rows(group));
        loop {
            match walk.step() {
                Step::Known(chunk) => return chunk,
                Step::Read(range) => assert!(walk.push(&cut(self.file, &range)), "a good header"),
                Step::Bad => panic!("good headers"),
            }
        }
    }

    /// The answers for pages as a drive gives them, piece by piece.
    fn asked(&mut self, form: &Form, chunk: &Chunk, rows: &Rows, conditions: Option<&str>) -> Vec<u8> {
        let dictionary = match &chunk.dictionary {
            None => Dictionary::None,
            Some(range) if self.draw.below(2) == 0 => Dictionary::Here(range.clone()),
            Some(range) => Dictionary::Told(cut(self.file, range)),
        };
        let pages = chunk.touched(rows);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        if let Dictionary::Here(range) = &dictionary {
            ranges.push(range.clone());
        }
        ranges.extend(pages.iter().map(|page| page.range()));
        let arguments = request(&[Asked { form, dictionary, pages }], rows, conditions);
        let program = (PAGES.parse)(&arguments, 1).expect("a good request");
        let mut running = program.begin();
        for range in ranges {
            let bytes = cut(self.file, &range);
            let length = 1 + usize::try_from(self.draw.below(2000)).expect("small");
            let mut at = range.start;
            for piece in bytes.chunks(length) {
                let edge = run_piece(&*program, &mut *running, at, piece).expect("it goes on");
                assert_eq!(edge.bytes(), 0, "nothing of it is returned");
                at = edge.to;
            }
        }
        running.partial()
    }

    fn rows(&mut self, group: usize, condition: &Condition, rows: &Rows) -> Rows {
        let form = self.table.form(group, condition.leaf).expect("a flat column");
        let chunk = self.chunk(group, condition.leaf);
        let mut rows = rows.clone();
        let index =
            (self.table.places_range(group, condition.leaf), self.table.bounds_range(group, condition.leaf));
        if let (Some(places), Some(bounds)) = index {
            let kept = self.table.kept(condition, group, &cut(self.file, &places), &cut(self.file, &bounds));
            rows = &rows & &kept.expect("a good index");
        }
        let partial = self.asked(&form, &chunk, &rows, Some(&condition.text));
        let known = entries(&partial).expect("entries");
        let mut judged = BTreeMap::new();
        for page in chunk.touched(&rows) {
            let among = rows.slice(page.first, page.rows);
            let own = known.get(&page.offset).map(|answer| rows_of(answer, &among).expect("rows"));
            let own = own.unwrap_or_else(|| {
                self.left += 1;
                let dictionary = chunk.dictionary.as_ref().map(|range| cut(self.file, range));
                let bytes = cut(self.file, &page.range());
                let page =
                    Page { form: &form, dictionary: dictionary.as_deref(), bytes: &bytes, rows: page.rows };
                page.filtered(&condition.predicate, &among, AT_CLIENT).expect("it is judged")
            });
            judged.insert(page.first, own);
        }
        let parts = Parts::new(
            vec![(
                self.table.chunk_range(group, condition.leaf).start,
                cut(self.file, &self.table.chunk_range(group, condition.leaf)),
            )],
            u64::try_from(self.file.len()).expect("small"),
        );
        let selected = chunk.rows_of(rows.len(), &judged);
        let whole = self.table.filtered(condition, group, parts, &rows).expect("it is judged");
        assert_eq!(whole, selected, "{}", condition.text);
        selected
    }

    fn values(&mut self, group: usize, leaf: usize, rows: &Rows) -> Values {
        let form = self.table.form(group, leaf).expect("a flat column");
        let chunk = self.chunk(group, leaf);
        let partial = self.asked(&form, &chunk, rows, None);
        let known = entries(&partial).expect("entries");
        let pages = chunk.touched(rows);
        let values = pages.iter().map(|page| {
            let count = rows.slice(page.first, page.rows).count_set_bits();
            let answer = known.get(&page.offset).expect("small pages are answered for");
            values_of(&form, count, answer).expect("values")
        });
        joined(&values.collect::<Vec<_>>()).expect("one column")
    }

    fn answer(&mut self) -> Vec<u8> {
        let mut answer = Answer::new(&self.table).expect("an answer");
        for group in 0..self.table.groups() {
            if !self.table.may_hold(group) {
                continue;
            }
            let mut rows = Rows::new_set(self.table.rows(group));
            for condition in self.table.conditions.clone() {
                rows = self.rows(group, &condition, &rows);
            }
            if rows.count_set_bits() == 0 {
                continue;
            }
            let mut columns = Vec::new();
            for column in self.table.wanted.clone() {
                columns.push(match column.leaf {
                    Some(leaf) => self.values(group, leaf, &rows),
                    None => {
                        let leaves = self.table.leaves(column.root);
                        let ranges = leaves.iter().map(|&leaf| self.table.chunk_range(group, leaf));
                        let parts = ranges.map(|range| (range.start, cut(self.file, &range))).collect();
                        let parts = Parts::new(parts, u64::try_from(self.file.len()).expect("small"));
                        self.table.projected(&column, group, parts, &rows).expect("it is decoded")
                    }
                });
            }
            answer.add(&self.table, columns, rows.count_set_bits()).expect("columns that fit");
        }
        answer.finish().expect("a stream")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pages_are_judged_as_the_whole_file_is(seed in 1..u64::MAX, rows in 1_usize..1500) {
        let mut draw = Draw(seed);
        let table = tables::table(&mut draw, rows);
        let file = tables::file(&mut draw, &table);
        for round in 0..3 {
            let condition = CONDITIONS.get(usize::try_from(draw.below(12)).expect("small"));
            let columns = &COLUMNS[usize::try_from(draw.below(5)).expect("small") * 3..];
            let columns = if round == 0 { COLUMNS } else { columns };
            let table = open(&file, Some(&columns.join(",")), condition.map(|own| own.0)).expect("a table");
            let mut reading = Reading { file: &file, table, draw: Draw(seed ^ 7), left: 0 };
            let stream = reading.answer();
            prop_assert_eq!(reading.left, 0, "small pages are answered for");
            let own = of_stream(&stream);
            let other = expected(&file, columns, condition.map(|own| own.1));
            prop_assert!(own.schema().fields() == other.schema().fields(), "the same types");
            prop_assert!(own == other, "{:?}: {:?} {:?}", condition.map(|own| own.0), own, other);
        }
    }
}

#[test]
fn statistics_exclude_row_groups_and_pages() {
    let table = tables::table(&mut Draw(5), 4000);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(1000))
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(50);
    let file = tables::write(&table, properties.build());
    let table = open(&file, Some("a"), Some("id>=2150 and id<2160")).expect("a table");
    let groups: Vec<usize> = (0..table.groups()).filter(|&group| table.may_hold(group)).collect();
    assert_eq!(groups, [2]);
    let index = |range: Option<Range<u64>>| cut(&file, &range.expect("there is an index"));
    let leaf = table.conditions[0].leaf;
    let places = index(table.places_range(2, leaf));
    let kept = table.kept(&table.conditions[0], 2, &places, &index(table.bounds_range(2, leaf)));
    assert_eq!(kept.expect("it is told").count_set_bits(), 100);
    let chunk = table.placed(2, leaf, &places).expect("good places");
    let mut walk = Walk::new(table.chunk_range(2, leaf), table.rows(2));
    while let Step::Read(range) = walk.step() {
        assert!(walk.push(&cut(&file, &range)));
    }
    assert_eq!(walk.step(), Step::Known(chunk), "the headers tell what the index tells");
}

#[test]
fn what_is_no_parquet_file_or_a_damaged_one_is_named() {
    let table = tables::table(&mut Draw(5), 400);
    let file = tables::write(&table, WriterProperties::builder().build());
    let refused = |bytes: &[u8]| open(bytes, None, None).expect_err("it is refused").to_string();
    for bytes in [&b""[..], b"PAR1", b"a text that is longer than a footer"] {
        assert!(refused(bytes).contains("no Parquet file"), "{}", refused(bytes));
    }
    assert!(refused(&file[..file.len() - 1]).contains("no Parquet file"));
    let mut encrypted = file.clone();
    encrypted.truncate(file.len() - 4);
    encrypted.extend_from_slice(b"PARE");
    assert!(refused(&encrypted).contains("encrypt"), "{}", refused(&encrypted));
    let mut long = file.clone();
    let end = long.len();
    long[end - 8..end - 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    refused(&long);
    // The footer, byte by byte: an error or a table, and no panic.
    for at in end - 3000..end - 8 {
        let mut damaged = file.clone();
        damaged[at] ^= 0x15;
        if let Ok(table) = open(&damaged, None, Some("id>3")) {
            for group in 0..table.groups() {
                table.may_hold(group);
            }
        }
    }
    let error = |columns, condition| open(&file, columns, condition).expect_err("it is refused").to_string();
    assert!(error(Some("id,no"), None).contains("it has: id, a, s"));
    assert!(error(None, Some("no=1")).contains("no such column"));
    assert!(error(None, Some("a=x")).contains("no value of its type, Int32"));
    assert!(error(None, Some("list=1")).contains("are not compared"));
    assert!(error(None, Some("a like x")).contains("give a column"));
}

#[test]
fn damaged_pages_and_claims_of_too_much_are_refused() {
    let table = tables::table(&mut Draw(5), 400);
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        let properties = WriterProperties::builder().set_compression(codec).set_dictionary_enabled(false);
        let file = tables::write(&table, properties.build());
        let table = open(&file, Some("large"), Some("id>3")).expect("a table");
        let reading = Reading { file: &file, table, draw: Draw(1), left: 0 };
        let leaf = reading.table.wanted[0].leaf.expect("it is flat");
        let form = reading.table.form(0, leaf).expect("it is flat");
        let place = reading.chunk(0, leaf).pages[0];
        let good = cut(&file, &place.range());
        let all = Rows::new_set(place.rows);
        let judged = |bytes: &[u8], rows: usize, limits: Limits| {
            Page { form: &form, dictionary: None, bytes, rows }.projected(&all, limits)
        };
        assert!(judged(&good, place.rows, AT_DRIVE).is_ok());
        assert!(matches!(judged(&good, place.rows - 1, AT_DRIVE), Err(PageError::Header)));
        assert!(matches!(judged(&good[1..], place.rows, AT_DRIVE), Err(PageError::Header)));
        let few = Limits { page_bytes: 100, ..AT_DRIVE };
        assert!(matches!(judged(&good, place.rows, few), Err(PageError::TooLarge { .. })));
        let few = Limits { value_bytes: 100, ..AT_DRIVE };
        assert!(matches!(judged(&good, place.rows, few), Err(PageError::Values(100))));
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x55;
            // An error or other values, and no panic.
            let _ = judged(&damaged, place.rows, AT_DRIVE);
        }
        // A header that claims 2 GB: type, uncompressed and compressed size.
        let mut bomb = vec![0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 8];
        bomb.extend_from_slice(&[0x2c, 0x15, 8, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 1, 2, 3, 4]);
        let page = Page { form: &form, dictionary: None, bytes: &bomb, rows: 4 };
        let error = page.projected(&Rows::new_set(4), AT_CLIENT).expect_err("a bomb").to_string();
        assert!(error.contains("it claims 2147483647 bytes"), "{error}");
    }
}
