//! `braid run` and `braid sum`, as docs/methods.md shows them: what they print is what plain programs say of
//! the same bytes, with a drive and without it.

use std::fs;

use crate::support::Cluster;

#[test]
fn drives_answer_what_plain_programs_say() {
    let cluster = Cluster::up(3);
    let text: String = (0..200_000).map(|line| format!("{line},{}\n", line % 7)).collect();
    let local = cluster.file("log");
    fs::write(&local, ["id,rest\n", &text].concat()).expect("written");
    cluster.put(&local, "braid://main/log");
    let said = |line: &str| cluster.line(line).ok().text();
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
    assert!(said("run count braid://main/log --explain").contains("cheapest: at the"));

    let sha256 = std::process::Command::new("sha256sum").arg(&local).output().expect("run");
    let expected = String::from_utf8_lossy(&sha256.stdout)[..64].to_owned();
    assert_eq!(said("sum --sha256 braid://main/log"), format!("{expected}  braid://main/log\n"));
    let blake3 = said("sum braid://main/log");
    cluster.kill_drive("drive-1");
    assert_eq!(said("sum braid://main/log"), blake3, "a drive is away");
    assert_eq!(said("sum --at client braid://main/log"), blake3);

    let unknown = cluster.line("run sort braid://main/log");
    assert!(unknown.code == 2 && unknown.err.contains("checksum, count, csv"), "{}", unknown.err);
}
