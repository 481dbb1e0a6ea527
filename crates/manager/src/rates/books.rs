//! The books: what is reserved on each drive. What is on record is entered here at a start, and again when
//! drives or layouts have changed.

use braid_admission::{
    About, Access, Answer, Ask, ClientParts, Demand, DriveParts, Ledger, Policy, Prices, ProcessorCost,
    Qualified, Rail, Terms, Whole, quote,
};
use braid_layout::{ClientId, DriveId, ReservationId};
use braid_meta::records::schema::{DriveShare, ReservationRecord};
use braid_meta::rules::drives::{Drive, DriveTable};
use braid_meta::rules::ended_rates::EndedRates;
use braid_meta::rules::space::takes_columns;
use braid_schedule::cost::SECOND_NS;
use braid_schedule::rail::in_series;
use braid_schedule::{
    BOOKED_PERMILLE, Charge, Config, DeviceCost, Direction, DirectionCost, OPERATION_BYTES, RailRate,
};
use braid_wire::capability::DataDirection;
use braid_wire::control::{DriveBooking, DrivePromise, DriveState, RatePlan, WholeRate};
use braid_wire::data::{DiskCharge, DiskCost};

use crate::rates::booking::Carried;

/// Share of each drive that is booked at most, in thousandths.
pub(crate) const SHARE_PERMILLE: u32 = BOOKED_PERMILLE;
/// Largest unit of shapes that are free to choose: larger operations would be beyond the lateness that other
/// promises state.
const UNIT_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(UNIT_BYTES_MAX as u64 == OPERATION_BYTES);
/// Longest operation of a plan, in nanoseconds of device time.
const OPERATION_NS: u64 = 10_000_000;
/// Part (an eighth) of a drive's capacity: with less free, the log's cleaning is counted.
const SCARCE_PART: u64 = 8;
/// Bytes that cleaning moves for each 1000 bytes written, where space is scarce.
const MOVED_PERMILLE: u32 = 250;

/// The bookings of all drives.
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    pub(crate) prices: Prices,
}

impl Default for Books {
    fn default() -> Books {
        Books { ledger: Ledger::new(SHARE_PERMILLE), prices: Prices::default() }
    }
}

impl Books {
    /// Enters the drives as they are now. Drives that are not calibrated count as out.
    pub(crate) fn refresh(&mut self, table: &DriveTable, ended: &mut EndedRates, now_ms: u64) {
        let is_there =
            |drive| table.drive(drive).is_some() && table.state(drive, now_ms) != DriveState::Replaced;
        let gone: Vec<DriveParts> =
            self.ledger.drives().filter(|parts| parts.alive && !is_there(parts.drive)).cloned().collect();
        gone.into_iter().for_each(|parts| self.ledger.set_drive(DriveParts { alive: false, ..parts }));
        let serves = |drive| table.state(drive, now_ms) == DriveState::Up;
        ended.take_free(now_ms, serves).into_iter().for_each(|id| drop(self.ledger.remove(id.0)));
        let qualified = table.whole().map(|whole| told_whole(whole).share()).unwrap_or_default();
        for drive in table.iter().filter(|drive| drive.record.replaced_by == DriveId(0)) {
            let state = table.state(drive.record.drive, now_ms);
            self.ledger.set_drive(parts(drive, state == DriveState::Up, qualified));
            use braid_schedule::Background as Work;
            let standing = share([Work::Scrub, Work::Cleaning, Work::Checkpoint]);
            let rebuild = share([Work::Rebuild]);
            let background = braid_admission::Background { standing, rebuild };
            let entered = self.ledger.set_background(drive.record.drive, background);
            debug_assert!(entered.is_ok(), "the drive was just entered");
        }
    }

    /// Enters a reservation that was admitted.
    pub(crate) fn add(&mut self, id: ReservationId, booking: braid_admission::Booking) {
        self.ledger.remove(id.0);
        if let Err(error) = self.ledger.add(id.0, booking) {
            tracing::warn!(%error, reservation = %id, "a reservation is not in the books");
        }
    }

    /// Takes a reservation out.
    pub(crate) fn remove(&mut self, id: ReservationId) {
        self.ledger.remove(id.0);
    }

    /// The booking of a reservation.
    pub(crate) fn booking(&self, id: ReservationId) -> Option<&braid_admission::Booking> {
        self.ledger.booking(id.0)
    }

    /// The share of a drive that may be booked, in thousandths.
    pub(crate) fn share_permille(&self) -> u32 {
        SHARE_PERMILLE
    }

    /// The booking of each drive.
    pub(crate) fn drives(&self, table: &DriveTable) -> Vec<DriveBooking> {
        let mut rows: Vec<DriveBooking> = self
            .ledger
            .drives()
            .map(|parts| DriveBooking {
                drive: parts.drive,
                name: table.name(parts.drive),
                healthy_permille: permille(self.ledger.load(parts.drive, &[])),
                worst_permille: permille(self.ledger.worst(parts.drive)),
                able_permille: parts.service_permille,
            })
            .collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    }

    /// The plan of a reservation, as clients see it.
    pub(crate) fn plan(
        &self,
        table: &DriveTable,
        record: &ReservationRecord,
        booking: Option<&braid_admission::Booking>,
    ) -> RatePlan {
        let drive = |of: &braid_admission::DriveBooking| {
            let worst = of.lost.iter().fold(of.healthy, |worst, loss| worst.max(&loss.demand));
            let share = record.share(of.drive);
            DrivePromise {
                drive: of.drive,
                name: table.name(of.drive),
                rate: share.map_or(0, |share| share.rate),
                burst: share.map_or(0, |share| share.burst),
                operation_bytes: record.operation_bytes,
                healthy_permille: permille(Some(of.healthy)),
                worst_permille: permille(Some(worst)),
            }
        };
        let mut drives: Vec<DrivePromise> =
            booking.iter().flat_map(|booking| &booking.drives).map(drive).collect();
        drives.sort_by(|one, other| one.name.cmp(&other.name));
        RatePlan {
            shape: record.shape.clone(),
            drives,
            buffer_bytes: record.buffer_bytes,
            lateness_us: record.lateness_us,
            failover_us: record.failover_us,
            start_us: record.start_us,
        }
    }

    /// The reason why a reservation may not be kept now; empty: there is none.
    pub(crate) fn risk(&self, table: &DriveTable, now_ms: u64, record: &ReservationRecord) -> String {
        let drives = || record.drives_booked();
        let lost: Vec<DriveId> =
            drives().filter(|drive| table.state(*drive, now_ms) != DriveState::Up).collect();
        if lost.len() > usize::from(record.survive) {
            let names = table.names(lost.iter().copied());
            return format!(
                "{names} are lost, and it survives {}: its rate is not promised until they are back",
                record.survive
            );
        }
        if self.booking(record.reservation).is_none() {
            return "it could not be priced: its files or drives are not known".to_owned();
        }
        let short =
            drives().find_map(|drive| self.ledger.overbooked(drive).map(|shortage| (drive, shortage)));
        match short {
            None => String::new(),
            Some((drive, shortage)) => {
                let name = table.name(drive);
                let cause = table.drive(drive).and_then(|known| known.parts.as_ref());
                let cause = cause.map(|parts| parts.derate_cause.as_str()).filter(|cause| !cause.is_empty());
                let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
                let lost = shortage.lost.map(|lost| format!(" if {} is lost", table.name(lost)));
                format!(
                    "{name}{cause}: its {} cannot do all that is booked{}: move or end other reservations, or mend it",
                    shortage.part,
                    lost.unwrap_or_default()
                )
            }
        }
    }

    /// Enters a reservation on record again, with the layouts and costs of now. While drives are lost it
    /// survives fewer further losses. If it cannot be priced at all, what was booked stays; and so it does if
    /// the files lie on further drives now, and these have no room for it.
    pub(crate) fn enter(&mut self, record: &ReservationRecord, about: &About, now_ms: u64) -> Entered {
        for survive in (0..=record.survive).rev() {
            let ask = Ask {
                terms: terms(record.direction, record.rate, record.streams, record.period_ms, survive),
                about: about.clone(),
                client: client_parts(record.client, record.rail),
                now_ms,
                duration_ms: Some(record.ends_ms.saturating_sub(now_ms)),
            };
            let quoted = quote(&self.ledger, &mut self.prices, &policy(), &ask);
            if let Ok(Answer::Admitted(admitted)) = quoted {
                let carried = Carried::of(&admitted, record.direction, record.streams);
                let booking = admitted.booking;
                let before = self.ledger.remove(record.reservation.0);
                let grows = booking.drives.iter().any(|of| record.share(of.drive).is_none());
                if let Some(before) = before.filter(|_| grows && self.ledger.check(&booking).is_err()) {
                    self.add(record.reservation, before);
                    return Entered { is_booked: false, is_whole: false, carried };
                }
                self.add(record.reservation, booking);
                let is_whole = survive == record.survive && carried.is_some();
                return Entered { is_booked: true, is_whole, carried };
            }
        }
        Entered { is_booked: true, is_whole: false, carried: Carried::default() }
    }
}

/// The outcome of [`Books::enter`].
pub(crate) struct Entered {
    /// The drives of all files are booked, as far as they can be priced.
    pub(crate) is_booked: bool,
    /// The price is that of all states: it has no more drives lost than the promise survives.
    pub(crate) is_whole: bool,
    /// The promise that was priced, at the drives that are there.
    pub(crate) carried: Carried,
}

impl Entered {
    /// The shares that capabilities for these drives carry from now on, with those before. They are priced
    /// anew, if the price is that of all states, and else as before. A drive that was not priced before, as
    /// it came while others were lost, has the price that there is.
    pub(crate) fn onto(&self, drives: &[DriveId], before: &[DriveShare]) -> Vec<DriveShare> {
        let of = |shares: &[DriveShare], drive| shares.iter().find(|share| share.drive == drive).cloned();
        let share = |&drive: &DriveId| {
            let priced = of(&self.carried.shares, drive);
            let known = of(before, drive);
            let share = if self.is_whole { priced.or(known) } else { known.or(priced) };
            share.unwrap_or(DriveShare { drive, rate: 0, burst: 0 })
        };
        drives.iter().map(share).collect()
    }
}

pub(crate) fn terms(direction: DataDirection, rate: u64, streams: u32, period_ms: u32, survive: u8) -> Terms {
    Terms {
        direction: way(direction),
        bytes_per_second: rate,
        streams,
        period_ns: u64::from(period_ms) * 1_000_000,
        survive,
        access: Access::Whole,
    }
}

/// The client's parts that are known: the rate of its rail. `None` without one: nothing is booked for it.
pub(crate) fn client_parts(client: ClientId, told: u64) -> Option<ClientParts> {
    let rail = rail(told);
    rail.in_bytes_per_second?;
    Some(ClientParts { client, rail, processor: None })
}

fn way(direction: DataDirection) -> Direction {
    match direction {
        DataDirection::Read => Direction::Read,
        DataDirection::Write => Direction::Write,
    }
}

/// Bounds of plans: operations are short enough for the drives' depth.
pub(crate) fn policy() -> Policy {
    Policy { operation_ns: OPERATION_NS, unit_bytes_max: UNIT_BYTES_MAX, ..Policy::default() }
}

/// The bound on lateness at these drives, in nanoseconds: that of their schedulers for operations of this
/// many bytes, before the disk and, where its rate was told, before the rail.
pub(crate) fn lateness_ns(ledger: &Ledger, direction: DataDirection, carried: &Carried) -> u64 {
    let operation_bytes = u64::from(carried.operation_bytes);
    let of = |share: &DriveShare| {
        let parts = ledger.parts(share.drive)?;
        let cost = &parts.cost;
        let operation_ns = match direction {
            DataDirection::Read => cost.time_ns(Direction::Read, operation_bytes),
            DataDirection::Write => cost.append_ns(operation_bytes).saturating_add(cost.commit_ns()),
        };
        let disk = Config::for_device(cost).kept_within_ns(way(direction), operation_ns);
        let rail = match direction {
            DataDirection::Read => parts.rail.out_bytes_per_second,
            DataDirection::Write => parts.rail.in_bytes_per_second,
        };
        let Some(rail) = rail.and_then(RailRate::of_payload) else { return Some(disk) };
        Some(in_series(disk, rail.lateness_ns(), operation_bytes, share.rate))
    };
    carried.shares.iter().filter_map(of).max().unwrap_or(0)
}

/// A drive as admission knows it.
fn parts(drive: &Drive, is_up: bool, qualified: Qualified) -> DriveParts {
    let cost = cost_of(drive);
    let told = drive.parts.as_ref();
    let is_scarce = drive.free_bytes < drive.capacity_bytes / SCARCE_PART;
    let processor = told.and_then(|parts| parts.cost.as_ref()).map(|cost| ProcessorCost {
        request_ns: cost.read_processor.request_ns.max(cost.write_processor.request_ns),
        byte_ps: cost.read_processor.byte_ps.max(cost.write_processor.byte_ps),
        arithmetic_byte_ps: 0,
        cores: 1,
    });
    DriveParts {
        drive: drive.record.drive,
        domain: vec![drive.record.rack.clone(), drive.record.host.clone()],
        cost: cost.unwrap_or(DeviceCost::FREE),
        qualified,
        service_permille: told.map_or(1000, |parts| parts.derate),
        rail: rail(told.map_or(0, |parts| parts.rail_bytes_per_second)),
        processor: processor.filter(|cost| cost.request_ns > 0),
        moved_permille: if is_scarce { MOVED_PERMILLE } else { 0 },
        // New files go elsewhere; what exists there goes on.
        free_bytes: if takes_columns(drive) { drive.free_bytes } else { 0 },
        alive: is_up && cost.is_some(),
    }
}

/// The rates of the whole as admission knows them.
pub(crate) fn told_whole(whole: &WholeRate) -> Whole {
    Whole {
        read_bytes_per_second: whole.read_bytes_per_second,
        write_bytes_per_second: whole.write_bytes_per_second,
        drives: u32::try_from(whole.drives.len()).unwrap_or(u32::MAX),
    }
}

/// The cost of a drive's disk, once it is calibrated.
pub(crate) fn cost_of(drive: &Drive) -> Option<DeviceCost> {
    let disk = drive.parts.as_ref()?.cost.as_ref()?.disk;
    Some(device_cost(&disk))
}

fn device_cost(disk: &DiskCost) -> DeviceCost {
    let way = |of: braid_wire::data::DiskWay| DirectionCost {
        operation_ns: of.operation_ns,
        bytes_per_second: of.bytes_per_second.max(1),
    };
    DeviceCost {
        charge: match disk.charge {
            DiskCharge::Sum => Charge::Sum,
            DiskCharge::Larger => Charge::Larger,
        },
        read: way(disk.read),
        write: way(disk.write),
        sync_ns: disk.sync_ns,
    }
}

/// The rail of which this rate was told, in bytes a second on the wire; 0: nothing was told.
pub(crate) fn rail(told: u64) -> Rail {
    let rate = RailRate::of_told(told).map(RailRate::bytes_per_second);
    Rail { in_bytes_per_second: rate, out_bytes_per_second: rate }
}

/// Device time of a second that drives keep for this work.
fn share<const N: usize>(works: [braid_schedule::Background; N]) -> Demand {
    let permille: u64 = works.iter().map(|work| work.share_permille()).sum();
    Demand { device_ns: permille * (SECOND_NS / 1000), ..Demand::ZERO }
}

/// Part of what the drive can do, in thousandths, rounded up: of its disk's time or of its qualified rate,
/// whichever is used up more.
fn permille(demand: Option<Demand>) -> u32 {
    let busy_ns = demand.map_or(0, |demand| demand.device_ns.max(demand.whole_ns));
    u32::try_from((busy_ns * 1000).div_ceil(SECOND_NS)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClientId, FileId, Scheme, Shape, VolumeId};
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::rates::booking::segment_on;

    fn drive(number: u128) -> DriveParts {
        let way = DirectionCost { operation_ns: 100_000, bytes_per_second: 100_000_000 };
        DriveParts {
            drive: DriveId(number),
            domain: Vec::new(),
            cost: DeviceCost { charge: Charge::Larger, read: way, write: way, sync_ns: 100_000 },
            qualified: Qualified::default(),
            service_permille: 1000,
            rail: Rail { in_bytes_per_second: None, out_bytes_per_second: None },
            processor: None,
            moved_permille: 0,
            free_bytes: u64::MAX,
            alive: true,
        }
    }

    /// A rate for reading what exists, booked on these drives.
    fn record(id: u64, rate: u64, booked: &[DriveId]) -> ReservationRecord {
        ReservationRecord {
            reservation: ReservationId(id),
            volume: VolumeId(1),
            file: FileId(1),
            parent: FileId(0),
            name: Vec::new(),
            path: Vec::new(),
            direction: DataDirection::Read,
            rate,
            streams: 1,
            period_ms: 100,
            survive: 0,
            rail: 0,
            client: ClientId::NONE,
            begun_ms: 0,
            ends_ms: 10_000,
            claim_until_ms: 0,
            shape: ShapeSpec::DEFAULT,
            drives: Vec::new(),
            booked: booked.iter().map(|&drive| DriveShare { drive, rate, burst: 0 }).collect(),
            operation_bytes: 0,
            buffer_bytes: 0,
            lateness_us: 0,
            failover_us: 0,
            start_us: 0,
        }
    }

    fn files(drives: &[u128]) -> About {
        let shape = Shape::new(Scheme::Raid0, 1, 0, 1 << 16).expect("a shape");
        About::Segments(drives.iter().map(|number| segment_on(shape, &[DriveId(*number)])).collect())
    }

    #[test]
    fn a_rail_that_was_told_adds_its_lateness_to_the_disks() {
        let told = rail(25_000_000);
        let mut books = Books::default();
        books.ledger.set_drive(drive(1));
        books.ledger.set_drive(DriveParts { rail: told, ..drive(2) });
        let of = |drives: &[u128]| {
            let share = |number: &u128| DriveShare { drive: DriveId(*number), rate: 10_000_000, burst: 0 };
            let carried = Carried { shares: drives.iter().map(share).collect(), operation_bytes: 1_000_000 };
            [DataDirection::Read, DataDirection::Write]
                .map(|direction| lateness_ns(&books.ledger, direction, &carried))
        };
        let rails =
            told.out_bytes_per_second.and_then(RailRate::of_payload).expect("it is told").lateness_ns();
        // An operation takes 100 ms at the promised rate.
        let expected = of(&[1]).map(|disk| disk + rails + 100_000_000);
        assert_eq!((of(&[2]), of(&[1, 2])), (expected, expected));
    }

    #[test]
    fn less_of_a_rail_is_booked_than_was_told() {
        let Rail { in_bytes_per_second, out_bytes_per_second } = rail(25_000_000);
        let given_out = RailRate::of_told(25_000_000).map(RailRate::bytes_per_second);
        assert_eq!((in_bytes_per_second, out_bytes_per_second), (given_out, given_out));
        assert!(given_out < Some(25_000_000 * 1448 / 1538));
        assert_eq!(rail(0), Rail { in_bytes_per_second: None, out_bytes_per_second: None });
    }

    #[test]
    fn a_rate_grows_onto_further_drives_only_where_there_is_room() {
        let mut books = Books::default();
        [1, 2, 3].into_iter().for_each(|number| books.ledger.set_drive(drive(number)));
        let most = record(1, 70_000_000, &[DriveId(2)]);
        assert!(books.enter(&most, &files(&[2]), 0).is_booked);
        let rate = record(2, 40_000_000, &[DriveId(1)]);
        assert!(books.enter(&rate, &files(&[1]), 0).is_booked);
        let full = books.ledger.load(DriveId(2), &[]);
        // A file is made on a drive that has no room, and one on a drive that has.
        assert!(!books.enter(&rate, &files(&[1, 2]), 0).is_booked);
        assert_eq!(books.ledger.load(DriveId(2), &[]), full);
        assert!(books.booking(ReservationId(2)).is_some(), "what was booked stays");
        assert!(books.enter(&rate, &files(&[1, 3]), 0).is_booked);
        assert_ne!(books.ledger.load(DriveId(3), &[]), Some(Demand::ZERO));
    }

    #[test]
    fn each_drive_promises_what_was_booked_for_it() {
        let mut books = Books::default();
        (1..=6).for_each(|number| books.ledger.set_drive(drive(number)));
        let mirror = Shape::new(Scheme::Raid1, 1, 1, 1 << 16).expect("a shape");
        let wide = Shape::new(Scheme::Raid5, 3, 1, 1 << 16).expect("a shape");
        let on = |shape, drives: &[u128]| {
            segment_on(shape, &drives.iter().map(|number| DriveId(*number)).collect::<Vec<_>>())
        };
        let about = About::Segments(vec![on(mirror, &[1, 2]), on(wide, &[3, 4, 5, 6])]);
        let all: Vec<DriveId> = (1..=6).map(DriveId).collect();
        let asked = ReservationRecord { survive: 1, ..record(1, 30_000_000, &all) };
        let entered = books.enter(&asked, &about, 0);
        assert!(entered.is_booked && entered.is_whole);
        let promised = entered.onto(&all, &asked.booked);
        let booking = books.booking(ReservationId(1)).expect("booked");
        for (share, booked) in promised.iter().zip(&booking.drives) {
            assert_eq!(share.drive, booked.drive);
            let worst = booked.lost.iter().fold(booked.healthy, |worst, loss| worst.max(&loss.demand));
            // Operations of a unit take as long as their bytes do.
            assert!(share.rate <= worst.out_bytes, "{share:?}: {worst:?}");
        }
        let rates: Vec<u64> = promised.iter().map(|share| share.rate).collect();
        assert_eq!(rates, [30, 30, 10, 10, 10, 10].map(|rate| rate * 1_000_000));
        // While drives are lost, what they and the others promised stays.
        [4, 5].into_iter().for_each(|number| {
            books.ledger.set_drive(DriveParts { alive: false, ..drive(number) });
        });
        let degraded = books.enter(&asked, &about, 0);
        assert_eq!(degraded.onto(&all, &promised), promised);
    }

    #[test]
    fn units_that_are_free_to_choose_keep_to_the_bound_of_others() {
        let mut ledger = Ledger::new(SHARE_PERMILLE);
        // So fast that much larger units would be short operations too.
        let way = DirectionCost { operation_ns: 10_000, bytes_per_second: 10_000_000_000 };
        let cost = DeviceCost { charge: Charge::Larger, read: way, write: way, sync_ns: 10_000 };
        [1, 2].into_iter().for_each(|number| ledger.set_drive(DriveParts { cost, ..drive(number) }));
        let ask = Ask {
            terms: terms(DataDirection::Write, 10_000_000, 1, 1000, 1),
            about: About::New(braid_admission::Wish::Free { m: 1 }),
            client: None,
            now_ms: 0,
            duration_ms: Some(1000),
        };
        let answer = braid_admission::answer(&mut ledger, &mut Prices::default(), &policy(), &ask);
        let Ok(Answer::Admitted(admitted)) = answer else { panic!("{answer:?}") };
        let unit_bytes = admitted.plan.expect("of new files").shape.unit_bytes();
        assert_eq!(u64::from(unit_bytes), OPERATION_BYTES);
    }
}
