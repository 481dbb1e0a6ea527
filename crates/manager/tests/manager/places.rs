//! Places that are named from a directory's number, or by a number alone.

use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, NEW_FILE, no_shape, open, release};

async fn at(client: &mut Client, at: NamePlace) -> Result<StatRow, Reason> {
    match client.ask(Lookup { at, follow: false, watch: false }).await {
        Ok(ControlReply::Stat(row)) => Ok(row),
        Ok(other) => panic!("{}", other.name()),
        Err(refusal) => Err(refusal.reason),
    }
}

async fn numbered(client: &mut Client, path: &str) -> FileId {
    at(client, NamePlace::of("main", path)).await.expect("it is there").file
}

#[tokio::test]
async fn a_number_leads_to_the_same_whatever_its_name_becomes() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    client.made(MakeDirectory { at: NamePlace::of("main", "d/e"), parents: true, new: NEW_FILE }).await;
    let (d, e) = (numbered(&mut client, "d").await, numbered(&mut client, "d/e").await);
    let mut request = open("f", Access::Write, true);
    request.at = NamePlace::under(e, "f");
    let file = client.opened(request).await;
    client.done(release(&file, true)).await;
    let f = file.stat.file;
    assert_eq!(numbered(&mut client, "d/e/f").await, f);
    client
        .done(Rename {
            from: NamePlace::under(d, "e"),
            to: NamePlace::of("main", "moved"),
            how: RenameHow::Replace,
            keep: false,
        })
        .await;
    for place in [NamePlace::number(f), NamePlace::under(e, "f"), NamePlace::of("main", "moved/f")] {
        assert_eq!(at(&mut client, place).await.expect("it is there").file, f);
    }
    assert_eq!(at(&mut client, NamePlace::under(d, "e")).await, Err(Reason::NotFound));
    let list = ReadDirectory { at: NamePlace::number(e), after: Vec::new(), limit: 0, watch: false };
    let Ok(ControlReply::Directory(page)) = client.ask(list).await else { panic!("no list") };
    assert_eq!(page.entries.iter().map(|entry| entry.file).collect::<Vec<_>>(), [f]);
    // The file is read and written by its number.
    for access in [Access::Read, Access::Write] {
        let mut request = open("", access, false);
        request.at = NamePlace::number(f);
        let again = client.opened(request).await;
        assert_eq!(again.stat.file, f);
        if access == Access::Write {
            client.done(release(&again, true)).await;
        }
    }
    client.done(Unlink { at: NamePlace::under(e, "f"), only: UnlinkOnly::Any, keep: false }).await;
    assert_eq!(at(&mut client, NamePlace::number(f)).await, Err(Reason::NotFound));
    client.done(Unlink { at: NamePlace::of("main", "moved"), only: UnlinkOnly::Any, keep: false }).await;
    assert_eq!(at(&mut client, NamePlace::number(e)).await, Err(Reason::NotFound));
    assert_eq!(at(&mut client, NamePlace::under(e, "f")).await, Err(Reason::NotFound));
}

#[tokio::test]
async fn a_number_that_leads_nowhere_is_refused() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    client
        .done(VolumeCreate {
            name: "other".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    client.made(MakeDirectory { at: NamePlace::of("main", "d/e"), parents: true, new: NEW_FILE }).await;
    let (d, e) = (numbered(&mut client, "d").await, numbered(&mut client, "d/e").await);
    let file = client.create("f").await;
    client.done(release(&file, true)).await;
    let f = file.stat.file;
    let other = at(&mut client, NamePlace::of("other", "")).await.expect("its root").file;
    let make = |at| ControlRequest::from(MakeDirectory { at, parents: false, new: NEW_FILE });
    let rename = |from, to| ControlRequest::from(Rename { from, to, how: RenameHow::Replace, keep: false });
    let main = |path: &str| NamePlace::of("main", path);
    let of_volume = |volume: &str, from| NamePlace { volume: volume.into(), ..NamePlace::number(from) };
    for (request, reason) in [
        (make(NamePlace::under(FileId(u64::MAX), "x")), Reason::NotFound),
        (make(NamePlace::under(f, "x")), Reason::NotDirectory),
        (make(NamePlace::under(d, "e")), Reason::Exists),
        (make(NamePlace::under(d, "../x")), Reason::BadName),
        (make(NamePlace::number(d)), Reason::Exists),
        (Unlink { at: NamePlace::number(d), only: UnlinkOnly::Any, keep: false }.into(), Reason::BadName),
        (Lookup { at: of_volume("other", d), follow: false, watch: false }.into(), Reason::NotFound),
        (rename(main("d"), NamePlace::under(e, "x")), Reason::BadName),
        (rename(NamePlace::under(d, "e"), NamePlace::under(e, "x")), Reason::BadName),
        (rename(main("d"), NamePlace::under(d, "x")), Reason::BadName),
        (rename(main("f"), NamePlace::under(other, "f")), Reason::BadName),
    ] {
        let refusal = client.refused(request.clone()).await;
        assert_eq!(refusal.reason, reason, "{request:?}: {refusal}");
    }
    assert_eq!(at(&mut client, of_volume("main", d)).await.expect("the volume is right").file, d);
    // A file is not below another one, and stays one file.
    client.done(rename(main("f"), NamePlace::under(e, "f"))).await;
    assert_eq!(numbered(&mut client, "d/e/f").await, f);
}
