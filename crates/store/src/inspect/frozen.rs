//! A read-only disk. The changes that opening a store makes succeed without effect.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Directory, Disk, DiskFile, FileIdentity, Named, Space};

/// A directory for inspection.
#[derive(Debug)]
pub(crate) struct Frozen(pub(crate) Directory);

#[derive(Debug)]
struct FrozenFile(Arc<dyn DiskFile>);

fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

impl Disk for Frozen {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FrozenFile(self.0.open(name)?)))
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(refused())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn make_dir(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn space(&self) -> Option<Space> {
        self.0.space()
    }

    fn named(&self, name: &str) -> io::Result<Named> {
        self.0.named(name)
    }

    fn place(&self) -> &Path {
        self.0.place()
    }
}

impl DiskFile for FrozenFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(to, offset)
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(refused())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.0.identity()
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn drop_cache(&self, range: Range<u64>) {
        self.0.drop_cache(range);
    }

    fn start_writing(&self, _: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.0.is_cached(range)
    }

    fn as_file(&self) -> Option<&File> {
        self.0.as_file()
    }
}
