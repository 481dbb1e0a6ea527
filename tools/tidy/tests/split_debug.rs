//! `tools/split-debug.sh`, on a copy of this very program: it moves debug sections into a separate file, and
//! the program still runs without them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed at the end.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has_lines(file: &Path) -> bool {
    let output = Command::new("readelf").args(["--sections", "--wide"]).arg(file).output();
    String::from_utf8_lossy(&output.expect("binutils").stdout).contains(".debug_line")
}

#[test]
fn debug_sections_go_into_a_file_beside_the_program() {
    let place = Temporary(std::env::temp_dir().join(format!("braid-split-{}", std::process::id())));
    fs::create_dir(&place.0).expect("made");
    let (built, program) = (place.0.join("built"), place.0.join("program"));
    fs::copy(std::env::current_exe().expect("this program"), &built).expect("copied");
    // A second link to the same file, as a build leaves it.
    fs::hard_link(&built, &program).expect("linked");
    assert!(has_lines(&program), "this test needs a program with debug sections");
    let debug = place.0.join("program.debug");
    for round in 0..2 {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../split-debug.sh");
        assert!(Command::new(script).arg(&program).status().expect("a shell").success());
        assert!(!has_lines(&program) && has_lines(&debug) && has_lines(&built), "round {round}");
    }
    let listed = Command::new(&program).arg("--list").output().expect("it runs");
    assert!(listed.status.success());
}
