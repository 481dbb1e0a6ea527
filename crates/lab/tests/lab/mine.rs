//! Mining runs in miniature, without hosts: what is counted must be what was written.

use std::fs;

use crate::support::{Place, lab, run};

#[test]
fn transactions_are_mined_by_pairs_and_at_drives() {
    let place = Place::new();
    let out = place.file("results");
    let mut command = lab();
    command.args(["mine", "--quick", "--json", "--pairs", "2", "--bytes", "6M", "--dir"]).arg(place.file(""));
    command.arg("--out").arg(&out);
    let document = run(command).ok().json();
    let rows = document["rows"].as_array().expect("a list");
    // Each row was checked against the planted sets: a wrong count ends the command.
    let found = |name: &str| {
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|own| own.starts_with(name)));
        let row = row.unwrap_or_else(|| panic!("no row {name}: {document}"));
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        row["found"].as_str().expect("text").to_owned()
    };
    found("E11: 2 pairs, single items");
    let passes = found("E11: 2 pairs, all passes");
    // The seed and the support say how many sets there are of one item, of two, of three and of four.
    assert!(passes.contains("4 passes; frequent sets by size: 32, 23, 35, 35"), "{passes}");
    found("E13: single items at the drives");
    found("E13: pairs of items at the drives");
    let left_out = document["left_out"].as_array().expect("a list");
    assert_eq!(left_out.len(), 1, "{document}");
    assert_eq!((&left_out[0]["name"]), &"E13: slower links", "{document}");
    let markdown = fs::read_to_string(out.join("mine.md")).expect("written");
    assert!(markdown.contains("![Frequent sets") && out.join("mine.png").exists(), "{markdown}");
    fs::remove_dir_all(&out).expect("removed");
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}

#[test]
fn a_file_without_a_chunk_is_refused() {
    let place = Place::new();
    let mut command = lab();
    command.args(["mine", "--quick", "--bytes", "1M", "--dir"]).arg(place.file(""));
    run(command).failed(2, "give --bytes 2M or more");
}

#[test]
fn methods_give_the_answers_of_tools() {
    let place = Place::new();
    let mut command = lab();
    command.args(["bench", "methods", "--quick", "--json", "--dir"]).arg(place.file(""));
    let document = run(command).ok().json();
    let rows = document["rows"].as_array().expect("a list");
    if let Some(left_out) = document["left_out"].as_array().expect("a list").first() {
        assert!(left_out["why"].as_str().expect("text").contains("limited links need"), "{document}");
        return;
    }
    assert_eq!(rows.len(), 6, "{document}");
    for row in rows {
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
    }
    assert_eq!(fs::read_dir(place.file("")).expect("read").count(), 0, "something is left");
}
