use super::*;

const ALL: KeepCounts = KeepCounts { hours: 24, days: 7, weeks: 4 };
/// 2026-11-28 12:34:56Z, a Saturday.
const NOON: u64 = 1_795_869_296_000;

/// A manager that looks at its schedule, over virtual time.
struct Manager {
    keep: KeepCounts,
    next_ms: u64,
    number: u32,
    there: Vec<(Made, String)>,
    /// Names of all that were ever made.
    ever: Vec<String>,
}

impl Manager {
    fn new(keep: KeepCounts) -> Manager {
        Manager { keep, next_ms: 0, number: 0, there: Vec::new(), ever: Vec::new() }
    }

    /// Looks once. What is in `self` is what the state keeps: a restart loses nothing.
    fn look(&mut self, now_ms: u64) {
        let (name, next_ms) = match due(self.keep, self.next_ms, now_ms) {
            Due::Wait { next_ms } => (None, next_ms),
            Due::Make { name, next_ms } => (Some(name), next_ms),
        };
        assert!(next_ms > now_ms && next_ms <= now_ms + WEEK_MS);
        self.next_ms = next_ms;
        if let Some(name) = name.filter(|name| self.there.iter().all(|(_, there)| there != name)) {
            self.number += 1;
            self.ever.push(name.clone());
            self.there.push((Made { number: self.number, taken_ms: now_ms }, name));
        }
        let made: Vec<Made> = self.there.iter().map(|(made, _)| *made).collect();
        let unkept = unkept(self.keep, &made);
        self.there.retain(|(made, _)| !unkept.contains(&made.number));
    }

    /// Looks every ten minutes from one time to another.
    fn run(&mut self, from_ms: u64, to_ms: u64) {
        (from_ms..to_ms).step_by(600_000).for_each(|now_ms| self.look(now_ms));
    }
}

#[test]
fn a_day_has_one_snapshot_for_each_hour() {
    let mut manager = Manager::new(ALL);
    manager.run(NOON, NOON + DAY_MS);
    assert_eq!(manager.ever.len(), 25, "one at once, and one at each full hour");
    assert_eq!(manager.ever.first().map(String::as_str), Some("auto-2026-11-28T12"));
    assert_eq!(manager.ever.last().map(String::as_str), Some("auto-2026-11-29T12"));
    let times: BTreeSet<u64> = manager.there.iter().map(|(made, _)| hour(made.taken_ms)).collect();
    assert_eq!(times.len(), manager.there.len());
}

#[test]
fn after_weeks_the_hours_days_and_weeks_are_there_that_are_kept() {
    let mut manager = Manager::new(ALL);
    manager.run(NOON, NOON + 60 * DAY_MS);
    let last = NOON + 60 * DAY_MS;
    let hours: BTreeSet<u64> = manager.there.iter().map(|(made, _)| hour(made.taken_ms)).collect();
    let days: BTreeSet<u64> = manager.there.iter().map(|(made, _)| day(made.taken_ms)).collect();
    let weeks: BTreeSet<u64> = manager.there.iter().map(|(made, _)| week(made.taken_ms)).collect();
    assert!((0..24).all(|back| hours.contains(&(hour(last - 600_000) - back))));
    assert!((0..7).all(|back| days.contains(&(day(last) - back))));
    assert!((0..4).all(|back| weeks.contains(&(week(last) - back))));
    // 24 hours lie in two days, of which the older has its newest among the hours.
    assert!(manager.there.len() <= 24 + 6 + 3, "{}", manager.there.len());
    assert!(manager.there.iter().all(|(made, _)| made.taken_ms + 28 * DAY_MS > last));
}

#[test]
fn a_manager_that_was_down_for_hours_makes_one_and_not_many() {
    let mut manager = Manager::new(ALL);
    manager.run(NOON, NOON + 2 * HOUR_MS);
    let before = manager.ever.len();
    manager.look(NOON + 9 * HOUR_MS);
    assert_eq!(manager.ever.len(), before + 1);
    manager.look(NOON + 9 * HOUR_MS + 1);
    assert_eq!(manager.ever.len(), before + 1, "a restart repeats nothing");
    manager.run(NOON + 9 * HOUR_MS, NOON + 12 * HOUR_MS);
    assert_eq!(manager.ever.len(), before + 4);
}

#[test]
fn a_clock_that_jumps_makes_no_burst_and_loses_nothing() {
    let mut manager = Manager::new(ALL);
    manager.run(NOON, NOON + 30 * HOUR_MS);
    let before = manager.ever.len();
    let there: Vec<String> = manager.there.iter().map(|(_, name)| name.clone()).collect();
    // A year forward for one look, and back.
    manager.look(NOON + 365 * DAY_MS);
    assert_eq!(manager.ever.len(), before + 1, "one for the jump");
    let kept = manager.there.iter().filter(|(_, name)| there.contains(name)).count();
    assert!(kept + 2 >= there.len(), "a jump makes the old ones no older: {kept} of {}", there.len());
    manager.run(NOON + 30 * HOUR_MS, NOON + 36 * HOUR_MS);
    assert_eq!(manager.ever.len(), before + 1 + 6, "each hour goes on to have its own");
    let distinct: BTreeSet<&String> = manager.ever.iter().collect();
    assert_eq!(distinct.len(), manager.ever.len());
    // Back by three hours: their names are there, and they are not made again.
    manager.run(NOON + 33 * HOUR_MS, NOON + 40 * HOUR_MS);
    let distinct: BTreeSet<&String> = manager.ever.iter().collect();
    assert_eq!(distinct.len(), manager.ever.len());
    assert!(distinct.contains(&name(NOON + 39 * HOUR_MS)));
}

#[test]
fn days_and_weeks_begin_where_they_do() {
    let daily = KeepCounts { hours: 0, days: 3, weeks: 0 };
    let midnight = day(NOON) * DAY_MS + DAY_MS;
    assert_eq!(due(daily, NOON + 1, NOON), Due::Wait { next_ms: NOON + 1 });
    let made = due(daily, NOON, NOON);
    assert_eq!(made, Due::Make { name: "auto-2026-11-28T12".into(), next_ms: midnight });
    let weekly = KeepCounts { hours: 0, days: 0, weeks: 2 };
    let Due::Make { next_ms, .. } = due(weekly, 0, NOON) else { panic!("it is due") };
    assert_eq!(name(next_ms), "auto-2026-11-30T00", "a Monday");
    let Due::Make { next_ms: later, .. } = due(weekly, next_ms, next_ms) else { panic!("it is due") };
    assert_eq!(later - next_ms, WEEK_MS);
    let mut manager = Manager::new(weekly);
    manager.run(NOON, NOON + 30 * DAY_MS);
    assert_eq!((manager.ever.len(), manager.there.len()), (6, 2));
}

#[test]
fn what_no_class_keeps_goes_and_the_newest_stays() {
    let made = |number, hours| Made { number, taken_ms: NOON - hours * HOUR_MS };
    let keep = KeepCounts { hours: 2, days: 0, weeks: 0 };
    let all = [made(1, 5), made(2, 4), made(3, 3), made(4, 3)];
    assert_eq!(unkept(keep, &all), BTreeSet::from([1, 3]), "the newest of each hour");
    // The clock went back: the newer one has an older time.
    let all = [made(1, 0), made(2, 0), made(3, 9)];
    assert_eq!(unkept(keep, &all), BTreeSet::from([1]));
    assert_eq!(unkept(KeepCounts { hours: 0, days: 0, weeks: 0 }, &all), BTreeSet::from([1, 2]));
    assert_eq!(unkept(keep, &[]), BTreeSet::new());
}
