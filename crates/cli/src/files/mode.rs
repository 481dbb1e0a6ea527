//! Permission bits as users write and see them, as with chmod(1) and ls(1). Pure.

use braid_wire::control::{EntryKind, MODE_MAX};

/// Change of permission bits that a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    To(u32),
    /// Clauses, applied one after another.
    Clauses(Vec<Clause>),
}

/// A clause such as `go-w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Mask of the bits of the users that the clause is about.
    who: u32,
    act: Act,
    /// Bits of the letters `rwxst`, for all users.
    bits: u32,
    /// True for `X`: execute only for directories, and where some user may execute already.
    some_execute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Add,
    Remove,
    Set,
}

/// Execute bits of all users.
const EXECUTE: u32 = 0o111;

/// Reads a mode: octal, or clauses such as `u+x,go-w`.
pub(crate) fn parse(text: &str) -> Result<Change, String> {
    let wrong = || format!("{text:?} is not a mode: write it as 640 or as u+x,go-w");
    if text.bytes().next().is_some_and(|first| first.is_ascii_digit()) {
        let mode = u32::from_str_radix(text, 8).map_err(|_| wrong())?;
        return if mode <= MODE_MAX { Ok(Change::To(mode)) } else { Err(wrong()) };
    }
    let clauses = text.split(',').map(clauses).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    Ok(Change::Clauses(clauses.concat()))
}

/// Parses the clauses of one `who`, such as `u=rw+x`.
fn clauses(text: &str) -> Option<Vec<Clause>> {
    let at = text.find(['+', '-', '='])?;
    let mut who = 0;
    for letter in text[..at].chars() {
        who |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => MODE_MAX,
            _ => return None,
        };
    }
    let who = if at == 0 { MODE_MAX } else { who };
    let mut found = Vec::new();
    let mut rest = &text[at..];
    while let Some(sign) = rest.chars().next() {
        let act = match sign {
            '+' => Act::Add,
            '-' => Act::Remove,
            _ => Act::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
        let mut clause = Clause { who, act, bits: 0, some_execute: false };
        for letter in rest[1..end].chars() {
            match letter {
                'r' => clause.bits |= 0o444,
                'w' => clause.bits |= 0o222,
                'x' => clause.bits |= EXECUTE,
                's' => clause.bits |= 0o6000,
                't' => clause.bits |= 0o1000,
                'X' => clause.some_execute = true,
                _ => return None,
            }
        }
        found.push(clause);
        rest = &rest[end..];
    }
    Some(found)
}

impl Change {
    /// Returns the mode after the change.
    pub(crate) fn apply(&self, mode: u32, kind: EntryKind) -> u32 {
        match self {
            Change::To(mode) => *mode,
            Change::Clauses(clauses) => clauses.iter().fold(mode, |mode, clause| clause.apply(mode, kind)),
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, kind: EntryKind) -> u32 {
        let executes = self.some_execute && (kind == EntryKind::Directory || mode & EXECUTE != 0);
        // The sticky bit belongs to no single class of users.
        let who = if self.bits & 0o1000 != 0 { self.who | 0o1000 } else { self.who };
        let bits = (self.bits | if executes { EXECUTE } else { 0 }) & who;
        match self.act {
            Act::Add => mode | bits,
            Act::Remove => mode & !bits,
            Act::Set => mode & !who | bits,
        }
    }
}

/// A mode as `ls -l` shows it: `drwxr-xr-x`.
pub(crate) fn show(mode: u32, kind: EntryKind) -> String {
    let mut shown = String::with_capacity(10);
    shown.push(match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::Socket => 's',
        EntryKind::CharDevice => 'c',
        EntryKind::BlockDevice => 'b',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let of = mode >> shift;
        shown.push(if of & 4 != 0 { 'r' } else { '-' });
        shown.push(if of & 2 != 0 { 'w' } else { '-' });
        shown.push(match (mode & special != 0, of & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_with_chmod() {
        let check = |text: &str, mode: u32, kind, expected: u32| {
            let found = parse(text).expect(text).apply(mode, kind);
            assert_eq!(found, expected, "{text} of {mode:o}: {found:o}");
        };
        let file = EntryKind::File;
        let directory = EntryKind::Directory;
        check("640", 0o777, file, 0o640);
        check("4755", 0, file, 0o4755);
        check("u+x", 0o644, file, 0o744);
        check("go-w", 0o666, file, 0o644);
        check("a=r", 0o777, file, 0o444);
        check("+x", 0o644, file, 0o755);
        check("u=rw,go=", 0o777, file, 0o600);
        check("u=r+x", 0o644, file, 0o544);
        check("a+X", 0o644, file, 0o644);
        check("a+X", 0o744, file, 0o755);
        check("a+X", 0o644, directory, 0o755);
        check("u+s", 0o755, file, 0o4755);
        check("g+s,+t", 0o755, directory, 0o3755);
        check("u-s", 0o6755, file, 0o2755);
        for bad in ["", "8", "17777", "u", "z+x", "u+q", "u+x,", ","] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn modes_are_shown_as_by_ls() {
        assert_eq!(show(0o644, EntryKind::File), "-rw-r--r--");
        assert_eq!(show(0o1777, EntryKind::Directory), "drwxrwxrwt");
        assert_eq!(show(0o6750, EntryKind::File), "-rwsr-s---");
        assert_eq!(show(0o7000, EntryKind::Fifo), "p--S--S--T");
    }
}
