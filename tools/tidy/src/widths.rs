//! Comments and documents are wrapped, so that a diff of them is readable.

use crate::tree::Source;

/// The widest line of prose, in characters.
pub const WIDTH_MAX: usize = 110;

/// Lines of prose that are too wide. Tables, code and addresses are exempt, since they cannot be wrapped. Of
/// source files only the comments count: rustfmt wraps Rust code, and other code often cannot be wrapped.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources {
        let marker = marker(&source.path);
        let mut in_code = false;
        for (number, line) in source.text.lines().enumerate() {
            let prose = marker.map_or(Some(line), |marker| comment(line, marker));
            let Some(prose) = prose else {
                in_code = false;
                continue;
            };
            if prose.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            let width = line.chars().count();
            if width > WIDTH_MAX && !in_code && can_be_wrapped(prose) {
                broken.push(format!(
                    "{}:{}: {width} characters wide, {WIDTH_MAX} allowed",
                    source.path,
                    number + 1
                ));
            }
        }
    }
    broken
}

/// Beginning of a comment in a source file; `None` if the file is a document.
fn marker(path: &str) -> Option<&'static str> {
    match path.rsplit(['/', '.']).next() {
        Some("md") => None,
        Some("rs") => Some("//"),
        _ => Some("#"),
    }
}

/// The text of a comment line.
fn comment<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    let text = line.trim_start().strip_prefix(marker)?;
    let text = text.strip_prefix(['/', '!', '#']).unwrap_or(text);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

fn can_be_wrapped(prose: &str) -> bool {
    !prose.starts_with("    ") && !prose.trim_start().starts_with('|') && prose.trim().contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(path: &str, begin: &str) -> usize {
        let text = format!("{begin}{}\n", "word ".repeat(30));
        check(&[Source { path: path.to_owned(), text }]).len()
    }

    #[test]
    fn prose_is_wrapped() {
        for begin in ["// ", "    /// ", "//! - "] {
            assert_eq!(wide("a.rs", begin), 1, "{begin}");
        }
        assert_eq!(wide("a.md", ""), 1);
        for (path, begin) in [("Makefile", "## "), ("b/a.toml", "# "), ("b/a.sh", "  # ")] {
            assert_eq!(wide(path, begin), 1, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_wrapped_may_be_wide() {
        for begin in ["let text = ", "//! | ", "//!     cargo run ", "/// ```\n/// "] {
            assert_eq!(wide("a.rs", begin), 0, "{begin}");
        }
        for (path, begin) in [("Makefile", "\t"), ("a.toml", "key = "), ("a.sh", "echo ")] {
            assert_eq!(wide(path, begin), 0, "{path}");
        }
        for begin in ["| ", "    braid ", "```\n"] {
            assert_eq!(wide("a.md", begin), 0, "{begin}");
        }
    }
}
