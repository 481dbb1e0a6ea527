//! Comments and documents are wrapped, so that a diff of them is readable.

use crate::tree::Source;

/// The widest line of prose, in characters.
pub const WIDTH_MAX: usize = 110;

/// Lines of prose that are too wide. Tables, code and addresses are exempt, since they cannot be wrapped; so
/// is Rust code, which rustfmt wraps.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources {
        let is_rust = source.path.ends_with(".rs");
        let mut in_code = false;
        for (number, line) in source.text.lines().enumerate() {
            let prose = if is_rust { comment(line) } else { Some(line) };
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

/// The text of a comment line.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
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
    }

    #[test]
    fn what_cannot_be_wrapped_may_be_wide() {
        for begin in ["let text = ", "//! | ", "//!     cargo run ", "/// ```\n/// "] {
            assert_eq!(wide("a.rs", begin), 0, "{begin}");
        }
        for begin in ["| ", "    braid ", "```\n"] {
            assert_eq!(wide("a.md", begin), 0, "{begin}");
        }
    }
}
