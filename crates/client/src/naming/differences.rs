//! Differences between snapshots, page by page, and schedules.

use std::collections::VecDeque;

use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::{
    ChangeKind, ChangeRow, ControlReply, EntryKind, KeepCounts, ScheduleRow, SnapshotDiff, SnapshotKeep,
    SnapshotSchedules,
};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

/// Maximum number of times that the first step is begun.
const TRIES: u32 = 10;

/// The differences between a directory in a snapshot and the same directory later.
pub struct Differences {
    client: Client,
    from: Name,
    to: Name,
    /// Steps that are left: directories whose entries are compared, and whether all of these are new.
    steps: VecDeque<(FileId, bool)>,
    after: Vec<u8>,
    page: VecDeque<ChangeRow>,
    /// Pages of the first step. They are handed out when all are there: when a snapshot between the two times
    /// is removed meanwhile, that step begins anew.
    gathered: Vec<ChangeRow>,
    /// Number of times that the first step may still be begun.
    tries: u32,
}

impl Client {
    /// The differences between a directory in a snapshot and the same directory in a newer one, or now. They
    /// cost what has changed, whatever the size of the tree. A directory whose names differ comes as
    /// [`ChangeKind::Entries`] too.
    pub fn differences(&self, from: &Name, to: &Name) -> Differences {
        Differences {
            client: self.clone(),
            from: from.clone(),
            to: to.clone(),
            steps: VecDeque::from([(FileId(0), false)]),
            after: Vec::new(),
            page: VecDeque::new(),
            gathered: Vec::new(),
            tries: TRIES,
        }
    }

    /// Has the manager make snapshots of a directory by a schedule, in place of the one that it has. A
    /// schedule that keeps nothing ends it; what it made stays.
    pub async fn keep_snapshots(&self, directory: &Name, keep: KeepCounts) -> Result<()> {
        let at = self.place(directory).await?;
        self.ask_done(&directory.to_string(), SnapshotKeep { at, keep }).await
    }

    /// The schedules of a volume, or of all.
    pub async fn snapshot_schedules(&self, volume: Option<&str>) -> Result<Vec<ScheduleRow>> {
        let asked = SnapshotSchedules { volume: volume.unwrap_or_default().to_owned() };
        match self.ask_manager("schedules", asked).await? {
            ControlReply::SnapshotSchedules(reply) => Ok(reply.schedules),
            other => Err(unexpected("schedules", &other)),
        }
    }
}

impl Differences {
    /// The next difference.
    pub async fn next(&mut self) -> Result<Option<ChangeRow>> {
        loop {
            if let Some(row) = self.page.pop_front() {
                let is_new = row.change == ChangeKind::Added && row.kind == EntryKind::Directory;
                if is_new || row.change == ChangeKind::Entries {
                    self.steps.push_back((row.file, is_new));
                }
                return Ok(Some(row));
            }
            let Some(&(directory, whole)) = self.steps.front() else { return Ok(None) };
            let subject = self.from.to_string();
            let from = self.client.place(&self.from).await?;
            let to = self.client.place(&self.to).await?;
            let asked = SnapshotDiff { from, to, directory, whole, after: std::mem::take(&mut self.after) };
            let answer = self.client.ask_manager(&subject, asked).await;
            let is_first = directory == FileId(0);
            if let Err(error) = &answer
                && is_first
                && error.reason() == Some(Reason::Unsettled)
                && self.tries > 1
            {
                self.tries -= 1;
                self.gathered.clear();
                continue;
            }
            match answer? {
                ControlReply::SnapshotDiff(reply) if is_first => {
                    self.gathered.extend(reply.changes);
                    if reply.more {
                        self.after = reply.after;
                    } else {
                        self.steps.pop_front();
                        self.page.extend(self.gathered.drain(..));
                    }
                }
                ControlReply::SnapshotDiff(reply) => {
                    if reply.more {
                        self.after = reply.after;
                    } else {
                        self.steps.pop_front();
                    }
                    self.page.extend(reply.changes);
                }
                other => return Err(unexpected(&subject, &other)),
            }
        }
    }

    /// All that are left.
    pub async fn all(mut self) -> Result<Vec<ChangeRow>> {
        let mut all = Vec::new();
        while let Some(row) = self.next().await? {
            all.push(row);
        }
        Ok(all)
    }
}
