//! E1 and E5: drives, each on a link, and a client whose link is not limited; and three drives with one link
//! of the client's. Both are compared with plain TCP over the same links.

use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;

use super::Run;
use super::setup::{LINK_BITS, Rates, Set, plain, show};
use crate::bench::hosts::{Hosts, Links};

/// Numbers of drives of the rows, in a full run and in a quick one.
const DRIVES: (&[u16], &[u16]) = (&[1, 2, 4, 8, 16], &[1, 2]);
/// Rates of the client's link, in Mbit/s.
const CLIENT_MBITS: (&[u64], &[u64]) = (&[100, 150, 200], &[100]);
/// Number of drives where the client's link is the limit.
const SET: u16 = 3;
/// Share of plain TCP's payload that a file is to get.
const SHARE: Goal = Goal::AtLeast(0.97);
/// Rate per drive against that of the first row.
const LINEAR: Goal = Goal::AtLeast(0.98);

/// Common name of the rows.
pub(super) const GROUP: &str = "links";

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let counts = run.size(DRIVES.0, DRIVES.1);
    // Bytes a second for each drive in the first row: written and read.
    let mut first: Option<(f64, f64)> = None;
    for &drives in counts {
        let name = format!("links: {drives} drives");
        let rows = [", write", ", read", ", write, linear", ", read, linear"];
        if !rows.iter().any(|row| run.wants(&format!("{name}{row}"))) {
            continue;
        }
        run.tell(name.clone());
        let hosts = Hosts::up(usize::from(drives))?;
        hosts.limit(Links::Drives, LINK_BITS)?;
        let bytes = LINK_BITS / 8 * run.size(8, 1) * u64::from(drives);
        let (found, tcp) = both(run, &hosts, drives, bytes).await?;
        let alone = *first.get_or_insert((found.write / f64::from(drives), found.read / f64::from(drives)));
        share(run, &name, &found, &tcp);
        if drives > counts[0] {
            let per_drive = |all: f64, one: f64| all / f64::from(drives) / one;
            let words = |all: f64| format!("{} per drive", show(all / f64::from(drives)));
            run.add(
                &format!("{name}, write, linear"),
                words(found.write),
                per_drive(found.write, alone.0),
                LINEAR,
            );
            run.add(
                &format!("{name}, read, linear"),
                words(found.read),
                per_drive(found.read, alone.1),
                LINEAR,
            );
        }
    }
    for &mbits in run.size(CLIENT_MBITS.0, CLIENT_MBITS.1) {
        let name = format!("links: {SET} drives, client's link {mbits} Mbit/s");
        if ![", write", ", read"].iter().any(|row| run.wants(&format!("{name}{row}"))) {
            continue;
        }
        run.tell(name.clone());
        let hosts = Hosts::up(usize::from(SET))?;
        hosts.limit(Links::Drives, LINK_BITS)?;
        hosts.limit(Links::Clients, mbits * 1_000_000)?;
        let bytes = mbits * 1_000_000 / 8 * run.size(8, 1);
        let (found, tcp) = both(run, &hosts, SET, bytes).await?;
        share(run, &name, &found, &tcp);
    }
    Ok(())
}

/// The rates of a file, and of plain TCP over the same links.
async fn both(run: &Run, hosts: &Hosts, drives: u16, bytes: u64) -> Result<(Rates, Rates), Failure> {
    let mut set = Set::up(run, hosts, "links", drives, 1).await?;
    let found = set.rates(run, bytes).await;
    set.down().await?;
    run.tell("plain TCP");
    Ok((found?, plain(hosts, usize::from(drives), 1, bytes).await?))
}

fn share(run: &mut Run, name: &str, found: &Rates, tcp: &Rates) {
    let words = |found: f64, tcp: f64| format!("{}; plain TCP {}", show(found), show(tcp));
    run.add(&format!("{name}, write"), words(found.write, tcp.write), found.write / tcp.write, SHARE);
    run.add(&format!("{name}, read"), words(found.read, tcp.read), found.read / tcp.read, SHARE);
}
