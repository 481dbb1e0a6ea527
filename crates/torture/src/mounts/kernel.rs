//! A kernel that uses a mount as Linux does: it trusts names and attributes for a while, keeps pages until
//! they are dropped, reads and writes whole pages through them, and bypasses them with O_DIRECT.
//!
//! The behaviour of Linux named here is that of fs/fuse in its releases 6.x, without write-back: see
//! `fuse_change_attributes`, `fuse_perform_write`, `fuse_cache_read_iter`, `fuse_reverse_inval_inode`.
//! Where Linux waits for requests under way before it drops a page or a name, this kernel does not keep
//! their results.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_fuse::kernel_side::driven::{Answer, Cache, Driven, Opened, ROOT, ToldAttributes};
use braid_wire::control::LockKind;
use tokio::time::Instant;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Most pages that are read at once.
const READ_AHEAD: u64 = 8;

/// Everything that a kernel has cached.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, (u64, Instant)>,
    /// Number of times that a name was dropped.
    dropped: u64,
    files: BTreeMap<u64, Node>,
    /// Number of the last change of attributes.
    version: u64,
}

#[derive(Debug, Default)]
struct Node {
    size: u64,
    trusted_until: Option<Instant>,
    /// Number of the last change of the file's attributes.
    version: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    /// Number of times that pages were dropped.
    drops: u64,
    /// Number of beginnings and ends of writes so far; `touched` has the last one of each page.
    writes: u64,
    touched: BTreeMap<u64, u64>,
    opens: u64,
}

/// A kernel with one mount.
#[derive(Clone)]
pub(crate) struct Kernel {
    caches: Arc<Caches>,
    mount: Driven,
}

/// An open file.
#[derive(Debug, Clone)]
pub(crate) struct Descriptor {
    pub(crate) number: u64,
    pub(crate) flags: i32,
    handle: u64,
    closes_silently: bool,
}

impl Caches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache for Caches {
    fn drop_name(&self, _: u64, name: &[u8]) {
        let mut state = self.lock();
        state.dropped += 1;
        state.names.remove(&*String::from_utf8_lossy(name));
    }

    fn drop_file(&self, number: u64, pages_from: Option<u64>) {
        let mut state = self.lock();
        state.changed(number);
        let Some(node) = state.files.get_mut(&number) else { return };
        node.trusted_until = None;
        if let Some(from) = pages_from {
            node.drop_pages(from..u64::MAX);
        }
    }
}

impl State {
    fn node(&mut self, number: u64) -> &mut Node {
        self.files.entry(number).or_default()
    }

    /// Notes that a file's attributes change now.
    fn changed(&mut self, number: u64) {
        self.version += 1;
        let version = self.version;
        if let Some(node) = self.files.get_mut(&number) {
            node.version = version;
        }
    }

    /// Takes in attributes that were asked for at version `asked`.
    fn learn(&mut self, facts: &ToldAttributes, asked: u64) {
        let node = self.node(facts.number);
        if node.version > asked {
            node.trusted_until = None;
            return;
        }
        node.trusted_until = Some(Instant::now() + facts.trust);
        if node.size != facts.size {
            node.drop_pages(0..u64::MAX);
            node.size = facts.size;
        }
        self.changed(facts.number);
    }

    /// Notes a write that ended at offset `end`.
    fn wrote(&mut self, number: u64, end: u64) {
        self.changed(number);
        let node = self.node(number);
        node.size = node.size.max(end);
    }
}

impl Node {
    fn drop_pages(&mut self, range: Range<u64>) {
        self.drops += 1;
        self.pages.retain(|page, _| (page + 1) * PAGE <= range.start || page * PAGE >= range.end);
    }

    /// Notes that a write of pages begins or ends. A read of these pages that is under way is not kept:
    /// Linux makes one wait for the other.
    fn touch(&mut self, pages: Range<u64>) {
        self.writes += 1;
        let now = self.writes;
        self.touched.extend(pages.map(|page| (page, now)));
    }

    fn is_trusted(&self) -> bool {
        self.trusted_until.is_some_and(|until| Instant::now() < until)
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("files are small")
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("files are small")
}

impl Kernel {
    pub(crate) fn new(caches: Arc<Caches>, mount: Driven) -> Kernel {
        Kernel { caches, mount }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.caches.lock()
    }

    /// The number that a name stands for; the mount is asked if the name is not trusted, or if `anew`.
    async fn walk(&self, name: &str, anew: bool) -> Answer<u64> {
        let (dropped, asked) = {
            let state = self.lock();
            if let Some((number, until)) = state.names.get(name)
                && !anew
                && Instant::now() < *until
            {
                return Ok(*number);
            }
            (state.dropped, state.version)
        };
        let found = self.mount.lookup(ROOT, name).await;
        let mut state = self.lock();
        state.names.remove(name);
        let facts = found?;
        state.learn(&facts, asked);
        if state.dropped == dropped {
            state.names.insert(name.to_owned(), (facts.number, Instant::now() + facts.name_trust));
        }
        Ok(facts.number)
    }

    /// The number and the size of the file that has a name.
    pub(crate) async fn stat(&self, name: &str) -> Answer<(u64, u64)> {
        match self.stat_once(name, false).await {
            Err(libc::ESTALE) => self.stat_once(name, true).await,
            done => done,
        }
    }

    async fn stat_once(&self, name: &str, anew: bool) -> Answer<(u64, u64)> {
        let number = self.walk(name, anew).await?;
        Ok((number, self.size(number).await?))
    }

    async fn size(&self, number: u64) -> Answer<u64> {
        let asked = {
            let mut state = self.lock();
            let node = state.node(number);
            if node.is_trusted() {
                return Ok(node.size);
            }
            state.version
        };
        let facts = self.mount.getattr(number).await?;
        self.lock().learn(&facts, asked);
        Ok(facts.size)
    }

    pub(crate) async fn fstat(&self, open: &Descriptor) -> Answer<u64> {
        self.size(open.number).await
    }

    pub(crate) async fn open(&self, name: &str, flags: i32) -> Answer<Descriptor> {
        // A trusted name may be out of date.
        match self.open_once(name, flags, false).await {
            Err(libc::ESTALE) => self.open_once(name, flags, true).await,
            done => done,
        }
    }

    async fn open_once(&self, name: &str, flags: i32, anew: bool) -> Answer<Descriptor> {
        let is_new = libc::O_CREAT | libc::O_EXCL;
        match self.walk(name, anew).await {
            Ok(_) if flags & is_new == is_new => Err(libc::EEXIST),
            Ok(number) => {
                let opened = self.mount.open(number, flags & !is_new).await?;
                let mut state = self.lock();
                if flags & libc::O_TRUNC != 0 {
                    state.changed(number);
                    let node = state.node(number);
                    (node.size, node.trusted_until) = (0, None);
                    node.drop_pages(0..u64::MAX);
                }
                if !opened.keeps_pages {
                    state.node(number).drop_pages(0..u64::MAX);
                }
                state.node(number).opens += 1;
                Ok(descriptor(number, flags, opened))
            }
            Err(libc::ENOENT) if flags & libc::O_CREAT != 0 => {
                let (dropped, asked) = {
                    let state = self.lock();
                    (state.dropped, state.version)
                };
                let (facts, opened) = self.mount.create(ROOT, name, flags).await?;
                let mut state = self.lock();
                state.learn(&facts, asked);
                if state.dropped == dropped {
                    state.names.insert(name.to_owned(), (facts.number, Instant::now() + facts.name_trust));
                }
                state.node(facts.number).opens += 1;
                Ok(descriptor(facts.number, flags, opened))
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn read(&self, open: &Descriptor, range: Range<u64>) -> Answer<Vec<u8>> {
        if open.flags & libc::O_DIRECT != 0 {
            let size = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
            return self.mount.read(open.handle, range.start, size).await;
        }
        if range.end > self.lock().node(open.number).size {
            self.size(open.number).await?;
        }
        let end = range.end.min(self.lock().node(open.number).size);
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < end {
            let page = self.page(open, at / PAGE).await?;
            let to = end.min((at / PAGE + 1) * PAGE).min(self.lock().node(open.number).size);
            if to <= at {
                break;
            }
            bytes.extend_from_slice(&page[index(at % PAGE)..index(at % PAGE + to - at)]);
            at = to;
        }
        Ok(bytes)
    }

    /// A page from the cache, or read together with missing pages that follow it.
    async fn page(&self, open: &Descriptor, page: u64) -> Answer<Vec<u8>> {
        let (drops, writes, asked, count) = {
            let mut state = self.lock();
            let version = state.version;
            let node = state.node(open.number);
            if let Some(cached) = node.pages.get(&page) {
                return Ok(cached.clone());
            }
            let is_missing = |page: &u64| !node.pages.contains_key(page) && page * PAGE < node.size;
            let count = (page..page + READ_AHEAD).take_while(is_missing).count();
            (node.drops, node.writes, version, u64::try_from(count).unwrap_or(1).max(1))
        };
        let size = u32::try_from(count * PAGE).unwrap_or(u32::MAX);
        let mut bytes = self.mount.read(open.handle, page * PAGE, size).await?;
        let read_to = page * PAGE + length(&bytes);
        let is_short = length(&bytes) < count * PAGE;
        bytes.resize(index(count * PAGE), 0);
        let mut state = self.lock();
        if is_short && state.node(open.number).version <= asked && read_to < state.node(open.number).size {
            state.changed(open.number);
            state.node(open.number).size = read_to;
        }
        let node = state.node(open.number);
        let pages = bytes.chunks(index(PAGE)).map(<[u8]>::to_vec);
        if node.drops == drops {
            let is_new = |page: &u64| node.touched.get(page).is_none_or(|&touched| touched <= writes);
            let kept: Vec<_> = (page..).zip(pages).filter(|(at, _)| is_new(at)).collect();
            for (at, bytes) in kept {
                node.pages.entry(at).or_insert(bytes);
            }
        }
        Ok(bytes[..index(PAGE)].to_vec())
    }

    pub(crate) async fn write(&self, open: &Descriptor, at: u64, data: &[u8]) -> Answer<()> {
        let number = open.number;
        let range = at..at + length(data);
        if open.flags & libc::O_DIRECT != 0 {
            self.write_past(open, at, data).await?;
            self.lock().node(number).drop_pages(range);
            return Ok(());
        }
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let drops = {
            let mut state = self.lock();
            let node = state.node(number);
            node.touch(pages.clone());
            for page in pages.clone() {
                if let Some(cached) = node.pages.get_mut(&page) {
                    overlay(cached, page, at, data);
                }
            }
            node.drops
        };
        let written = self.mount.write(open.handle, at, data, open.flags).await;
        let mut state = self.lock();
        state.node(number).touch(pages.clone());
        if written.is_err() || state.node(number).drops != drops {
            // The drop waited for the pages to be written.
            state.node(number).drop_pages(range.clone());
        } else {
            for page in pages.filter(|page| page * PAGE >= range.start && (page + 1) * PAGE <= range.end) {
                let mut whole = vec![0; index(PAGE)];
                overlay(&mut whole, page, at, data);
                state.node(number).pages.insert(page, whole);
            }
        }
        if written.is_ok() {
            state.wrote(number, range.end);
        }
        written
    }

    /// Writes with O_DIRECT, and completes as for a program that does not wait: pages that were cached
    /// meanwhile stay.
    pub(crate) async fn write_past(&self, open: &Descriptor, at: u64, data: &[u8]) -> Answer<()> {
        let range = at..at + length(data);
        self.lock().node(open.number).drop_pages(range.clone());
        self.mount.write(open.handle, at, data, open.flags).await?;
        self.lock().wrote(open.number, range.end);
        Ok(())
    }

    pub(crate) async fn truncate(&self, open: &Descriptor, size: u64) -> Answer<()> {
        let facts = self.mount.truncate(open.number, Some(open.handle), size).await?;
        let mut state = self.lock();
        state.changed(open.number);
        let node = state.node(open.number);
        (node.size, node.trusted_until) = (facts.size, Some(Instant::now() + facts.trust));
        node.drop_pages(0..u64::MAX);
        Ok(())
    }

    pub(crate) async fn fsync(&self, open: &Descriptor) -> Answer<()> {
        self.mount.fsync(open.handle).await
    }

    /// Closes a descriptor for the program `owner`. The handle is released later, in the background.
    pub(crate) async fn close(&self, open: Descriptor, owner: u64) -> Answer<()> {
        let flushed = match open.closes_silently {
            true => Ok(()),
            false => self.mount.flush(open.handle, owner).await,
        };
        self.lock().node(open.number).opens -= 1;
        let mount = self.mount.clone();
        tokio::spawn(async move { mount.release(open.handle).await });
        flushed
    }

    pub(crate) async fn lock_bytes(
        &self,
        open: &Descriptor,
        owner: u64,
        bytes: (u64, u64),
        kind: Option<LockKind>,
    ) -> Answer<()> {
        self.mount.lock(open.handle, owner, bytes, kind).await
    }

    pub(crate) async fn unlink(&self, name: &str) -> Answer<()> {
        let number = self.walk(name, false).await?;
        self.mount.unlink(ROOT, name).await?;
        let mut state = self.lock();
        state.names.remove(name);
        state.node(number).trusted_until = None;
        Ok(())
    }

    pub(crate) async fn rename(&self, name: &str, new_name: &str) -> Answer<()> {
        self.walk(name, false).await?;
        match self.walk(new_name, false).await {
            Ok(_) | Err(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.mount.rename(ROOT, name, new_name).await?;
        let mut state = self.lock();
        let moved = state.names.remove(name);
        state.names.remove(new_name);
        if let Some(moved) = moved {
            state.names.insert(new_name.to_owned(), moved);
        }
        Ok(())
    }

    /// Drops the cache of a name and of its file, as if memory were scarce.
    pub(crate) fn evict(&self, name: &str) {
        let mut state = self.lock();
        let Some((number, _)) = state.names.remove(name) else { return };
        let node = state.node(number);
        node.drop_pages(0..u64::MAX);
        if node.opens == 0 {
            state.files.remove(&number);
            state.names.retain(|_, (other, _)| *other != number);
            drop(state);
            self.mount.forget(number);
        }
    }
}

fn descriptor(number: u64, flags: i32, opened: Opened) -> Descriptor {
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
    Descriptor { number, flags, handle: opened.handle, closes_silently: opened.closes_silently }
}

/// Puts written bytes into a page, where they overlap.
fn overlay(bytes: &mut [u8], page: u64, at: u64, data: &[u8]) {
    let from = at.max(page * PAGE);
    let to = (at + length(data)).min((page + 1) * PAGE);
    if from < to {
        let place = index(from - page * PAGE)..index(to - page * PAGE);
        bytes[place].copy_from_slice(&data[index(from - at)..index(to - at)]);
    }
}
