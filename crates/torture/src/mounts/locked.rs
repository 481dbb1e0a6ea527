//! The programs' work under locks: one file has records that all programs write, each under a lock of its
//! bytes.

use std::time::Duration;

use braid_wire::control::LockKind;
use tokio::time::sleep;

use super::judge::{FileNo, Reader};
use super::programs::{Open, Program};
use crate::host::now_ms;

pub(crate) const LOCKED: &str = "locked";
/// Number of records, and bytes of each. Records share pages.
pub(crate) const RECORDS: u64 = 4;
pub(crate) const RECORD: u64 = 6000;
/// Percentage of descriptors whose writes are durable when they are answered.
const DURABLE: u64 = 30;
/// Longest time for which a lock is held, mostly, and now and then.
const HELD_MS: u64 = 400;
const HELD_LONG_MS: u64 = 7000;

impl Program {
    /// Takes the lock of a record, reads and writes the record, and gives the lock back.
    pub(crate) async fn lock_some(&mut self, file: FileNo) {
        let Some(mut open) = self.open_locked(file).await else { return };
        let record = self.random.below(RECORDS);
        let from = record * RECORD;
        let to = (record + 1) * RECORD;
        let asked = self.judge.now();
        let began_ms = now_ms();
        let taken =
            self.kernel.lock_bytes(&open.descriptor, self.owner(), (from, to - 1), Some(LockKind::Exclusive));
        let taken = taken.await;
        self.told(&format!("locks record {record}"), began_ms, &taken);
        match taken {
            Ok(()) => {}
            Err(libc::EAGAIN) => return self.locked = Some(open),
            Err(_) => return self.close(open).await,
        }
        let granted = self.judge.granted(file, record, from..to, self.index.0, self.life, asked);
        let Some(at) = granted else {
            let given_back =
                self.kernel.lock_bytes(&open.descriptor, self.owner(), (from, to - 1), None).await;
            self.told(&format!("gives back record {record}"), began_ms, &given_back);
            return self.close(open).await;
        };
        open.reader = Reader { life: Some(self.life), opened: at };
        let is_well = self.use_record(&open, record).await;
        let began = self.judge.now();
        let was_held = self.judge.releases(record, self.index.0);
        let released = self.kernel.lock_bytes(&open.descriptor, self.owner(), (from, to - 1), None).await;
        self.told(&format!("unlocks record {record}"), began_ms, &released);
        if released.is_err() {
            // A program is told once that bytes were lost, perhaps those of another program on the mount.
            self.judge.synced(file, began, self.life, false);
        }
        if is_well && was_held && released.is_ok() {
            self.judge.synced(file, began, self.life, true);
            self.locked = Some(open);
        } else {
            self.close(open).await;
        }
    }

    /// The owner of the program's locks, for the kernel.
    pub(super) fn owner(&self) -> u64 {
        self.index.0 + 1
    }

    async fn open_locked(&mut self, file: FileNo) -> Option<Open> {
        if let Some(open) = self.locked.take() {
            return Some(open);
        }
        let opened = self.judge.now();
        let began_ms = now_ms();
        let is_durable = self.mix.data && self.random.percent(DURABLE);
        let flags = libc::O_RDWR | if is_durable { libc::O_DSYNC } else { 0 };
        let descriptor = self.kernel.open(LOCKED, flags).await;
        self.told("opens the locked file", began_ms, &descriptor);
        let reader = Reader { life: Some(self.life), opened };
        descriptor.ok().map(|descriptor| Open { file, descriptor, reader, is_own: true })
    }

    /// Reads and writes a locked record. Returns true if all of it was done.
    async fn use_record(&mut self, open: &Open, record: u64) -> bool {
        let from = record * RECORD;
        let to = (record + 1) * RECORD;
        let who = self.index.0;
        if !self.read(open, from..to).await {
            return false;
        }
        for _ in 0..self.random.below(3) {
            let at = from + self.random.below(RECORD);
            let range = at..at + 1 + self.random.below(to - at);
            let began_ms = now_ms();
            let held = self.judge.holds(record, who);
            let is_written = match held {
                true => self.write(open, range, false).await,
                // The program does not know yet that it has lost the lock.
                false => self.kernel.write(&open.descriptor, range.start, &[0xee; 50]).await.is_ok(),
            };
            self.judge.went_on(record, who, &self.who, began_ms, is_written);
            if !is_written {
                return false;
            }
            let most_ms = if self.random.percent(10) { HELD_LONG_MS } else { HELD_MS };
            sleep(Duration::from_millis(self.random.below(most_ms))).await;
        }
        let began_ms = now_ms();
        let is_synced = !self.random.percent(60) || self.sync(open, false).await.is_ok();
        self.judge.went_on(record, who, &self.who, began_ms, is_synced);
        is_synced
    }
}
