//! A manager whose state is damaged or gone: it does not start, says what to do, and changes nothing. And the
//! manager time at which a state goes on.

use std::fs;
use std::path::Path;

use braid_manager::{Config, ManagerError, run};
use tokio::sync::oneshot;

use crate::fake::Manager;

/// Length of redb's header.
const HEADER_BYTES: usize = 320;

/// Starts a manager, which must fail, and returns the error.
async fn refused(dir: &Path) -> ManagerError {
    let (tell, _ready) = oneshot::channel();
    run(Config::new(dir, "127.0.0.1:0"), tell, async {}).await.expect_err("it does not start")
}

fn tokens(dir: &Path) -> [String; 2] {
    ["client.token", "join.token"].map(|name| fs::read_to_string(dir.join(name)).unwrap())
}

#[tokio::test]
async fn a_state_that_is_damaged_is_refused_and_the_way_to_restore_it_named() {
    let dir = tempfile::tempdir().unwrap();
    Manager::start(dir.path()).await.stop().await;
    let state = dir.path().join("manager.redb");
    let tokens_before = tokens(dir.path());
    let whole = fs::read(&state).unwrap();
    let mut header = whole.clone();
    header[..HEADER_BYTES].fill(0xa5);
    for (what, damaged) in [
        ("a header of noise", header),
        ("cut within its header", whole[..100].to_vec()),
        ("cut behind its header", whole[..4096].to_vec()),
        ("another file", b"not a manager's state\n".repeat(1000)),
    ] {
        fs::write(&state, &damaged).unwrap();
        let error = refused(dir.path()).await;
        assert!(matches!(error, ManagerError::State(_)), "{what}: {error}");
        assert!(error.to_string().contains("braid manager restore"), "{what}: {error}");
        assert!(fs::read(&state).unwrap() == damaged, "{what}: the state was changed");
        assert_eq!(tokens(dir.path()), tokens_before, "{what}");
    }
    fs::write(&state, whole).unwrap();
    Manager::start(dir.path()).await.stop().await;
    assert_eq!(tokens(dir.path()), tokens_before);
}

/// A manager that started afresh would know none of the cluster's files, and its drives would not know it.
#[tokio::test]
async fn a_state_that_is_missing_or_empty_beside_tokens_founds_no_new_cluster() {
    let dir = tempfile::tempdir().unwrap();
    Manager::start(dir.path()).await.stop().await;
    let state = dir.path().join("manager.redb");
    let tokens_before = tokens(dir.path());
    let whole = fs::read(&state).unwrap();
    for empty in [false, true] {
        if empty {
            fs::write(&state, b"").unwrap();
        } else {
            fs::remove_file(&state).unwrap();
        }
        // Also where only one of the tokens is left.
        for lost in [None, Some("client.token"), Some("join.token")] {
            lost.iter().for_each(|name| fs::rename(dir.path().join(name), dir.path().join("lost")).unwrap());
            let error = refused(dir.path()).await;
            lost.iter().for_each(|name| fs::rename(dir.path().join("lost"), dir.path().join(name)).unwrap());
            assert!(matches!(error, ManagerError::StateGone { .. }), "empty: {empty}, {lost:?}: {error}");
            assert!(error.to_string().contains("braid manager restore"), "{error}");
            assert_eq!(fs::metadata(&state).map(|found| found.len()).ok(), empty.then_some(0), "{lost:?}");
        }
        assert_eq!(tokens(dir.path()), tokens_before);
    }
    fs::write(&state, whole).unwrap();
    Manager::start(dir.path()).await.stop().await;
    assert_eq!(tokens(dir.path()), tokens_before);
}

/// Otherwise files would get times in the future, further ahead with every restart.
#[tokio::test]
async fn time_is_not_ahead_of_the_wall_clock_after_clean_stops() {
    let dir = tempfile::tempdir().unwrap();
    for start in 0..4 {
        let manager = Manager::start(dir.path()).await;
        let client = manager.client().await;
        // The wall clock is read later, so it is not behind, however busy the machine is.
        let now_ms = client.0.head().now_ms;
        let wall_ms = braid_transport::host::wall_ms();
        assert!(now_ms <= wall_ms + 1000, "start {start}: {} ms ahead", now_ms - wall_ms);
        drop(client);
        manager.stop().await;
    }
}
