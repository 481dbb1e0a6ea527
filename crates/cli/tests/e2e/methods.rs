//! `braid run` and `braid sum`, as docs/methods.md shows them: what they print is what plain programs say of
//! the same bytes, with a drive and without it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::Cluster;

#[test]
fn drives_answer_what_plain_programs_say() {
    let cluster = Cluster::up(3);
    let text: String = (0..200_000).map(|line| format!("{line},{}\n", line % 7)).collect();
    let local = cluster.file("log");
    fs::write(&local, ["id,rest\n", &text].concat()).expect("written");
    cluster.put(&local, "braid://main/log");
    let said = |line: &str| cluster.line(line).ok().text().to_owned();
    let all = fs::metadata(&local).expect("it is there").len();

    assert_eq!(said("run count braid://main/log"), format!("200001 records, {all} bytes\n"));
    let found = said("run grep braid://main/log pattern=^777,");
    let offset = text.find("\n777,").expect("it is there") + 1 + "id,rest\n".len();
    assert_eq!(found, format!("{offset}:777,0\n"));
    let rows = said("run csv braid://main/log columns=rest where=id<3");
    assert_eq!(rows, "rest\n0\n1\n2\n");
    let json: serde_json::Value =
        serde_json::from_str(&said("--json run count braid://main/log --at drive")).expect("JSON");
    assert_eq!((json["records"].as_u64(), json["bytes_at_drives"].as_u64()), (Some(200_001), Some(all)));
    assert!(said("run").contains("frequent-sets"));
    assert!(said("run count braid://main/log --explain").contains("at the drives"));

    let sha256 = Command::new("sha256sum").arg(&local).output().expect("run");
    let expected = String::from_utf8_lossy(&sha256.stdout)[..64].to_owned();
    assert_eq!(said("sum --sha256 braid://main/log"), format!("{expected}  braid://main/log\n"));
    let blake3 = said("sum braid://main/log");
    cluster.kill_drive("drive-1");
    assert_eq!(said("sum braid://main/log"), blake3, "a drive is away");
    assert_eq!(said("sum --at client braid://main/log"), blake3);

    let unknown = cluster.line("run sort braid://main/log");
    assert!(unknown.code == 2 && unknown.err.contains("checksum, count, csv"), "{}", unknown.err);
}

/// The commands of docs/methods.md, on files that fit them.
#[test]
fn the_commands_of_the_document_work() {
    let cluster = Cluster::up(3);
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wasm/tests/modules/count.wat");
    let module = wat::parse_str(fs::read_to_string(modules).expect("read")).expect("good text");
    fs::write(cluster.file("words.wasm"), module).expect("written");
    for (name, content) in [
        ("log", "a warning\nAn ERROR\nnothing\n".repeat(1000)),
        ("sales.csv", "item,price\npear,3\nplum,120\n".to_owned()),
        ("sales", "1 2 3\n2 3\n".repeat(1000)),
        ("a", "the same".to_owned()),
        ("b", "the same".to_owned()),
        ("a.bin", "bytes".to_owned()),
    ] {
        fs::write(cluster.file(name), content).expect("written");
        cluster.put(&cluster.file(name), &format!("braid://main/{name}"));
    }
    let table = cluster.file("table");
    write_table(&table);
    cluster.put(&table, "braid://main/sales.parquet");
    cluster.put(&table, "braid://main/trips.parquet");

    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/methods.md");
    let document = fs::read_to_string(document).expect("the document");
    let mut hash = String::new();
    let mut commands = 0;
    let program = Path::new(env!("CARGO_BIN_EXE_braid")).parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("a PATH"));
    for line in document.lines().filter(|line| line.starts_with("    braid ")) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", &line.replace("HASH", &hash)]).env("PATH", &path);
        shell.env("BRAID_CLUSTER", cluster.dir()).current_dir(cluster.file(""));
        let said = shell.output().expect("run");
        assert!(said.status.success(), "{line}: {}", String::from_utf8_lossy(&said.stderr));
        if line.contains("module put") {
            hash = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        }
        commands += 1;
    }
    assert!(commands > 12, "the document has {commands} commands");
    let dear = fs::read(cluster.file("dear.arrow")).expect("--out");
    assert_eq!(braid_client::arrow_to_csv(&dear).expect("a stream"), b"item,price\nplum,120\n");
}

/// A Parquet file of two rows, with all columns that the document names.
fn write_table(path: &Path) {
    let schema = "message m { required binary item (UTF8); required int64 price; required int64 start; required \
                  int64 fare; required binary city (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let file = fs::File::create(path).expect("made");
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).expect("begun");
    let mut group = writer.next_row_group().expect("a group");
    let texts: [[&str; 2]; 2] = [["pear", "plum"], ["Bern", "Basel"]];
    let numbers: [[i64; 2]; 3] = [[3, 120], [1, 2], [100, 90]];
    let mut texts = texts.iter();
    let mut numbers = numbers.iter();
    for is_text in [true, false, false, false, true] {
        let mut column = group.next_column().expect("good").expect("a column");
        if is_text {
            let values: Vec<ByteArray> = texts.next().expect("two").iter().map(|&text| text.into()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None).expect("written");
        } else {
            let values = numbers.next().expect("three");
            column.typed::<Int64Type>().write_batch(values, None, None).expect("written");
        }
        column.close().expect("closed");
    }
    group.close().expect("closed");
    writer.close().expect("closed");
}
