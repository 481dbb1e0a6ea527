//! Shell quoting: a command that is printed for the user must mean what it shows, whatever bytes are in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Quotes a word for a POSIX shell. A word without special characters stays as it is; others get single
/// quotes. Control characters and bytes that are not UTF-8 need `$'...'`, which all common shells know.
pub(crate) fn quoted(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(byte);
    match word.to_str() {
        Some(text) if !text.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let shown = |&byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                b' '..=b'~' => char::from(byte).to_string(),
                other => format!("\\{other:03o}"),
            };
            format!("$'{}'", bytes.iter().map(shown).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for (word, shown) in [
            ("/srv/braid", "/srv/braid"),
            ("", "''"),
            ("/a b", "'/a b'"),
            ("$HOME", "'$HOME'"),
            ("~x", "'~x'"),
            ("it's", r"'it'\''s'"),
            ("a\nb'", r"$'a\012b\''"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), shown);
        }
        assert_eq!(quoted(OsStr::from_bytes(b"a\xff1")), r"$'a\3771'");
    }

    #[test]
    fn a_real_shell_agrees() {
        for word in ["/a b", "it's $HOME `x` \\ \"q\" *", "ż ó", "-n", "a;b&c|d<e>(f){g}!#?[h]"] {
            let line = format!("printf %s {}", quoted(OsStr::new(word)));
            let out = std::process::Command::new("sh").arg("-c").arg(&line).output().expect("a shell");
            assert_eq!(out.stdout, word.as_bytes(), "{line}");
        }
    }
}
