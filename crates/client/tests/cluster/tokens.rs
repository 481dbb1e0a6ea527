//! Tokens that end while files are open with them.

use braid_client::{Client, OpenOptions, TokenSpec};
use braid_layout::Scheme;
use braid_wire::Reason;
use braid_wire::token::TokenRole;

use crate::common::{Cluster, Times, name, pattern, put, read_all, shape};
use crate::shared::{UNIT, both};

async fn cluster() -> (Cluster, Client) {
    ready(Cluster::start(3).await).await
}

/// The cluster with a volume, and an admin.
async fn ready(cluster: Cluster) -> (Cluster, Client) {
    let client = cluster.client().await;
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    client.volume_create("main", Some(raid5), 0).await.expect("a volume");
    (cluster, client)
}

/// A client with a new token for the volume.
async fn film(cluster: &Cluster, admin: &Client, read_only: bool) -> Client {
    let spec = TokenSpec {
        name: "film".into(),
        role: TokenRole::Client,
        volumes: Some(vec!["main".into()]),
        below: Vec::new(),
        user: None,
        read_only,
        lasts_s: 0,
    };
    let token = admin.make_token(spec).await.expect("made");
    let mut config = cluster.config();
    config.credentials = (&token).into();
    Client::connect(config).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_with_a_revoked_token_reads_and_writes_nothing_more() {
    // Leases outlast the test: nothing waits for the end of one.
    let times = Times { client_lease_ms: 300_000, ..Times::default() };
    let (mut cluster, client) = ready(Cluster::start_timed(3, |_| None, times).await).await;
    let data = pattern(1, 300_000);
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    put(&client, &name("a"), raid5, &data).await;
    let other = film(&cluster, &client, false).await;
    let reads = other.open(&name("a"), &OpenOptions::new().read(true)).await.expect("opened");
    let writes = other.open(&name("b"), &both().create(true)).await.expect("created");
    writes.write_at(&data, 0).await.expect("written");
    let mut back = vec![0; 1000];
    reads.read_at(&mut back, 0).await.expect("read");

    client.revoke_token("film").await.expect("revoked");
    let refused = reads.read_at(&mut back, 100_000).await.expect_err("revoked");
    assert_eq!(refused.reason(), Some(Reason::BadToken), "{refused}");
    assert!(refused.to_string().contains("was revoked"), "{refused}");
    let refused = writes.write_at(&data, 0).await.expect_err("revoked");
    assert_eq!(refused.reason(), Some(Reason::BadToken), "{refused}");
    assert!(other.stat(&name("a")).await.is_err());
    // What it had written is there, and others go on at once.
    let next = client.open(&name("b"), &both()).await.expect("its lease is over");
    next.write_at(&data, 0).await.expect("written");
    next.close().await.expect("closed");
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
    // Nothing of that is forgotten.
    cluster.restart_manager().await;
    cluster.all_up(&client).await;
    assert_eq!(other.stat(&name("a")).await.expect_err("revoked").reason(), Some(Reason::BadToken));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_token_reads_and_writes_nothing() {
    let (cluster, client) = cluster().await;
    let data = pattern(1, 300_000);
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    put(&client, &name("a"), raid5, &data).await;
    let other = film(&cluster, &client, true).await;
    assert!(read_all(&other, &name("a")).await.expect("read") == data);
    for refused in [
        other.open(&name("a"), &both()).await.map(drop).expect_err("read-only"),
        other.open(&name("new"), &both().create(true)).await.map(drop).expect_err("read-only"),
        other.volume_create("more", None, 0).await.expect_err("for admins"),
    ] {
        assert_eq!(refused.reason(), Some(Reason::NotAllowed), "{refused}");
    }
    assert!(read_all(&client, &name("a")).await.expect("read") == data);
}
