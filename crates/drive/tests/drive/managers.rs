//! A drive and several managers: it learns their list, finds the one that leads, and remembers them all.

use braid_drive::DriveError;
use braid_testing::wait_for;
use tokio::sync::oneshot;

use crate::support::manager::Manager;
use crate::support::{Drive, config, settings};

#[tokio::test]
async fn a_drive_finds_the_manager_that_leads_now_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = Manager::start().await;
    first.state().lease_ms = 400;
    let second = first.start_beside().await;
    second.stands_by(Some(&first.address));
    let drive = Drive::start(dir.path(), &first).await;
    // The cluster grows: the drive was told one address.
    let mut both = vec![first.address.clone(), second.address.clone()];
    first.state().managers = both.clone();
    let stored = || std::fs::read_to_string(dir.path().join("drive.toml")).unwrap();
    let list = format!("manager = \"{}\"\n", both.join(","));
    wait_for(|| async { stored().contains(&list) }).await;
    // The second leads, and the first does not know.
    both.reverse();
    first.state().managers = both;
    first.stands_by(Some(""));
    second.stands_by(None);
    wait_for(|| async { first.state().last_at == second.address }).await;
    drive.until_serving().await;
    drive.stop().await;
    let address = first.address.clone();
    drop(first);
    let (settings, clock) = settings();
    let mut again = config(dir.path(), &second, settings);
    again.manager = Some(address);
    let drive = Drive::start_with(again, clock, &second).await;
    assert_eq!(second.state().last_at, second.address);
    drive.stop().await;
}

#[tokio::test]
async fn a_list_that_is_none_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    for bad in ["", "h:1,", "h:1,h:1", "h:1,h"] {
        let mut config = config(dir.path(), &manager, settings().0);
        config.manager = Some(bad.to_owned());
        let error = braid_drive::run(config, oneshot::channel().0, std::future::pending()).await.unwrap_err();
        assert!(matches!(error, DriveError::Managers(_)), "{bad}: {error}");
        assert!(error.to_string().starts_with("--manager: "), "{error}");
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing was made");
    }
}
