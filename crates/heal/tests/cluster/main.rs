//! Drives that heal by themselves, with a real manager, in this process, on loopback.

#[expect(dead_code, reason = "it is the client's tests' too")]
#[path = "../../../client/tests/cluster/common.rs"]
mod common;
mod moves;
mod partly;
mod relayout;
mod repair;
mod returned;
mod snapshots;
mod support;
mod trouble;

use braid_heal::run as run_drive;
