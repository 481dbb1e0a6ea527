//! First starts that go wrong, and the corrected starts after them: nothing of a wrong setting remains.

use std::path::Path;
use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, fails, settings, within};
use braid_drive::CAPACITY_BYTES_MIN;
use braid_drive::Config;
use braid_drive::DriveError;
use braid_layout::ClusterId;
use braid_transport::{Mismatch, TransportError};
use braid_wire::token::Token;
use braid_wire::{Key, Reason};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const OTHER: ClusterId = ClusterId(0xbeef);
/// The longest time that a shutdown may take.
const SOON: Duration = Duration::from_secs(2);

/// A first start that makes one try.
fn once(dir: &Path, manager: &Manager) -> Config {
    let mut settings = settings().0;
    settings.join_wait = Duration::ZERO;
    config(dir, manager, settings)
}

/// Starts with neither token nor manager.
async fn start_as_before(dir: &Path, manager: &Manager) -> Drive {
    let (settings, clock) = settings();
    let mut again = config(dir, manager, settings);
    (again.token, again.manager) = (None, None);
    Drive::start_with(again, clock, manager).await
}

fn is_wrong_cluster(error: &DriveError) -> bool {
    let DriveError::Join(TransportError::WrongPeer { mismatch, .. }) = error else { return false };
    matches!(mismatch, Mismatch::Authority { .. }) && error.to_string().contains("give the join token")
}

#[tokio::test]
async fn a_shutdown_ends_a_start_that_waits_for_the_manager() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    // One address where nobody listens, and one that accepts connections and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for address in [refusing, mute.local_addr().unwrap()] {
        let mut waiting = once(dir.path(), &manager);
        waiting.settings.join_wait = Duration::from_secs(3600);
        waiting.manager = Some(address.to_string());
        let (ready, when_ready) = oneshot::channel();
        let (shutdown, when_shut) = oneshot::channel::<()>();
        let running = tokio::spawn(braid_drive::run(waiting, ready, async {
            let _ = when_shut.await;
        }));
        if address != refusing {
            // The drive is in the middle of a try.
            within(mute.accept()).await.unwrap();
        } else {
            // The drive tries as soon as the directory is taken.
            within(async {
                while !dir.path().join("LOCK").exists() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        drop(shutdown);
        tokio::time::timeout(SOON, running).await.expect("soon").unwrap().unwrap();
        assert!(within(when_ready).await.is_err());
    }
    Drive::start(dir.path(), &manager).await.stop().await;
    assert_eq!(manager.state().joins, 1);
}

#[tokio::test]
async fn a_join_with_a_mute_manager_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut waiting = once(dir.path(), &manager);
    waiting.settings.limits.connect = Duration::from_secs(3600);
    waiting.manager = Some(mute.local_addr().unwrap().to_string());
    let error = fails(waiting).await;
    assert!(matches!(&error, DriveError::Join(TransportError::Timeout { .. })), "{error}");
    assert!(error.to_string().contains(&mute.local_addr().unwrap().to_string()), "{error}");
}

#[tokio::test]
async fn a_corrected_token_takes_over_what_never_joined() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let other = Manager::start_for(OTHER).await;
    // Another cluster's token, then a bad one of the right cluster.
    let mut foreign = once(dir.path(), &manager);
    foreign.token = Some(other.join_token());
    let error = fails(foreign.clone()).await;
    assert!(is_wrong_cluster(&error), "{error}");
    let mut bad = once(dir.path(), &manager);
    bad.token = Some(Token { secret: Key::new([1; 32]), ..manager.join_token() });
    let error = fails(bad).await;
    assert!(
        matches!(&error, DriveError::Join(TransportError::Refusal(no)) if no.reason == Reason::BadToken),
        "{error}"
    );
    // And back: a crash while the directory was being reset is no obstacle either.
    assert!(is_wrong_cluster(&fails(foreign).await));
    std::fs::rename(dir.path().join("store"), dir.path().join("store.old")).unwrap();
    let drive = Drive::start(dir.path(), &manager).await;
    assert!(!dir.path().join("store.old").exists());
    drive.prepare().await;
    drive.stop().await;
    assert_eq!((manager.state().joins, other.state().joins), (1, 0));
    start_as_before(dir.path(), &manager).await.stop().await;
}

#[tokio::test]
async fn a_join_whose_answer_was_lost_keeps_its_identity_within_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let other = Manager::start_for(OTHER).await;
    manager.state().breaks_at_join = true;
    let error = fails(once(dir.path(), &manager)).await;
    assert!(matches!(error, DriveError::Join(TransportError::Closed { .. })), "{error}");
    let joined = *manager.state().masters.keys().next().unwrap();
    // A bad token of its cluster, or an address where no manager is, changes nothing: the drive needs only
    // its key, and remembers its manager.
    let (settings, clock) = settings();
    let mut away = config(dir.path(), &manager, settings);
    away.token = Some(Token { secret: Key::new([1; 32]), ..manager.join_token() });
    away.manager = Some("127.0.0.1:1".to_owned());
    Drive::start_with(away, clock, &manager).await.stop().await;
    let drive = start_as_before(dir.path(), &manager).await;
    assert_eq!((drive.id, manager.state().joins), (joined, 1));
    drive.stop().await;
    // With another cluster's token the directory becomes a new drive of that cluster.
    let empty = tempfile::tempdir().unwrap();
    fails(once(empty.path(), &manager)).await;
    let lost: Vec<_> = manager.state().masters.keys().copied().collect();
    let drive = Drive::start(empty.path(), &other).await;
    assert!(!lost.contains(&drive.id));
    drive.prepare().await;
    drive.stop().await;
}

#[tokio::test]
async fn a_session_that_breaks_says_nothing_of_whether_the_drive_has_joined() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().breaks_at_join = true;
    let error = fails(once(dir.path(), &manager)).await;
    assert!(matches!(error, DriveError::Join(TransportError::Closed { .. })), "{error}");
    let (joined, key) = manager.state().masters.clone().into_iter().next().unwrap();
    {
        let mut state = manager.state();
        (state.breaks_at_join, state.breaks) = (false, 1);
    }
    // The next try breaks while it asks. The one after it hears that the manager knows the drive, by its old
    // key.
    let drive = Drive::start(dir.path(), &manager).await;
    assert_eq!((drive.id, manager.master(joined), manager.state().joins), (joined, Some(key), 1));
    drive.stop().await;
}

#[tokio::test]
async fn a_store_with_an_object_is_never_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let other = Manager::start_for(OTHER).await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let payload = bytes(3, UNIT);
    drive.write(0, &payload, 1).await;
    drive.stop().await;
    // The record of its join is lost, as after restoring an old copy of the file.
    let file = dir.path().join("drive.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("joined = true"));
    std::fs::write(&file, text.replace("joined = true", "joined = false")).unwrap();
    let error = fails(once(dir.path(), &other)).await;
    assert!(matches!(error, DriveError::OtherCluster { asked: OTHER, .. }), "{error}");
    let drive = Drive::start(dir.path(), &manager).await;
    assert_eq!(drive.read(0, 0, UNIT).await.1, payload);
    drive.stop().await;
}

#[tokio::test]
async fn a_manager_s_address_is_kept_once_it_was_found_there() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let other = Manager::start_for(OTHER).await;
    Drive::start(dir.path(), &manager).await.stop().await;
    // Another cluster's manager is refused, and its address is not kept.
    let mut moved = config(dir.path(), &other, settings().0);
    moved.token = None;
    let error = fails(moved).await;
    assert!(matches!(error, DriveError::OtherCluster { .. }), "{error}");
    start_as_before(dir.path(), &manager).await.stop().await;
    // The drive's own manager at another address is accepted, and the address is kept.
    let elsewhere = Manager::start().await;
    let masters = manager.state().masters.clone();
    elsewhere.state().masters = masters;
    Drive::start(dir.path(), &elsewhere).await.stop().await;
    drop(manager);
    start_as_before(dir.path(), &elsewhere).await.stop().await;
}

#[tokio::test]
async fn a_capacity_is_as_small_as_a_store_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let path = dir.path().join("drive");
    for asked in [0, CAPACITY_BYTES_MIN - 1] {
        let mut small = once(&path, &manager);
        small.capacity_bytes = Some(asked);
        let error = fails(small).await;
        assert!(matches!(error, DriveError::Capacity { min: CAPACITY_BYTES_MIN, .. }), "{error}");
        assert!(error.to_string().contains(&CAPACITY_BYTES_MIN.to_string()), "{error}");
        assert!(!path.exists());
    }
    let (settings, clock) = settings();
    let mut least = config(&path, &manager, settings);
    least.capacity_bytes = Some(CAPACITY_BYTES_MIN);
    let drive = Drive::start_with(least, clock, &manager).await;
    drive.prepare().await;
    let payload = bytes(9, UNIT);
    drive.write(0, &payload, 1).await;
    assert_eq!(drive.read(0, 0, UNIT).await.1, payload);
    drive.stop().await;
}
