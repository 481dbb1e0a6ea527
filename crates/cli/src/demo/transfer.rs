//! Timed transfers between memory and the drives, with hashing outside of the timed part.
//!
//! A file passes through a window of memory: filled, hashed, then written with the clock running; or read with the clock
//! running, then hashed. So a rate is the client's and the drives', as the bound is the sockets', and neither the local
//! disk nor SHA-256 is in it.

use std::fs::File as LocalFile;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use braid_client::{Client, File, Name, OpenOptions, Replace};
use sha2::{Digest, Sha256};

use crate::exit::{Doing, Exit, Failure};
use crate::rate::Rate;

/// Bytes of the window.
const WINDOW_BYTES: usize = 256 << 20;

/// A SHA-256.
pub(crate) type Hash = [u8; 32];

/// Memory that transfers go through. Its pages are touched before the clock runs.
pub(crate) struct Window {
    memory: Vec<u8>,
}

impl Window {
    /// For files of up to `largest` bytes at once.
    pub(crate) fn new(largest: u64) -> Window {
        let bytes = usize::try_from(largest).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        // Not zeros: those would be mapped by the system only when first used.
        Window { memory: vec![0xa5; bytes.max(1)] }
    }

    /// Writes a local file through `file`, gives it its name, and closes it. The rate and the source's hash.
    pub(crate) async fn write(
        &mut self,
        source: &Path,
        file: File,
        name: &Name,
    ) -> Result<(Rate, Hash), Failure> {
        let what = || format!("read {}", source.display());
        let mut local = LocalFile::open(source).doing(what)?;
        let (mut hash, mut rate) = (Sha256::new(), Rate::default());
        loop {
            let filled = fill(&mut local, &mut self.memory).doing(what)?;
            hash.update(&self.memory[..filled]);
            let began = Instant::now();
            if filled > 0 {
                file.write_at(&self.memory[..filled], rate.bytes).await?;
            }
            rate += Rate { bytes: filled as u64, time: began.elapsed() };
            if filled < self.memory.len() {
                break;
            }
        }
        let began = Instant::now();
        file.link(name, Replace::Yes).await?;
        file.close().await?;
        rate.time += began.elapsed();
        Ok((rate, hash.finalize().into()))
    }

    /// Reads a file. The rate and its hash.
    pub(crate) async fn read(&mut self, client: &Client, name: &Name) -> Result<(Rate, Hash), Failure> {
        let file = client.open(name, &OpenOptions::new().read(true)).await?;
        let (mut hash, mut rate) = (Sha256::new(), Rate::default());
        while rate.bytes < file.size() {
            let began = Instant::now();
            let read = file.read_at(&mut self.memory, rate.bytes).await?;
            rate += Rate { bytes: read as u64, time: began.elapsed() };
            hash.update(&self.memory[..read]);
            if read == 0 {
                return Err(Failure::new(Exit::Mismatch, format!("read {name}"), "it ends before its size"));
            }
        }
        Ok((rate, hash.finalize().into()))
    }
}

fn fill(file: &mut LocalFile, memory: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < memory.len() {
        match file.read(&mut memory[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
