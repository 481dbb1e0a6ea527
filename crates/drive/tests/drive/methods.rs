//! Methods at a drive: what it answers for, what it leaves out, and what it refuses.

use braid_layout::version::Lease;
use braid_layout::{ColumnMask, Generation, Version};
use braid_transport::DriveSession;
use braid_wire::Reason;
use braid_wire::capability::{Capability, Rights};
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest, Ready, Run, RunArgument, RunPiece, RunReply, StripeWrite};

use crate::support::manager::Manager;
use crate::support::requests::{AT, G, UNIT, create, drive_level, object_level, partition_create, write_of};
use crate::support::{Drive, reason};

/// A method on the first bytes of these units, each of which is said to be that much of the file.
fn run_of(units: &[u64], method: &str, arguments: &[(&str, &str)]) -> Run {
    let piece = |unit: &u64| RunPiece { from: 0, to: UNIT, offset: unit * u64::from(UNIT) };
    let argument = |own: &(&str, &str)| RunArgument { name: own.0.to_owned(), value: own.1.to_owned() };
    Run {
        at: AT,
        units: units.to_vec(),
        pieces: units.iter().map(piece).collect(),
        method: method.to_owned(),
        arguments: arguments.iter().map(argument).collect(),
        size: 1 << 30,
        state: Vec::new(),
    }
}

async fn ran(session: &mut DriveSession, grant: &Grant, run: Run) -> RunReply {
    match session.call(grant, &run.into(), &[]).await.expect("it is answered").0 {
        DriveReply::Run(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// Which pieces were answered for.
fn answered(reply: &RunReply) -> Vec<bool> {
    reply.pieces.iter().map(|piece| piece.answered).collect()
}

/// A unit of lines of one letter.
fn lines() -> Vec<u8> {
    b"a\n".repeat(usize::try_from(UNIT / 2).expect("small"))
}

/// A drive with the object, whose first units have this content.
async fn with_units(
    dir: &std::path::Path,
    manager: &Manager,
    object: Capability,
    units: &[Vec<u8>],
) -> Drive {
    let drive = Drive::start(dir, manager).await;
    let mut session = drive.session().await;
    let install = !object.joining.is_empty();
    let grant = drive.grant(object);
    session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.expect("a partition");
    session.call(&grant, &create(), &[]).await.expect("an object");
    for (unit, bytes) in (0..).zip(units) {
        let write = StripeWrite { install, ..write_of(unit, 0, bytes, unit + 1) };
        session.call(&grant, &write.into(), &[bytes]).await.expect("written");
    }
    drive
}

#[tokio::test]
async fn units_that_were_never_written_and_answers_that_are_too_long_are_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = Manager::start().await;
    let long = [vec![b'b'; 4096], b"\n".to_vec()].concat().repeat(20);
    let long = long[..usize::try_from(UNIT).expect("small")].to_vec();
    let drive = with_units(dir.path(), &manager, object_level(), &[lines(), long]).await;
    let mut session = drive.session().await;
    let grant = drive.grant(Capability { rights: Rights::READ.and(Rights::RUN), ..object_level() });
    let reply = ran(&mut session, &grant, run_of(&[0, 2, 1], "count", &[])).await;
    assert_eq!(answered(&reply), [true, false, true], "unit 2 may be a hole, or missing");
    assert_eq!((reply.pieces[0].head.as_slice(), reply.pieces[0].tail.len()), (&b"a\n"[..], 0));
    assert_eq!(reply.pieces[1].version, Version::ZERO);
    // Each line of two bytes takes sixteen more in the answer, which then is longer than a message may be.
    let pattern = [("pattern", ".")];
    let reply = ran(&mut session, &grant, run_of(&[0, 1], "grep", &pattern)).await;
    assert_eq!(answered(&reply), [true, true], "half a unit of answers fits");
    let header: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let header = header.join(",");
    let reply = ran(&mut session, &grant, run_of(&[0, 1], "csv", &[("header", header.as_str())])).await;
    assert_eq!(answered(&reply), [false, true], "each row has 99 commas");
    drive.stop().await;
}

#[tokio::test]
async fn a_joining_column_answers_for_units_that_it_has_caught_up_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = Manager::start().await;
    let joining = Capability { joining: ColumnMask(1 << 1), lease: Lease(8), ..object_level() };
    let drive = with_units(dir.path(), &manager, joining.clone(), &[lines(), lines()]).await;
    let mut session = drive.session().await;
    let grant = drive.grant(joining);
    let all = || run_of(&[0, 1], "count", &[]);
    assert_eq!(answered(&ran(&mut session, &grant, all()).await), [false, false]);
    session.call(&grant, &Ready { at: AT, unit: 0, units: 1 }.into(), &[]).await.expect("noted");
    assert_eq!(answered(&ran(&mut session, &grant, all()).await), [true, false]);
    drive.stop().await;
}

#[tokio::test]
async fn what_cannot_run_here_is_refused_by_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let manager = Manager::start().await;
    let drive = with_units(dir.path(), &manager, object_level(), &[lines()]).await;
    let mut session = drive.session().await;
    let of = |rights: Rights, g: Generation| drive.grant(Capability { rights, g, ..object_level() });
    let both = Rights::READ.and(Rights::RUN);
    let count = || run_of(&[0], "count", &[]);
    let at = |offset: u64, size: u64| {
        let piece = RunPiece { from: 0, to: UNIT, offset };
        Run { pieces: vec![piece], size, ..count() }
    };
    let past = Run { pieces: vec![RunPiece { from: UNIT, to: UNIT + 1, offset: 0 }], ..count() };
    let large = run_of(&[0], "grep", &[("pattern", r"\w{20}")]);
    let table: Vec<(&str, Rights, Generation, Run, Reason)> = vec![
        ("no right to run", Rights::READ, G, count(), Reason::Rights),
        ("no right to read", Rights::RUN, G, count(), Reason::Rights),
        ("an old generation", both, Generation(1), count(), Reason::StaleGeneration),
        ("an unknown method", both, G, run_of(&[0], "sort", &[]), Reason::Unsupported),
        ("a bad argument", both, G, run_of(&[0], "count", &[("colour", "red")]), Reason::Unsupported),
        ("a large expression", both, G, large, Reason::Unsupported),
        ("past the file", both, G, at(1, u64::from(UNIT)), Reason::Malformed),
        ("past 2^64", both, G, at(u64::MAX - 5, u64::MAX), Reason::Malformed),
        ("past the unit", both, G, past, Reason::Range),
    ];
    for (what, rights, g, run, expected) in table {
        let request: DriveRequest = run.into();
        assert_eq!(reason(session.call(&of(rights, g), &request, &[]).await), expected, "{what}");
    }
    assert_eq!(answered(&ran(&mut session, &of(both, G), count()).await), [true]);
    drive.stop().await;
}
