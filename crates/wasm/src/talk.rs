//! What parent and child say to each other: heads with lengths, and the bytes behind them.
//!
//! A head begins with its own length. All numbers are little-endian. Both ends are of one program, so no
//! version is needed. The child's words are checked all the same: a module might have taken it over.

use std::io::{self, Read, Write};

use braid_methods::{End, ModuleKind, Task};

/// Bytes of a head at most.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of an answer at most, of all its parts.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A task, without the bytes of its input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) module: [u8; 32],
    pub(crate) parameters: Vec<(String, String)>,
    /// Lengths of partial answers, whose bytes follow.
    pub(crate) partials: Vec<u32>,
    /// Offsets and lengths of blocks, whose bytes follow.
    pub(crate) blocks: Vec<(u64, u32)>,
    pub(crate) end: End,
}

/// A request of the parent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To load a module of this hash, whose bytes follow.
    Load([u8; 32], u32),
    /// To do a task.
    Run(Asked),
}

/// An answer of the child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is locked down.
    Ready,
    /// A module is loaded.
    Loaded(ModuleKind),
    /// The task is done; the answers have these lengths, and follow.
    Done(Vec<u32>),
    /// It is not done, for this reason.
    Failed(String),
}

impl Asked {
    pub(crate) fn of(module: [u8; 32], task: &Task<'_>) -> Asked {
        let parameter = |own: &braid_methods::Argument| (own.name.clone(), own.value.clone());
        Asked {
            module,
            parameters: task.parameters.0.iter().map(parameter).collect(),
            partials: task.partials.iter().map(|bytes| short(bytes.len())).collect(),
            blocks: task.blocks.iter().map(|block| (block.offset, short(block.bytes.len()))).collect(),
            end: task.end,
        }
    }

    /// Bytes of the whole input.
    pub(crate) fn input_bytes(&self) -> usize {
        let lengths = self.partials.iter().chain(self.blocks.iter().map(|(_, length)| length));
        lengths.map(|&length| usize::try_from(length).unwrap_or(usize::MAX)).sum()
    }
}

/// A length. No task has 4 GiB: it would not fit a module's memory.
pub(crate) fn short(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct Head(Vec<u8>);

impl Head {
    fn number(&mut self, number: u32) -> &mut Head {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn numbers(&mut self, numbers: &[u32]) {
        self.number(short(numbers.len()));
        for &number in numbers {
            self.number(number);
        }
    }

    fn text(&mut self, text: &str) -> &mut Head {
        self.number(short(text.len())).0.extend_from_slice(text.as_bytes());
        self
    }

    fn send(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut all = short(self.0.len()).to_le_bytes().to_vec();
        all.extend_from_slice(&self.0);
        to.write_all(&all)
    }
}

/// A head as it is read.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// A list, each item of which has at least 4 bytes.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let items = usize::try_from(self.number()?).map_err(|_| garbled())?;
        if items > self.0.len() / 4 {
            return Err(garbled());
        }
        (0..items).map(|_| item(self)).collect()
    }

    fn text(&mut self) -> io::Result<String> {
        let length = usize::try_from(self.number()?).map_err(|_| garbled())?;
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(garbled)?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the process that runs modules says what nobody understands")
}

/// Reads a head; `None` if the other end has closed.
fn receive(from: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    let first = from.read(&mut length)?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[first..])?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| garbled())?;
    if length > HEAD_BYTES_MAX {
        return Err(garbled());
    }
    let mut head = vec![0; length];
    from.read_exact(&mut head)?;
    Ok(Some(head))
}

impl Ask {
    pub(crate) fn send(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut head = Head::default();
        match self {
            Ask::Load(hash, length) => {
                head.number(1).0.extend_from_slice(hash);
                head.number(*length);
            }
            Ask::Run(asked) => {
                head.number(2).0.extend_from_slice(&asked.module);
                head.number(u32::from(asked.end == End::Answer));
                head.number(short(asked.parameters.len()));
                for (name, value) in &asked.parameters {
                    head.text(name).text(value);
                }
                head.numbers(&asked.partials);
                head.number(short(asked.blocks.len()));
                for (offset, length) in &asked.blocks {
                    head.0.extend_from_slice(&offset.to_le_bytes());
                    head.number(*length);
                }
            }
        }
        head.send(to)
    }

    pub(crate) fn receive(from: &mut dyn Read) -> io::Result<Option<Ask>> {
        let Some(head) = receive(from)? else { return Ok(None) };
        let mut words = Words(&head);
        let ask = match words.number()? {
            1 => Ask::Load(words.take()?, words.number()?),
            2 => Ask::Run(Asked {
                module: words.take()?,
                end: if words.number()? == 1 { End::Answer } else { End::Partial },
                parameters: words.list(|words| Ok((words.text()?, words.text()?)))?,
                partials: words.list(Words::number)?,
                blocks: words.list(|words| Ok((words.take().map(u64::from_le_bytes)?, words.number()?)))?,
            }),
            _ => return Err(garbled()),
        };
        Ok(Some(ask))
    }
}

impl Told {
    pub(crate) fn send(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut head = Head::default();
        match self {
            Told::Ready => {
                head.number(0);
            }
            Told::Loaded(ModuleKind::Filter) => {
                head.number(1).number(0);
            }
            Told::Loaded(ModuleKind::Fold { answers }) => {
                head.number(1).number(1 + u32::from(*answers));
            }
            Told::Done(lengths) => {
                head.number(2).numbers(lengths);
            }
            Told::Failed(why) => {
                head.number(3).text(why);
            }
        }
        head.send(to)
    }

    pub(crate) fn receive(from: &mut dyn Read) -> io::Result<Told> {
        let head = receive(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut words = Words(&head);
        match words.number()? {
            0 => Ok(Told::Ready),
            1 => match words.number()? {
                0 => Ok(Told::Loaded(ModuleKind::Filter)),
                more => Ok(Told::Loaded(ModuleKind::Fold { answers: more == 2 })),
            },
            2 => Ok(Told::Done(words.list(Words::number)?)),
            3 => Ok(Told::Failed(words.text()?)),
            _ => Err(garbled()),
        }
    }
}

/// The parts of an answer behind its head.
pub(crate) fn parts(from: &mut dyn Read, lengths: &[u32]) -> io::Result<Vec<Vec<u8>>> {
    let lengths: Vec<usize> = lengths.iter().filter_map(|&length| usize::try_from(length).ok()).collect();
    if lengths.iter().sum::<usize>() > ANSWER_BYTES_MAX {
        return Err(garbled());
    }
    let part = |length| {
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).map(|()| bytes)
    };
    lengths.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_and_what_is_cut_off_is_an_error() {
        let asked = Asked {
            module: [7; 32],
            parameters: vec![("a".to_owned(), "bc".to_owned())],
            partials: vec![3, 4],
            blocks: vec![(1 << 40, 5)],
            end: End::Answer,
        };
        for ask in [Ask::Load([1; 32], 9), Ask::Run(asked)] {
            let mut bytes = Vec::new();
            ask.send(&mut bytes).expect("memory");
            assert_eq!(Ask::receive(&mut bytes.as_slice()).expect("its own"), Some(ask));
            assert!(Ask::receive(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(Ask::receive(&mut &b""[..]).expect("an end"), None);
        let fold = ModuleKind::Fold { answers: true };
        for told in [Told::Ready, Told::Loaded(fold), Told::Done(vec![1, 2]), Told::Failed("no".to_owned())] {
            let mut bytes = Vec::new();
            told.send(&mut bytes).expect("memory");
            assert_eq!(Told::receive(&mut bytes.as_slice()).expect("its own"), told);
        }
        let mut long = 8_u32.to_le_bytes().to_vec();
        long.extend_from_slice(&2_u32.to_le_bytes());
        long.extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(Told::receive(&mut long.as_slice()).is_err(), "a list that is longer than its message");
    }
}
