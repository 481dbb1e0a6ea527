//! The work of a client: it writes its own files, and reads its own and those of others. One file is
//! shared: each client writes records of its own in it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use braid_client::Client;
use braid_client::Config;
use braid_client::Error;
use braid_client::File;
use braid_client::Kind;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_layout::{ColumnMask, Role, Shape, Stripe};
use tokio::time::timeout;

use crate::cluster::Contact;
use crate::host::now_ms;
use crate::model::Model;
use crate::random::Random;
use crate::trace::Trace;

pub(crate) mod quotas;

use quotas::Quota;

/// Longest time of an operation, whatever happens.
const OPERATION_BOUND: Duration = Duration::from_secs(180);
/// Time for which a client retries one request.
const PATIENCE: Duration = Duration::from_secs(20);

/// A file of the workload.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Number of the file in the model.
    pub(crate) number: usize,
    pub(crate) name: Name,
    pub(crate) shape: Shape,
    pub(crate) length: u64,
    /// Bytes of a record, in a file that all clients write.
    pub(crate) record: Option<u64>,
    /// True if a record is whole stripes, each client has one, and opens the file for it alone.
    pub(crate) ranged: bool,
}

/// The identity of a client, and its share of the run.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) who: String,
    /// Number of the client, and number of clients.
    pub(crate) index: (u64, u64),
    pub(crate) own: Vec<Target>,
    pub(crate) others: Vec<Target>,
    pub(crate) model: Model,
    pub(crate) quota: Quota,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of operations done by all clients.
    pub(crate) done: Arc<AtomicU64>,
}

/// One of the client's files, with its handle if it is open for writing.
struct Own {
    target: Target,
    open: Option<File>,
}

pub(crate) fn config(contact: &Contact) -> Config {
    let mut config = Config::new(contact.address.clone(), contact.client_token.clone());
    config.set_bytes = 64 << 10;
    config.grace = Duration::from_millis(500);
    config.avoid = Duration::from_millis(500);
    config.limits.connect = Duration::from_millis(500);
    config.drive_reply = Duration::from_secs(4);
    config.patience = PATIENCE;
    config.transport = contact.transport;
    config
}

/// Works until told to stop.
pub(crate) async fn work(task: Task, contact: Contact, mut random: Random) {
    let client = loop {
        match Client::connect(config(&contact)).await {
            Ok(client) => break client,
            Err(error) => task.trace.event(format!("{} does not connect: {error}", task.who)),
        }
        if task.stop.load(Ordering::Relaxed) {
            return;
        }
    };
    let mut own: Vec<Own> =
        task.own.iter().map(|target| Own { target: target.clone(), open: None }).collect();
    while !task.stop.load(Ordering::Relaxed) {
        let number = usize::try_from(random.below(own.len() as u64)).unwrap_or(0);
        let what = random.below(100);
        let operation = operate(&task, &client, &mut own[number], what, &mut random);
        if timeout(OPERATION_BOUND, operation).await.is_err() {
            let seconds = OPERATION_BOUND.as_secs();
            task.model.fail(format!("{}: an operation ({what}) hangs for {seconds} s", task.who));
            return;
        }
        task.done.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
    }
    for Own { target, open } in own {
        if let Some(file) = open {
            task.close(&target, file).await;
        }
    }
    task.trace.event(format!("{} has stopped", task.who));
}

/// Does one operation on one of the client's files.
async fn operate(task: &Task, client: &Client, own: &mut Own, what: u64, random: &mut Random) {
    if what < 25 && !task.others.is_empty() {
        let other = usize::try_from(random.below(task.others.len() as u64)).unwrap_or(0);
        return task.read_other(client, &task.others[other], random).await;
    }
    let Some(file) = &own.open else {
        own.open = task.open(client, &own.target, random).await;
        return;
    };
    match what {
        25..45 => task.read(&own.target, file, random).await,
        45..52 => task.flush(&own.target, file).await,
        52..58 => {
            if let Some(file) = own.open.take() {
                task.close(&own.target, file).await;
            }
        }
        58..63 if own.target.record.is_none() => {
            if !task.cut(&own.target, file, random).await
                && let Some(file) = own.open.take()
            {
                task.close(&own.target, file).await;
            }
        }
        _ => {
            if !task.write_some(&own.target, file, random).await
                && let Some(file) = own.open.take()
            {
                task.close(&own.target, file).await;
            }
        }
    }
}

impl Task {
    fn told(&self, what: &str, target: &Target, began_ms: u64, result: Result<(), &Error>) {
        let took = now_ms() - began_ms;
        let end = result.map_or_else(|error| format!(": {error}"), |()| String::new());
        self.trace.event(format!("{} {what} {} in {took} ms{end}", self.who, target.name));
    }

    /// Opens a file for writing, and reads the bytes that the earlier writers left.
    async fn open(&self, client: &Client, target: &Target, random: &mut Random) -> Option<File> {
        let began = now_ms();
        let options = OpenOptions::new().read(true).write(true).create(true).shape(target.shape);
        let options = options.alone(target.record.is_none());
        let range = if target.ranged { self.range(target, random) } else { None };
        let by_range = match range.clone() {
            Some(range) => options.clone().range(range),
            None => options.clone(),
        };
        let file = match client.open(&target.name, &by_range).await {
            // The first client makes the file as long as it is to be. A client that has only a part of it
            // cannot.
            Ok(file) if range.is_some() && file.size() < target.length => {
                self.close(target, file).await;
                client.open(&target.name, &options).await
            }
            opened => opened,
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                if error.kind() != Kind::Busy {
                    self.told("does not open", target, began, Err(&error));
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
                return None;
            }
        };
        match self.look(target, &file).await {
            Ok(()) => {
                let what = match (target.ranged, file.own_range()) {
                    (true, Some(own)) => format!("opened {own:?} of {range:?} of"),
                    (true, None) => format!("opened, with others, {range:?} of"),
                    _ => "opened".to_owned(),
                };
                self.told(&what, target, began, Ok(()));
                Some(file)
            }
            Err(error) => {
                self.told("opened and could not read", target, began, Err(&error));
                self.close(target, file).await;
                None
            }
        }
    }

    /// The range for which a client opens the file of which each client writes a part: mostly that part,
    /// now and then more, which makes the clients share the file.
    fn range(&self, target: &Target, random: &mut Random) -> Option<Range<u64>> {
        let own = target.records(self.index.0, self.index.1).next()?;
        let is_last = self.index.0 + 1 == self.index.1;
        let end = if is_last { u64::MAX } else { own.end };
        match random.below(10) {
            0..2 => None,
            2 => Some(0..end),
            _ => Some(own.start..end),
        }
    }

    /// Reads the bytes that the earlier writers left, and decides them in the model. In the file that all
    /// clients write, these are the client's own records, and the file gets its full length first, so that
    /// its size decides nothing.
    async fn look(&self, target: &Target, file: &File) -> Result<(), Error> {
        if target.record.is_some() && file.size() < target.length {
            self.quota.wants(target.number, target.length);
            let made_long = file.set_len(target.length).await;
            made_long.inspect_err(|error| self.quota.judge(error, &self.model, &self.trace))?;
        }
        let mut found = vec![0; usize::try_from(file.size().min(target.length)).unwrap_or(0)];
        let count = file.read_at(&mut found, 0).await?;
        found.truncate(count);
        if target.record.is_some() {
            let own: Vec<_> = target.records(self.index.0, self.index.1).collect();
            self.model.decide_part(target.number, &own, &found, &self.who);
        } else {
            self.model.decide(target.number, &found, &self.who);
        }
        self.model.committed(target.number);
        Ok(())
    }

    async fn close(&self, target: &Target, file: File) {
        let began = now_ms();
        let result = file.close().await;
        if result.is_ok() {
            self.model.committed(target.number);
        }
        self.told("closed", target, began, result.as_ref().map(drop));
    }

    async fn flush(&self, target: &Target, file: &File) {
        let began = now_ms();
        let result = file.flush().await;
        if result.is_ok() {
            self.model.committed(target.number);
        }
        self.told("flushed", target, began, result.as_ref().map(drop));
    }

    /// Writes somewhere, now and then in several pieces, at once or one after another. Returns false if the
    /// handle can write no more.
    async fn write_some(&self, target: &Target, file: &File, random: &mut Random) -> bool {
        let range = match target.record {
            None => somewhere(target, random),
            Some(_) => {
                let own: Vec<_> = target.records(self.index.0, self.index.1).collect();
                let record = &own[usize::try_from(random.below(own.len() as u64)).unwrap_or(0)];
                let from = record.start + random.below(record.end - record.start);
                from..from + 1 + random.below(record.end - from)
            }
        };
        if random.percent(65) {
            return self.write(target, file, range).await;
        }
        if random.percent(40) {
            // As a writer of small records does: each needs what the one before has left in the stripe.
            let mut from = range.start;
            while from < range.end {
                let to = range.end.min(from + 1 + random.below((range.end - range.start).div_ceil(4)));
                if !self.write(target, file, from..to).await {
                    return false;
                }
                from = to;
            }
            return true;
        }
        let first = range.start + random.below(range.end - range.start);
        let second = first + random.below(range.end - first);
        let pieces = [range.start..first, first..second, second..range.end];
        let [one, two, three] = pieces.map(|piece| self.write(target, file, piece));
        let (one, two, three) = tokio::join!(one, two, three);
        one && two && three
    }

    async fn write(&self, target: &Target, file: &File, range: Range<u64>) -> bool {
        let began = now_ms();
        if range.is_empty() {
            return true;
        }
        let (write, bytes) = self.model.begin_write(target.number, range.clone());
        self.quota.wants(target.number, range.end);
        let result = file.write_at(&bytes, range.start).await;
        if let Err(error) = &result {
            self.quota.judge(error, &self.model, &self.trace);
        }
        if result.is_ok() {
            self.model.end_write(target.number, write, range.clone());
            let columns = ColumnMask::all(target.shape.width());
            self.model.touched(target.number, target.columns(&range), columns);
        }
        self.told(&format!("wrote {range:?} as {write:?} of"), target, began, result.as_ref().map(drop));
        result.is_ok()
    }

    /// Truncates the file. Returns false if the handle must not be used any more.
    async fn cut(&self, target: &Target, file: &File, random: &mut Random) -> bool {
        let began = now_ms();
        let to = random.below(file.size().min(target.length) + 1);
        let cut = self.model.begin_cut(target.number, to);
        let result = file.set_len(to).await;
        if result.is_ok() {
            self.model.end_cut(target.number, cut, to);
        }
        self.told(&format!("truncated to {to}"), target, began, result.as_ref().map(drop));
        result.is_ok()
    }

    async fn read(&self, target: &Target, file: &File, random: &mut Random) {
        let began = now_ms();
        let range = somewhere(target, random);
        let read = self.model.begin_read(target.number, range.clone());
        let mut found = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let result = file.read_at(&mut found, range.start).await;
        match &result {
            Ok(count) => self.model.end_read(read, &found[..*count], &self.who),
            Err(_) => self.model.drop_read(read),
        }
        self.told(&format!("read {range:?} of"), target, began, result.as_ref().map(drop));
    }

    /// Opens another client's file and reads some of it.
    async fn read_other(&self, client: &Client, target: &Target, random: &mut Random) {
        let began = now_ms();
        let range = somewhere(target, random);
        let read = self.model.begin_read(target.number, range.clone());
        let mut found = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let result = match client.open(&target.name, &OpenOptions::new().read(true)).await {
            Ok(file) => file.read_at(&mut found, range.start).await,
            Err(error) => Err(error),
        };
        match &result {
            Ok(count) => self.model.end_read(read, &found[..*count], &self.who),
            Err(_) => self.model.drop_read(read),
        }
        self.told(&format!("read {range:?} of"), target, began, result.as_ref().map(drop));
    }
}

impl Target {
    /// Columns that have bytes of this range, or their parity.
    fn columns(&self, range: &Range<u64>) -> ColumnMask {
        let unit = u64::from(self.shape.unit_bytes());
        let mut columns = ColumnMask::EMPTY;
        for number in range.start / unit..range.end.div_ceil(unit) {
            let stripe = Stripe(number / u64::from(self.shape.k()));
            let data = Role::Data(u8::try_from(number % u64::from(self.shape.k())).unwrap_or(0));
            let parity = (0..self.shape.m()).map(Role::Parity);
            for role in parity.chain([data]) {
                columns = columns.with(self.shape.column(stripe, role));
            }
        }
        columns
    }

    /// Records of one of several clients.
    fn records(&self, client: u64, of: u64) -> impl Iterator<Item = Range<u64>> {
        let bytes = self.record.unwrap_or(self.length);
        let length = self.length;
        let starts = (0..length.div_ceil(bytes)).filter(move |number| number % of == client);
        starts.map(move |number| number * bytes..((number + 1) * bytes).min(length))
    }
}

/// A range of the file: a few bytes, about a unit, or some stripes.
fn somewhere(target: &Target, random: &mut Random) -> Range<u64> {
    let unit = u64::from(target.shape.unit_bytes());
    let stripe = unit * u64::from(target.shape.k());
    let range = match random.below(10) {
        0..4 => {
            let at = random.below(target.length - 1);
            at..at + 1 + random.below(unit)
        }
        4..6 => {
            let at = random.below(target.length / unit) * unit;
            at..at + unit
        }
        6..8 => {
            let at = random.below(target.length / stripe) * stripe;
            at..at + stripe * (1 + random.below(2))
        }
        _ => {
            let at = random.below(target.length - 1);
            at..at + 1 + random.below(3 * stripe)
        }
    };
    range.start..range.end.min(target.length)
}
