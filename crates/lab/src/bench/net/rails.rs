//! E2: a set of drives and a client, each with one link and with two.

use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;

use super::Run;
use super::setup::{LINK_BITS, Rates, Set, plain, show};
use crate::bench::hosts::{Hosts, Links};

const DRIVES: u16 = 3;
/// Ratio that two rails are to reach over one.
const GOAL: Goal = Goal::AtLeast(1.95);

/// Common name of the rows.
pub(super) const GROUP: &str = "rails";
const WRITE: &str = "rails: write over two against one";
const READ: &str = "rails: read over two against one";

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if !run.wants(WRITE) && !run.wants(READ) {
        return Ok(());
    }
    run.tell("rails: hosts");
    let hosts = Hosts::with_rails(usize::from(DRIVES), 2)?;
    hosts.limit(Links::Drives, LINK_BITS)?;
    hosts.limit(Links::Clients, LINK_BITS)?;
    let seconds = run.size(10, 1);
    let mut found = Vec::new();
    let mut tcp = Vec::new();
    for rails in [1, 2] {
        let bytes = LINK_BITS / 8 * seconds * rails as u64;
        let mut set = Set::up(run, &hosts, &format!("rails-{rails}"), DRIVES, rails).await?;
        found.push(set.rates(run, bytes).await?);
        set.down().await?;
        run.tell("rails: plain TCP");
        tcp.push(plain(&hosts, usize::from(DRIVES), rails, bytes).await?);
    }
    let words = |rate: fn(&Rates) -> f64, shares: &[f64]| {
        let shares: Vec<String> = shares.iter().map(|share| format!("{:.0} %", share * 100.0)).collect();
        format!(
            "{} over one, {} over two ({}); plain TCP {} and {}",
            show(rate(&found[0])),
            show(rate(&found[1])),
            shares.join(" and "),
            show(rate(&tcp[0])),
            show(rate(&tcp[1]))
        )
    };
    let write = words(|rates| rates.write, &found[1].shares[0]);
    run.add(WRITE, write, found[1].write / found[0].write, GOAL);
    let read = words(|rates| rates.read, &found[1].shares[1]);
    run.add(READ, read, found[1].read / found[0].read, GOAL);
    Ok(())
}
