//! Leases of many open files, renewed together.

use std::time::Duration;

use braid_client::OpenOptions;

use crate::common::{Cluster, name};

/// The task of one open file renews the leases of all. When the file is closed, the task of another goes on.
#[tokio::test(flavor = "multi_thread")]
async fn leases_outlive_the_file_that_renewed_them() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let volume =
        client.volume_create("main", Some(crate::common::shape(braid_layout::Scheme::Raid0, 1, 0, 4096)), 0);
    volume.await.expect("a volume");
    let mut files = Vec::new();
    for index in 0..6 {
        let options = OpenOptions::new().write(true).create(true).alone(true);
        let path = name(&format!("f{index}"));
        files.push((path.clone(), client.open(&path, &options).await.expect("open")));
    }
    let other = cluster.client().await;
    // A lease lasts 3 s: without renewals none of these would be left.
    for _ in 0..3 {
        let (path, first) = files.remove(0);
        first.close().await.expect("close");
        other.open(&path, &OpenOptions::new().write(true)).await.expect("it is free");
        tokio::time::sleep(Duration::from_millis(2500)).await;
    }
    for (path, file) in files {
        let taken = other.open(&path, &OpenOptions::new().write(true)).await;
        assert!(taken.is_err_and(|error| error.to_string().contains("open for writing")), "{path}");
        file.write_at(b"still here", 0).await.expect("its lease is held");
        file.close().await.expect("close");
    }
}
