//! Plan sets are what is timed: the bytes that the parts see are those of the plan.

use braid_sim::outcome::PartKind;
use braid_sim::{RunOutcome, Spec, run};

/// A cluster of nine drives behind links of 1 GB/s, with disks that take 1 ms for a command.
fn outcome(files: &str, more: &str, load: &str) -> RunOutcome {
    let clients = if more.contains("clients") { "" } else { "clients = 1" };
    let text = format!(
        "[cluster]\n{clients}\ndrives = 9\n{more}\n[files]\nunit = \"64K\"\nsize = \"512M\"\n{files}\n[parts]\n\
         client = \"free\"\ndrive = \"free\"\n[parts.link]\nmedium = \"switch\"\nrate = \"1GB/s\"\n\
         [parts.disk]\nseek = {{ constant = \"1ms\" }}\nread_rate = \"1000PB/s\"\nwrite_rate = \"1000PB/s\"\n\
         [parts.protocol]\nrequest = \"0\"\nreply = \"0\"\nacknowledgement = \"0\"\n\
         [parts.store]\nplacement = \"scattered\"\n[[load]]\noutstanding = 1\n{load}\n[run]\nrequests_min = 2000\n"
    );
    run(&Spec::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), &[])
}

/// Commands that all disks served for each request.
fn commands(outcome: &RunOutcome) -> f64 {
    let served: u64 =
        outcome.parts.iter().filter(|part| part.kind == PartKind::Disk).map(|part| part.served).sum();
    let requests = outcome.loads[0].requests;
    f64::from(u32::try_from(served).expect("few")) / f64::from(u32::try_from(requests).expect("few"))
}

/// Bytes through the client's port for each request.
fn bytes_out(outcome: &RunOutcome, kind: PartKind) -> f64 {
    let requests = outcome.loads[0].per_second;
    outcome.utilisation(kind) * 1e9 / requests
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.03
}

const RAID5: &str = "scheme = \"raid5\"\nwidth = 9";

#[test]
fn a_full_stripe_costs_its_parity() {
    let outcome = outcome(RAID5, "", "read = 0.0\nsize = \"512K\"");
    assert!(near(commands(&outcome), 9.0), "{}", commands(&outcome));
    let sent = bytes_out(&outcome, PartKind::ClientSend);
    assert!(near(sent, 9.0 * 65536.0), "{sent}");
}

#[test]
fn a_small_write_goes_through_its_data_drive() {
    // The new bytes are written, the old ones read, and the parity drive appends the change: three
    // commands, and the client sends the unit once.
    let outcome = outcome(RAID5, "", "read = 0.0\nsize = \"64K\"");
    assert!(near(commands(&outcome), 3.0), "{}", commands(&outcome));
    let sent = bytes_out(&outcome, PartKind::ClientSend);
    assert!(near(sent, 65536.0), "{sent}");
    assert!(outcome.loads[0].milliseconds.mean > 3.0, "one after the other");
}

#[test]
fn a_degraded_read_reads_the_others() {
    let healthy = outcome(RAID5, "", "size = \"64K\"");
    assert!(near(commands(&healthy), 1.0), "{}", commands(&healthy));
    // One ninth of the units is lost; each of them costs eight.
    let degraded = outcome(RAID5, "down = [3]", "size = \"64K\"");
    let expected = 8.0 / 9.0 + 8.0 / 9.0;
    assert!((commands(&degraded) / expected - 1.0).abs() < 0.15, "{}", commands(&degraded));
}

#[test]
fn copies_are_written_everywhere_and_read_once() {
    let files = "scheme = \"raid1\"\nwidth = 3";
    assert!(near(commands(&outcome(files, "", "read = 0.0\nsize = \"64K\"")), 3.0));
    assert!(near(commands(&outcome(files, "", "size = \"64K\"")), 1.0));
}

#[test]
fn several_writers_of_one_file_share_it() {
    let load = "read = 0.0\nsize = \"512K\"\npattern = \"n-to-1\"";
    let alone = outcome(RAID5, "", load);
    assert!(near(commands(&alone), 9.0), "one client has it to itself: {}", commands(&alone));
    // With two clients each unit is written through its data drive, with its old bytes and its parity's
    // change.
    let shared = outcome(RAID5, "clients = 2", load);
    assert!(near(commands(&shared), 24.0), "{}", commands(&shared));
}

#[test]
fn rails_share_the_bytes() {
    let one = outcome(RAID5, "", "size = \"512K\"");
    let two = outcome(RAID5, "rails = 2", "size = \"512K\"");
    let busy =
        |outcome: &RunOutcome| outcome.utilisation(PartKind::ClientReceive) / outcome.loads[0].per_second;
    assert!(near(busy(&one), 2.0 * busy(&two)), "{} {}", busy(&one), busy(&two));
}

#[test]
fn a_bucket_serves_a_lone_message_at_once_and_many_at_the_rate() {
    let outcome = |load: &str| {
        let text = format!(
            "[cluster]\nclients = 1\ndrives = 2\n[files]\nunit = \"64K\"\nscheme = \"raid0\"\nwidth = 2\n[parts]\n\
             client = \"free\"\ndrive = \"free\"\ndisk = \"free\"\n[parts.link]\nmedium = \"switch\"\n\
             rate = \"1GB/s\"\nclient_rate = \"1MB/s\"\nbucket = \"64K\"\n[parts.protocol]\nreply = \"0\"\n\
             [[load]]\nsize = \"4K\"\n{load}\n"
        );
        run(&Spec::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), &[])
    };
    // 4096 bytes in 40.96 ms: a tenth of the port's rate. No burst waits for more than the drive's link.
    let alone = outcome("rate = 24.4140625\ninterval = \"constant\"");
    assert!(alone.loads[0].milliseconds.mean < 0.02, "{:?}", alone.loads[0].milliseconds);
    assert!(near(alone.utilisation(PartKind::ClientReceive), 0.1));
    let many = outcome("outstanding = 8");
    assert!(near(many.loads[0].bytes_per_second, 1e6), "{}", many.loads[0].bytes_per_second);
    assert!(many.utilisation(PartKind::ClientReceive) > 0.99);
}
