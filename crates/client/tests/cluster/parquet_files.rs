//! `parquet`: the answer is that of the crate parquet's own reader, whatever the layout and the failures.

#[path = "../../../parquet/tests/tables/mod.rs"]
mod tables;

use arrow_array::RecordBatch;
use braid_client::{Answer, Arguments, Client, Name, OpenOptions, Ran, RunAsk, RunAt};
use braid_layout::{Scheme, Shape};
use parquet::file::properties::WriterProperties;
use tables::{CONDITIONS, Draw, expected, of_stream};

use crate::common::{Cluster, name, shape};

async fn write(client: &Client, at: &Name, shape: Shape, bytes: &[u8]) {
    let options = OpenOptions::new().write(true).create(true).shape(shape);
    let file = client.open(at, &options).await.expect("create");
    file.write_at(bytes, 0).await.expect("write");
    file.close().await.expect("close");
}

fn asked(columns: &[&str], condition: Option<&str>) -> RunAsk {
    let arguments = Arguments::default().with("columns", columns.join(","));
    let arguments = match condition {
        None => arguments,
        Some(condition) => arguments.with("where", condition),
    };
    RunAsk::new("parquet", arguments)
}

fn stream(ran: &Ran) -> &[u8] {
    let Answer::Arrow(stream) = &ran.answer else { panic!("a stream") };
    stream
}

async fn check(client: &Client, at: &Name, file: &[u8], columns: &[&str], number: usize, what: &str) -> Ran {
    let condition = CONDITIONS.get(number);
    let text = condition.map(|own| own.0);
    let ask = asked(columns, text);
    let here = client.run(at, &ask.clone().at(RunAt::Client)).await;
    let here = here.unwrap_or_else(|error| panic!("{what}: {text:?}: {error}"));
    let there = client.run(at, &ask.at(RunAt::Drives)).await;
    let there = there.unwrap_or_else(|error| panic!("{what}: {text:?}: {error}"));
    assert_eq!((here.bytes_at_drives, here.asked_bytes), (0, 0), "{what}: {text:?}");
    let expected: RecordBatch = expected(file, columns, condition.map(|own| own.1));
    assert!(of_stream(stream(&here)) == expected, "{what}: {text:?} at the client");
    assert!(of_stream(stream(&there)) == expected, "{what}: {text:?} at the drives");
    there
}

#[tokio::test(flavor = "multi_thread")]
async fn drives_answer_as_the_whole_file_does_in_any_layout_and_without_a_drive() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let shapes = [
        shape(Scheme::Raid0, 3, 0, 4096),
        shape(Scheme::Raid1, 1, 1, 16384),
        shape(Scheme::Raid5, 4, 1, 8192),
        shape(Scheme::Rs, 3, 2, 32768),
        shape(Scheme::Raid5, 2, 1, 1 << 20),
    ];
    let columns =
        ["s", "id", "f", "d", "t", "b", "u", "large", "word", "fixed", "date", "a", "list", "both", "s"];
    let mut degraded = Vec::new();
    let mut at_drives = 0;
    for (number, shape) in (1..).zip(shapes.into_iter().cycle().take(10)) {
        let mut draw = Draw(number * 77 + 1);
        let rows = usize::try_from(draw.below(2500)).expect("few") + 1;
        let table = tables::table(&mut draw, rows);
        let file = tables::file(&mut draw, &table);
        let at = name(&format!("f{number}"));
        write(&client, &at, shape, &file).await;
        for own in [usize::try_from(number).expect("small") % CONDITIONS.len(), CONDITIONS.len()] {
            at_drives += check(&client, &at, &file, &columns, own, &format!("{shape}, {number}"))
                .await
                .bytes_at_drives;
        }
        if shape.m() > 0 {
            degraded.push((at, file));
        }
    }
    assert!(at_drives > 0, "drives judge pages");
    cluster.kill(1);
    for (at, file) in degraded {
        check(&client, &at, &file, &columns, 1, "a drive is away").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_percent_little_more_than_the_answer_moves() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let table = tables::table(&mut Draw(9), 100_000);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(50_000))
        .set_data_page_row_count_limit(2000)
        .set_write_batch_size(500);
    let file = tables::write(&table, properties.build());
    let columns = ["id", "f", "large", "date"];
    // Units of 1 MiB end in pages: these are read.
    for unit in [1 << 20, 16 << 20] {
        let at = name(&format!("f{unit}"));
        write(&client, &at, shape(Scheme::Raid5, 2, 1, unit), &file).await;
        let ran = client.run(&at, &asked(&columns, Some("a=7")).at(RunAt::Drives)).await.expect("run");
        assert!(of_stream(stream(&ran)) == expected(&file, &columns, Some(CONDITIONS[1].1)), "a=7");
        let answer = u64::try_from(stream(&ran).len()).expect("small");
        let moved = ran.answer_bytes + ran.read_bytes + ran.asked_bytes;
        println!(
            "units of {unit}: file {}, answer {answer}, moved {moved}: answers {}, read {}, asked {}",
            ran.bytes, ran.answer_bytes, ran.read_bytes, ran.asked_bytes
        );
        let most = if unit == 1 << 20 { ran.bytes / 2 } else { 2 * answer };
        assert!(moved < most, "units of {unit}: {moved} for {answer}");
        // What statistics exclude is not touched.
        let ran = client.run(&at, &asked(&columns, Some("id>=100 and id<160"))).await.expect("run");
        let touched = ran.bytes_at_drives + ran.read_bytes;
        assert!(touched < ran.bytes / 10, "units of {unit}: {touched} of {}", ran.bytes);
    }
}

/// Pages of more bytes, at once, than a client reads at once.
#[tokio::test(flavor = "multi_thread")]
async fn many_pages_that_the_client_reads_do_not_wait_for_each_other() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let table = tables::table(&mut Draw(9), 200_000);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(parquet::basic::Compression::UNCOMPRESSED)
        .set_max_row_group_row_count(Some(200_000))
        .set_data_page_row_count_limit(4000)
        .set_write_batch_size(500);
    let file = tables::write(&table, properties.build());
    let at = name("f");
    write(&client, &at, shape(Scheme::Raid5, 2, 1, 1 << 20), &file).await;
    let ask = asked(&["f", "large"], None).at(RunAt::Client);
    let ran = tokio::time::timeout(std::time::Duration::from_secs(120), client.run(&at, &ask)).await;
    let ran = ran.expect("it does not hang").expect("run");
    assert!(of_stream(stream(&ran)) == expected(&file, &["f", "large"], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_questions_and_damaged_files_are_named() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let raid5 = shape(Scheme::Raid5, 2, 1, 4096);
    let refused = async |at: &Name, columns: &[&str], condition: Option<&str>, what: &str| {
        for place in [RunAt::Drives, RunAt::Client] {
            let ask = asked(columns, condition).at(place);
            let error = client.run(at, &ask).await.expect_err("it is refused").to_string();
            assert!(error.contains(what), "{place:?}: {error}");
        }
    };
    let text = name("text");
    write(&client, &text, raid5, &b"a,b\n1,2\n".repeat(100)).await;
    refused(&text, &["a"], None, "it is no Parquet file").await;
    let empty = name("empty");
    write(&client, &empty, raid5, b"").await;
    refused(&empty, &["a"], None, "it is no Parquet file").await;

    let table = tables::table(&mut Draw(3), 2000);
    let properties = WriterProperties::builder().set_dictionary_enabled(false);
    let mut file = tables::write(&table, properties.build());
    let good = name("good");
    write(&client, &good, raid5, &file).await;
    refused(&good, &["no"], None, "the file has no such column; it has: id, a").await;
    refused(&good, &["a"], Some("a=x"), "is no value of its type, Int32").await;
    // The header of the first page claims 2 GB.
    file.splice(4..14, [0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 8]);
    let bomb = name("bomb");
    write(&client, &bomb, raid5, &file).await;
    refused(&bomb, &["id"], None, "row group 0, column \"id\"").await;

    let csv = name("sales.csv");
    write(&client, &csv, raid5, b"item,price\ntea,3\ncoffee,7.5\n").await;
    let arguments = Arguments::default().with("where", "price>1 and item=tea").with("format", "arrow");
    let ran = client.run(&csv, &RunAsk::new("csv", arguments)).await.expect("run");
    let own = of_stream(stream(&ran));
    assert_eq!((own.num_rows(), own.schema().field(1).data_type().to_string()), (1, "Int64".to_owned()));
}
