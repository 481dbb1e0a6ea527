//! Turns of a drive's master key: what was signed with the key before goes on for its time, or ends at once.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, reason, settings};
use braid_testing::answer;
use braid_wire::control::KeyTurn;
use braid_wire::{Capability, Key, Reason};

/// Has the drive's key turned, and waits until the manager has heard of the turn, and the drive of that.
/// Returns the new key.
async fn turn(drive: &Drive, manager: &Manager, random: u8, at_once: bool) -> Key {
    let number = {
        let mut state = manager.state();
        state.turn = KeyTurn { next: Some([random; 32]), at_once, ..state.turn.clone() };
        state.turn.number + 1
    };
    answer("the key is turned", async || (manager.state().turn.number == number).then_some(())).await;
    let before = manager.state().last.clone();
    answer("the drive was answered once more", async || (manager.state().last != before).then_some(())).await;
    manager.master(drive.id).expect("it has joined")
}

#[tokio::test]
async fn what_was_signed_with_the_key_before_lasts_as_long_as_it_says_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(3, &bytes(7, UNIT), 1).await;
    let mut session = drive.session().await;
    let capability = Capability { drive: drive.id, ..object_level() };
    let first = drive.grant_as_is(capability.clone());
    assert!(session.call(&first, &read(3, 0, 10), &[]).await.is_ok());

    let master = turn(&drive, &manager, 7, false).await;
    let second = drive.grant_under(&master, capability.clone());
    let mut other = drive.session().await;
    for session in [&mut session, &mut other] {
        assert!(session.call(&first, &read(3, 0, 10), &[]).await.is_ok(), "nothing fails");
        session.call(&second, &read(3, 0, 10), &[]).await.expect("the new key works");
    }
    // A stranger's key is forged, before and after.
    let stranger = drive.grant_under(&Key::new([9; 32]), capability.clone());
    assert_eq!(reason(session.call(&stranger, &read(3, 0, 10), &[]).await), Reason::Forged);

    // The next turn ends all that was signed before: also in sessions that know it.
    let mut session = drive.session().await;
    assert!(session.call(&second, &read(3, 0, 10), &[]).await.is_ok());
    let master = turn(&drive, &manager, 8, true).await;
    answer("the former key is void", async || {
        let mut fresh = drive.session().await;
        fresh.call(&second, &read(3, 0, 10), &[]).await.is_err().then_some(())
    })
    .await;
    let third = drive.grant_under(&master, capability.clone());
    for session in [&mut session, &mut other] {
        assert!(session.call(&third, &read(3, 0, 10), &[]).await.is_ok());
        assert_eq!(reason(session.call(&second, &read(3, 0, 10), &[]).await), Reason::StaleKey);
        assert_eq!(reason(session.call(&first, &read(3, 0, 10), &[]).await), Reason::Forged);
    }
    drive.stop().await;
}

#[tokio::test]
async fn a_turned_key_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(3, &bytes(7, UNIT), 1).await;
    let first = drive.master.clone();
    let master = turn(&drive, &manager, 7, false).await;
    drive.stop().await;
    let (settings, clock) = settings();
    let mut again = config(dir.path(), &manager, settings);
    (again.token, again.manager) = (None, None);
    // It proves the new key, or the manager would refuse its session.
    let drive = Drive::start_with(again, clock, &manager).await;
    assert_eq!(drive.master, master);
    let capability = Capability { drive: drive.id, ..object_level() };
    let mut session = drive.session().await;
    for key in [&master, &first] {
        let grant = drive.grant_under(key, capability.clone());
        assert!(session.call(&grant, &read(3, 0, 10), &[]).await.is_ok());
    }
    assert_eq!(manager.state().joins, 1);
    drive.stop().await;
}
