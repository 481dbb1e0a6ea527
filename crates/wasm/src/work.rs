//! The child: loads modules and does tasks, one after the other, until the parent is gone.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use braid_methods::MODULE_BYTES_MAX;

use crate::guest::{Bounds, Guests, Source};
use crate::lockdown::lock_down;
use crate::talk::{Ask, Asked, Told, short};

/// A module that does nothing: what the engine makes ready only once is made before the process is locked
/// down. It is `(module (func (export "f")))`.
const NOTHING: &[u8] = &[
    0, b'a', b's', b'm', 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, b'f', 0, 0, 10, 4, 1, 2, 0,
    0x0b,
];

/// The socket, and how much of a task's input is still in it.
struct Input<'a> {
    socket: &'a mut File,
    left: usize,
}

impl Source for Input<'_> {
    fn take(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.socket.read_exact(into)?;
        self.left = self.left.saturating_sub(into.len());
        Ok(())
    }
}

/// Works for the parent, with which standard input is connected, until it closes that.
pub fn work(bounds: Bounds) -> io::Result<()> {
    let mut socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let ready = Guests::new(bounds).and_then(|guests| guests.warm(NOTHING).map(|()| guests));
    let ready = ready.map_err(io::Error::other).and_then(|guests| lock_down().map(|()| guests));
    let mut guests = match ready {
        Ok(guests) => guests,
        Err(error) => return Told::Failed(error.to_string()).send(&mut socket),
    };
    Told::Ready.send(&mut socket)?;
    while let Some(ask) = Ask::receive(&mut socket)? {
        match ask {
            Ask::Load(hash, length) => load(&mut guests, &mut socket, hash, length)?,
            Ask::Run(asked) => run(&guests, &mut socket, &asked)?,
        }
    }
    Ok(())
}

fn load(guests: &mut Guests, socket: &mut File, hash: [u8; 32], length: u32) -> io::Result<()> {
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MODULE_BYTES_MAX);
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    match guests.load(hash, &bytes) {
        Ok(kind) => Told::Loaded(kind).send(socket),
        Err(why) => Told::Failed(why).send(socket),
    }
}

fn run(guests: &Guests, socket: &mut File, asked: &Asked) -> io::Result<()> {
    let mut input = Input { socket, left: asked.input_bytes() };
    let done = guests.run(asked, &mut input);
    let left = input.left;
    // What the module did not come to.
    io::copy(&mut Read::by_ref(socket).take(u64::try_from(left).unwrap_or(u64::MAX)), &mut io::sink())?;
    match done {
        Ok(answers) => {
            Told::Done(answers.iter().map(|answer| short(answer.len())).collect()).send(socket)?;
            answers.iter().try_for_each(|answer| socket.write_all(answer))
        }
        Err(why) => Told::Failed(why).send(socket),
    }
}
