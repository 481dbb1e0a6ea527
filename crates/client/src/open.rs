//! Opening files.

use std::collections::BTreeSet;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use braid_layout::{DriveId, HolderId, Shape};
use braid_wire::control::{
    Access, ByteRange, ControlReply, CreateUnnamed, NamePlace, NewAttributes, Open, Opened,
};

use crate::client::{Client, random, unexpected};
use crate::data::stamps::{EarlierWrites, Stamps};
use crate::data::write::WriteSide;
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::sealed::Sealed;
use crate::handle::Handle;
use crate::naming::attributes::usual_file;
use crate::naming::name::{Name, check_volume};
use crate::naming::names::spec;
use crate::naming::reservations::{DataDirection, RateAsk, Reserved};
use crate::peers::lease::LeaseRenewer;

/// Options for opening a file, as with `std::fs::OpenOptions`. Any number of handles, of any clients, may
/// write a file. A sole writer has an exclusive lease on it; several writers each have a part in a shared
/// one.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    append: bool,
    alone: bool,
    range: Option<Range<u64>>,
    shape: Option<Shape>,
    new: Option<NewAttributes>,
    reserve: Option<RateAsk>,
    stored_bytes: bool,
}

impl OpenOptions {
    /// Options that request no access yet.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens for reading.
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.read = read;
        self
    }

    /// Opens for writing.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Creates the file if it does not exist. Needs writing.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file, and fails if it exists. Needs writing.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Truncates the file to zero bytes. Needs writing.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Opens for writing; [`File::write`] then always writes at the end, whatever the position: see
    /// [`File::append`].
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.append = append;
        self
    }

    /// Opens for writing, and excludes all other writers meanwhile: refused while others have the file open
    /// for writing. Needs writing.
    pub fn alone(mut self, alone: bool) -> OpenOptions {
        self.alone = alone;
        self
    }

    /// Writes only these bytes of the file, from a stripe's first byte to another's, or without an end. While
    /// all writers of the file name a range, and no two ranges have a stripe in common, each writer has an
    /// exclusive lease on its own stripes: whole stripes are written as fast as in a file of its own.
    /// Otherwise the writers share the file, as writers without a range do. Needs writing; not with `alone`,
    /// `append` or `truncate`. The size cannot be set. [`File::layout`] gives the length of a stripe.
    ///
    /// ```
    /// # use braid_client::{Client, Name, OpenOptions, Result};
    /// /// Writes one process's share of a file: as many whole stripes as each of the others writes.
    /// async fn write_share(client: &Client, name: &Name, rank: u64, share: &[u8]) -> Result<()> {
    ///     let bytes = share.len() as u64;
    ///     let from = rank * bytes;
    ///     let options = OpenOptions::new().write(true).create(true).range(from..from + bytes);
    ///     let file = client.open(name, &options).await?;
    ///     file.write_at(share, from).await?;
    ///     file.close().await
    /// }
    /// ```
    pub fn range(mut self, range: impl RangeBounds<u64>) -> OpenOptions {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        self.range = Some(start..end);
        self
    }

    /// The shape of a newly created file; by default that of the reserved rate's plan, else of the nearest
    /// directory above that has a layout ([`Client::set_layout`]), else of the volume.
    pub fn shape(mut self, shape: Shape) -> OpenOptions {
        self.shape = Some(shape);
        self
    }

    /// Owner and permissions of a newly created file. By default it belongs to this process's user and group;
    /// they may write it, and all may read it.
    pub fn new_attributes(mut self, new: NewAttributes) -> OpenOptions {
        self.new = Some(new);
        self
    }

    /// Reserves a data rate for the name, opens the file under it, and ends the reservation when the file is
    /// closed or dropped; after a crash it ends by itself at the end of its time. The direction must be that
    /// of the access. A rate that cannot be kept is refused with [`Error::NotAdmitted`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use braid_client::{Client, Error, Name, OpenOptions, RateAsk, Result};
    /// /// Records at the rate that was asked for, or at the first that can be had now instead.
    /// async fn record(client: &Client, name: &Name, data: &[u8]) -> Result<()> {
    ///     let mut ask = RateAsk::write(20_000_000, Duration::from_secs(60));
    ///     let new = OpenOptions::new().write(true).create(true);
    ///     let opened = match client.open(name, &new.clone().reserve(ask.clone())).await {
    ///         Err(Error::NotAdmitted { name: at, refused }) => {
    ///             // There may be no offer, or only for later.
    ///             let Some(offer) = refused.offers.iter().find(|offer| offer.begins_ms == 0) else {
    ///                 return Err(Error::NotAdmitted { name: at, refused });
    ///             };
    ///             ask.rate = offer.rate;
    ///             ask.survive = offer.survive;
    ///             client.open(name, &new.reserve(ask)).await
    ///         }
    ///         opened => opened,
    ///     };
    ///     let file = opened?;
    ///     file.write_at(data, 0).await?;
    ///     if let Some(delivered) = file.lateness() {
    ///         println!("{} of {} periods were late", delivered.periods_late, delivered.periods);
    ///     }
    ///     file.close().await
    /// }
    /// ```
    pub fn reserve(mut self, ask: RateAsk) -> OpenOptions {
        self.reserve = Some(ask);
        self
    }

    /// Reads what drives hold: of a file of an encrypted volume its sealed blocks, without a key.
    pub(crate) fn stored_bytes(mut self) -> OpenOptions {
        self.stored_bytes = true;
        self
    }

    fn access(&self, subject: &str) -> Result<Access> {
        let writes = self.write || self.append;
        if !writes && (self.create || self.create_new || self.truncate || self.alone) {
            return Err(Error::Access {
                file: subject.to_owned(),
                access: "writing, which is needed to create or truncate it or to be its only writer",
            });
        }
        if self.range.is_some() && (!writes || self.alone || self.append || self.truncate) {
            let why =
                "a range is for writing, and excludes alone, append and truncate: leave one of them out";
            return Err(Error::Options { file: subject.to_owned(), why });
        }
        if !writes && !self.read {
            return Err(Error::Access { file: subject.to_owned(), access: "reading or writing" });
        }
        let access = if writes { Access::Write } else { Access::Read };
        let needed = if writes { DataDirection::Write } else { DataDirection::Read };
        if self.reserve.as_ref().is_some_and(|ask| ask.direction != needed) {
            let why = "the reserved rate is for the other direction than the file is opened for";
            return Err(Error::Options { file: subject.to_owned(), why });
        }
        Ok(access)
    }
}

impl Client {
    /// Opens a file. If a writer died while it truncated the file, opening for writing first clears away what
    /// was left past the size.
    pub async fn open(&self, name: &Name, options: &OpenOptions) -> Result<File> {
        let access = options.access(&name.to_string())?;
        let reserved = match &options.reserve {
            None => None,
            Some(ask) => Some(Reserved::ask(self, name, ask).await?),
        };
        match (self.open_for(name, access, options).await, reserved) {
            (Ok(file), Some(reserved)) => Ok(file.under(reserved)),
            (Err(error), Some(reserved)) => {
                reserved.end().await;
                Err(error)
            }
            (opened, None) => opened,
        }
    }

    async fn open_for(&self, name: &Name, access: Access, options: &OpenOptions) -> Result<File> {
        let subject = name.to_string();
        let holder = HolderId(random()?);
        let at = self.place(name).await?;
        let request = |has_key| Open {
            at: at.clone(),
            access,
            create: options.create || options.create_new,
            exclusive: options.create_new,
            shape: spec(options.shape),
            new: options.new.unwrap_or_else(usual_file),
            holder,
            alone: options.alone || has_key && access == Access::Write && options.range.is_none(),
            range: options.range.as_ref().map(|range| ByteRange { from: range.start, to: range.end }),
            takes_sealed: has_key || options.stored_bytes,
        };
        let answer = match options.stored_bytes {
            true => self.ask_manager(&subject, request(false)).await?,
            false => self.ask_for_file(&subject, name.volume(), request).await?,
        };
        let opened = match answer {
            ControlReply::Opened(opened) => opened,
            other => return Err(unexpected(&subject, &other)),
        };
        let file = self.opened(subject, name.volume(), access, opened, holder, options).await?;
        if options.truncate && file.size() > 0 {
            file.set_len(0).await?;
        }
        Ok(file)
    }

    /// Creates a file without a name, open for reading and writing. It is removed on close, unless
    /// [`File::link`] has given it a name.
    pub async fn create_unnamed(&self, volume: &str, shape: Option<Shape>) -> Result<File> {
        check_volume(volume).map_err(|source| Error::Name { name: volume.to_owned(), source })?;
        self.create_in(volume, shape, &BTreeSet::new(), None).await
    }

    /// Creates a file without a name, as [`Client::create_unnamed`] does, that [`File::link`] is to give this
    /// name: if a data rate is reserved there, the file has it already; and without a shape it gets the one
    /// that counts there. The file is not on the drives in `full` as long as there are enough others: they
    /// refused its bytes for lack of space ([`File::full_drive`]).
    pub async fn create_for(
        &self,
        name: &Name,
        shape: Option<Shape>,
        full: &BTreeSet<DriveId>,
    ) -> Result<File> {
        self.create_in(name.volume(), shape, full, Some(self.place(name).await?)).await
    }

    async fn create_in(
        &self,
        volume: &str,
        shape: Option<Shape>,
        full: &BTreeSet<DriveId>,
        meant_for: Option<NamePlace>,
    ) -> Result<File> {
        let subject = format!("new file in volume {volume}");
        let holder = HolderId(random()?);
        let request = |has_key| CreateUnnamed {
            volume: volume.to_owned(),
            shape: spec(shape),
            new: usual_file(),
            holder,
            avoid: full.iter().copied().collect(),
            meant_for: meant_for.clone(),
            takes_sealed: has_key,
        };
        match self.ask_for_file(&subject, volume, request).await? {
            ControlReply::Opened(opened) => {
                let options = OpenOptions::new().read(true).write(true);
                self.opened(subject, volume, Access::Write, opened, holder, &options).await
            }
            other => Err(unexpected(&subject, &other)),
        }
    }

    async fn opened(
        &self,
        subject: String,
        volume: &str,
        access: Access,
        opened: Opened,
        holder: HolderId,
        options: &OpenOptions,
    ) -> Result<File> {
        let size = opened.stat.size();
        let cut = opened.cut;
        let is_sealed = opened.stat.attributes.sealed;
        // Of files that are opened to be checked the sealed bytes are read.
        let sealed_of = (!options.stored_bytes).then_some(volume);
        // The file's first lease: nobody has written to it yet. (The request does not tell: the answer may be
        // to a repeat, after another client has opened the file.)
        let is_first = opened.lease.0 == 1 && size == 0 && !cut;
        let earlier = if is_first { EarlierWrites::None } else { EarlierWrites::Unknown };
        let client = if opened.promise.is_some() { self.apart() } else { self.clone() };
        let handle = Arc::new(Handle::new(client, subject, access, holder, opened)?);
        if access == Access::Read {
            return self.with_seals(File::reader(handle), is_sealed, sealed_of).await;
        }
        let view = handle.view();
        // After an unfinished truncation the bytes past the size are not zeros until they have been punched.
        let written_end = if cut { u64::MAX } else { size };
        let side = Arc::new(WriteSide::new(
            Stamps::new(view.lease, view.g, written_end, earlier),
            &self.shared.recent,
        ));
        let keeper = LeaseRenewer::start(Arc::clone(&handle), Arc::clone(&side));
        let file = File::writer(handle, side, keeper, size, options.clone().into());
        let file = self.with_seals(file, is_sealed, sealed_of).await?;
        if cut {
            file.end_cut(size).await?;
        }
        Ok(file)
    }

    /// Has a file seal and open its bytes, if they are sealed. `volume` is where it was looked for; `None`:
    /// what drives hold of it is wanted. Without the key the file is given up. So it is if there is a key for
    /// the volume, and the manager says that the file is not sealed: no plain text goes where sealed bytes
    /// belong.
    async fn with_seals(&self, file: File, is_sealed: bool, volume: Option<&str>) -> Result<File> {
        let Some(volume) = volume else { return Ok(file) };
        if !is_sealed {
            self.shared.ring.forget(volume);
            if self.shared.ring.is_given(volume) {
                let file = file.subject().to_owned();
                return Err(Error::NotEncrypted { file, volume: volume.to_owned() });
            }
            return Ok(file);
        }
        let view = file.handle().view();
        let seals = self.seals(view.volume, view.file).await?;
        Ok(file.sealed_by(Sealed::new(seals)))
    }
}

impl From<OpenOptions> for crate::file::Mode {
    fn from(options: OpenOptions) -> Self {
        crate::file::Mode { read: options.read, append: options.append, range: options.range }
    }
}
