//! Words banned from the code: unfinished work, skipped tests, lints switched off without a reason.

use crate::tree::Source;

/// Each banned word and why. Split in halves, so that this file does not match.
const BANNED: &[(&str, &str, &str)] = &[
    ("todo", "!(", "finish it or leave it out"),
    ("unimpl", "emented!(", "finish it or leave it out"),
    ("TO", "DO", "file an issue; the code holds no ledger"),
    ("FIX", "ME", "file an issue; the code holds no ledger"),
    ("#[ig", "nore", "a test runs or does not exist"),
    ("#[al", "low(", "use #[expect(..., reason = \"...\")]"),
    ("#![al", "low(", "use #![expect(..., reason = \"...\")]"),
    ("db", "g!(", "use tracing"),
    ("thread::sl", "eep(Duration::from_secs", "wait for the event, with a bound"),
];

/// Each banned word found, with its line.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            for (head, tail, why) in BANNED {
                if line.contains(&format!("{head}{tail}")) {
                    broken.push(format!("{}:{}: {head}{tail} ({why})", source.path, number + 1));
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_banned_word_is_found() {
        for (head, tail, _) in BANNED {
            let source = Source { path: "x.rs".into(), text: format!("fn f() {{}}\n    {head}{tail}x)\n") };
            assert_eq!(check(&[source]).len(), 1, "{head}{tail}");
        }
    }
}
