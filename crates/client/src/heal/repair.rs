//! The repair of damaged units of a drive's columns: they are made anew in place, from the file's other
//! columns.
//!
//! The column stays in the set: readers work around the damaged unit, and all its other units serve. Each
//! unit is repaired by itself, so that a file with several damaged columns, in different stripes, loses
//! nothing. The column is left out of the cut, as a joining one is. The repair installs the content that the
//! cut names, under its version: the drive replaces damaged content of that version, and keeps newer content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use braid_layout::{Column, ColumnMask, FileId, HolderId, ObjectId, Stripe};
use braid_plan::Target;
use braid_wire::Reason;
use braid_wire::control::{BeginHeal, ControlReply};

use super::settled_cut::{Standing, StripePlace, settled_cut, standing};
use super::{Heal, HealTally, TRIES_MAX, Wanted};
use crate::client::{Client, unexpected};
use crate::data::buffers::User;
use crate::error::Result;
use crate::executor::Executor;
use crate::handle::{Handle, Purpose};
use crate::peers::faults::{Learnt, Remedy};

/// A damaged unit: its object, and its index.
pub type DamagedAt = (ObjectId, u64);

impl Client {
    /// For a client with a drive's credentials: makes damaged units of that drive's columns of the file anew.
    /// Returns the units that were not repaired, each with the reason.
    pub async fn repair_units(
        &self,
        file: FileId,
        units: &[DamagedAt],
        tally: &HealTally,
    ) -> Result<Vec<(DamagedAt, String)>> {
        let subject = format!("file number {file}");
        let opened = match self
            .ask_manager(&subject, BeginHeal { file, comparison: 0, filling: false, in_vain: 0 })
            .await?
        {
            ControlReply::Opened(opened) => opened,
            other => return Err(unexpected(&subject, &other)),
        };
        let handle = Handle::new(self.clone(), subject, Purpose::Heal, HolderId::NONE, opened)?;
        let heal = Heal {
            handle: &handle,
            drive: self.config().credentials.drive,
            tally: tally.other_work(),
            left: AtomicU64::new(0),
        };
        let mut left = Vec::new();
        for &(object, unit) in units {
            let why = match heal.place_of(object) {
                Some((segment, column)) => heal.repair(segment, column, unit).await?,
                None => Some("the object is no longer a column of the file on this drive".to_owned()),
            };
            left.extend(why.map(|why| ((object, unit), why)));
        }
        Ok(left)
    }
}

impl Heal<'_> {
    /// The segment and the column on this drive that an object holds.
    fn place_of(&self, object: ObjectId) -> Option<(usize, Column)> {
        let view = self.handle.view();
        let in_segment = |(index, columns): (usize, &crate::view::SegmentView)| {
            let mine = columns.set.iter().find(|&column| {
                let here = columns.columns[column.index()].drive == self.drive;
                here && view.address(index, column).object == object
            });
            mine.map(|column| (index, column))
        };
        view.segments.iter().enumerate().find_map(in_segment)
    }

    /// Makes one unit anew. Returns the reason if it was not done.
    async fn repair(&self, segment: usize, own: Column, stripe: u64) -> Result<Option<String>> {
        let view = self.handle.view();
        let shape = view.layout.segments()[segment].shape;
        if shape.m() == 0 {
            return Ok(Some(format!("{shape} has no redundancy: write the unit anew, or restore the file")));
        }
        let page = match self.survey_once(&view, segment, &Wanted::Named(vec![stripe])).await? {
            Ok(page) => page,
            Err(trouble) => {
                self.handle.refresh(&view).await?;
                return Ok(Some(trouble.why));
            }
        };
        let columns = &page.view.segments[segment];
        let set = columns.set;
        let joining = columns.joining.with(own);
        let place = StripePlace { shape, stripe: Stripe(stripe), set, joining };
        let Some(survey) = page.stripes.get(&stripe) else {
            return Ok(Some("no other column has the stripe".to_owned()));
        };
        let not_yet = || Ok(Some("the stripe is being written".to_owned()));
        let Some(cut) = settled_cut(&place, own, survey) else { return not_yet() };
        if standing(&place, own, survey, &cut) == Standing::Ahead {
            return not_yet();
        }
        let cuts = BTreeMap::from([(stripe, cut)]);
        self.tally.take(u64::from(shape.unit_bytes())).await;
        let _permit = self.handle.client.set_permit().await;
        let mut learnt = Learnt::default();
        for _ in 0..TRIES_MAX {
            // The column is treated as joining: written whole, and not read.
            let compile = |target: &Target<'_>| {
                let mut target = *target;
                let own = ColumnMask::EMPTY.with(own);
                target.health.joining = target.health.joining.or(own);
                target.health.away = target.health.away.minus(own);
                braid_plan::rebuild(&target, stripe..stripe + 1, own)
            };
            let Some(plan) = self.handle.compile(&page.view, segment, &learnt, compile)? else {
                let stripes = stripe..stripe + 1;
                let away = self.handle.too_many_away(&page.view, segment, stripes, "repair", &learnt);
                return Ok(Some(away.to_string()));
            };
            let mut executor = Executor::new(self.handle, &page.view, plan, User::Nothing)?;
            let failed = executor.read_cuts(&cuts).await?;
            if failed.is_empty() {
                executor.compute(&BTreeSet::new())?;
                let again = self.install(&page.view, executor, BTreeSet::new()).await?;
                return if again.is_empty() { Ok(None) } else { not_yet() };
            }
            for one in &failed {
                let gone = one.failure.is(Reason::Gone);
                if gone || learnt.note(one) == Remedy::Refresh {
                    return not_yet();
                }
            }
        }
        not_yet()
    }
}
