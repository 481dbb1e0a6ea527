//! Tokens that are confined to directories, or bound to a user: what the manager lets them name, and do.

use braid_layout::{FileId, HolderId, ReservationId, TokenId, version::Lease};
use braid_wire::Reason;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, Manager, NEW_FILE, no_shape, open, release};
use crate::tokens::{client, make, spec, watch};

fn new(mode: u32, uid: u32) -> NewAttributes {
    NewAttributes { mode, uid, gid: uid }
}

fn directory(path: &str, new: NewAttributes) -> MakeDirectory {
    MakeDirectory { at: NamePlace::of("main", path), new, parents: false }
}

fn list(at: NamePlace) -> ReadDirectory {
    ReadDirectory { at, after: Vec::new(), limit: 0, watch: false }
}

fn lookup(at: NamePlace) -> Lookup {
    Lookup { at, follow: true, watch: true }
}

fn unlink(path: &str) -> Unlink {
    Unlink { at: NamePlace::of("main", path), only: UnlinkOnly::Any, keep: false }
}

fn rename(from: &str, to: &str) -> Rename {
    let place = |path: &str| NamePlace::of("main", path);
    Rename { from: place(from), to: place(to), how: RenameHow::Replace, keep: false }
}

fn link(from: &str, to: &str) -> HardLink {
    HardLink { from: NamePlace::of("main", from), to: NamePlace::of("main", to) }
}

fn symlink(path: &str, target: &str) -> MakeNode {
    let at = NamePlace::of("main", path);
    MakeNode { at, kind: EntryKind::Symlink, new: NEW_FILE, device: 0, target: target.into() }
}

fn chmod(path: &str, mode: u32) -> SetAttributes {
    let (uid, gid, accessed_ns, modified_ns) = Default::default();
    let changes = AttributeChanges { mode: Some(mode), uid, gid, accessed_ns, modified_ns };
    SetAttributes { at: NamePlace::of("main", path), changes }
}

fn refresh(file: FileId) -> Refresh {
    Refresh {
        file,
        access: Access::Read,
        lease: Lease(0),
        holder: HolderId(0),
        turn: Turn::Any,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    }
}

/// A closed file of this owner.
async fn file(admin: &mut Client, path: &str, new: NewAttributes) -> FileId {
    let opened = admin.opened(Open { new, ..open(path, Access::Write, true) }).await;
    admin.done(release(&opened, true)).await;
    opened.stat.file
}

#[tokio::test]
async fn a_confined_token_reaches_nothing_outside_by_name_or_number() {
    let cluster = Cluster::new(3, no_shape()).await;
    let ready = &cluster.manager.ready;
    let mut admin = cluster.manager.client().await;
    for path in ["projects", "projects/x", "projects/x/sub", "other"] {
        admin.made(directory(path, NEW_FILE)).await;
    }
    let inside = file(&mut admin, "projects/x/sub/f", NEW_FILE).await;
    let outside = file(&mut admin, "other/secret", NEW_FILE).await;
    let both = file(&mut admin, "other/both", NEW_FILE).await;
    admin.made(link("other/both", "projects/x/both")).await;
    admin.made(symlink("projects/x/out", "../../other/secret")).await;
    admin.made(symlink("projects/x/in", "sub/f")).await;
    admin.made(symlink("projects/x/up", "..")).await;
    admin.made(symlink("projects/x/around", "../x/sub")).await;
    let below = vec![NamePlace::of("main", "projects/x")];
    let token = make(&mut admin, ready, 5, TokenNew { below, ..spec("film") }).await;
    let mut film = client(ready, &token).await;

    // Below: by path, by number, by a further name.
    let root = film.made(lookup(NamePlace::of("main", "projects/x"))).await.file;
    for at in [
        NamePlace::of("main", "projects/x/sub/f"),
        NamePlace::of("main", "projects/x/in"),
        NamePlace::of("main", "projects/x/around/f"),
        NamePlace::of("main", "projects/x/up/x/sub/f"),
        NamePlace::number(inside),
        NamePlace::under(root, "sub/f"),
        NamePlace::number(both),
    ] {
        film.made(lookup(at)).await;
    }
    film.opened(refresh(inside)).await;
    film.opened(refresh(both)).await;
    film.made(MakeDirectory { parents: true, ..directory("projects/x/new/deep", NEW_FILE) }).await;
    film.done(rename("projects/x/sub/f", "projects/x/g")).await;

    // Outside: the same refusal whether or not something is there.
    let is_there = film.refused(lookup(NamePlace::of("main", "other/secret"))).await;
    let is_not = film.refused(lookup(NamePlace::of("main", "other/nothing"))).await;
    assert_eq!((is_there.reason, is_not.reason), (Reason::NotAllowed, Reason::NotAllowed));
    assert_eq!(is_there.detail.replace("secret", "nothing"), is_not.detail);
    assert!(is_there.detail.contains("--below"), "{is_there}");
    for request in [
        ControlRequest::from(lookup(NamePlace::of("main", ""))),
        lookup(NamePlace::of("main", "projects")).into(),
        lookup(NamePlace::of("main", "projects/x/out")).into(),
        lookup(NamePlace::under(root, "up")).into(),
        lookup(NamePlace::number(outside)).into(),
        list(NamePlace::of("main", "projects")).into(),
        open("other/secret", Access::Read, false).into(),
        open("other/made", Access::Write, true).into(),
        refresh(outside).into(),
        directory("other/d", NEW_FILE).into(),
        rename("projects/x/g", "other/g").into(),
        rename("other/secret", "projects/x/s").into(),
        rename("projects/x", "projects/y").into(),
        link("other/secret", "projects/x/s").into(),
        link("projects/x/g", "other/g").into(),
        unlink("other/secret").into(),
        chmod("projects", 0o777).into(),
    ] {
        let refusal = film.refused(request.clone()).await;
        assert_eq!(refusal.reason, Reason::NotAllowed, "{request:?}: {refusal}");
    }
    // A file without a name is read by who had opened it, whatever others claim to have open.
    let going = file(&mut admin, "projects/x/going", NEW_FILE).await;
    let kept = file(&mut admin, "other/kept", NEW_FILE).await;
    let claim = Watch { open: vec![going, kept], wait_ms: 0, ..watch(film.1) };
    admin.ask(Watch { open: vec![going, kept], wait_ms: 0, ..watch(admin.1) }).await.unwrap();
    film.ask(claim).await.unwrap();
    film.opened(open("projects/x/going", Access::Read, false)).await;
    for path in ["projects/x/going", "other/kept"] {
        admin.done(unlink(path)).await;
    }
    film.opened(refresh(going)).await;
    assert_eq!(film.refused(refresh(kept)).await.reason, Reason::NotAllowed);
    // What has moved out is out of reach, by its number too.
    admin.done(rename("projects/x/g", "other/g")).await;
    assert_eq!(film.refused(refresh(inside)).await.reason, Reason::NotAllowed);
    let ControlReply::Tokens(tokens) = admin.ask(Tokens { after: TokenId(token.id.0 - 1) }).await.unwrap()
    else {
        panic!("a list")
    };
    assert_eq!(tokens.tokens[0].below, ["braid://main/projects/x"]);
}

#[tokio::test]
async fn a_bound_token_is_that_user_whatever_its_client_claims() {
    let cluster = Cluster::new(3, no_shape()).await;
    let ready = &cluster.manager.ready;
    let mut admin = cluster.manager.client().await;
    admin.done(chmod("", 0o755)).await;
    admin.made(directory("home", new(0o755, 1000))).await;
    admin.made(directory("closed", new(0o700, 2000))).await;
    admin.made(directory("tmp", new(0o1777, 0))).await;
    let hidden = file(&mut admin, "closed/open-to-all", new(0o666, 2000)).await;
    let readable = file(&mut admin, "readable", new(0o644, 2000)).await;
    let secret = file(&mut admin, "secret", new(0o600, 2000)).await;
    file(&mut admin, "tmp/theirs", new(0o666, 2000)).await;
    let user = Some(TokenUser { uid: 1000, gids: vec![1000, 27] });
    let token = make(&mut admin, ready, 5, TokenNew { user, ..spec("laptop") }).await;
    let mut laptop = client(ready, &token).await;

    laptop.opened(open("readable", Access::Read, false)).await;
    laptop.opened(refresh(readable)).await;
    // A claim to be the superuser counts for nothing.
    let made = laptop.opened(Open { new: new(0o644, 0), ..open("home/f", Access::Write, true) }).await;
    assert_eq!((made.stat.attributes.uid, made.stat.attributes.gid), (1000, 1000));
    laptop.done(release(&made, true)).await;
    let made = laptop.made(directory("home/d", new(0o755, 0))).await;
    assert_eq!(made.attributes.uid, 1000);
    laptop.done(chmod("home/f", 0o600)).await;
    laptop.done(rename("home/f", "tmp/mine")).await;
    laptop.done(unlink("tmp/mine")).await;

    let give_away = AttributeChanges { uid: Some(0), ..chmod("", 0).changes };
    for (request, reason) in [
        (ControlRequest::from(open("secret", Access::Read, false)), Reason::NotAllowed),
        (open("readable", Access::Write, false).into(), Reason::NotAllowed),
        (open("made", Access::Write, true).into(), Reason::NotAllowed),
        (list(NamePlace::of("main", "closed")).into(), Reason::NotAllowed),
        (lookup(NamePlace::of("main", "closed/open-to-all")).into(), Reason::NotAllowed),
        (lookup(NamePlace::number(hidden)).into(), Reason::NotAllowed),
        (refresh(hidden).into(), Reason::NotAllowed),
        (refresh(secret).into(), Reason::NotAllowed),
        (unlink("readable").into(), Reason::NotAllowed),
        (unlink("tmp/theirs").into(), Reason::NotOwner),
        (rename("tmp/theirs", "home/t").into(), Reason::NotOwner),
        (chmod("readable", 0o777).into(), Reason::NotOwner),
        (SetAttributes { at: NamePlace::of("main", "home/d"), changes: give_away }.into(), Reason::NotOwner),
    ] {
        let refusal = laptop.refused(request.clone()).await;
        assert_eq!(refusal.reason, reason, "{request:?}: {refusal}");
        assert!(refusal.detail.contains("laptop"), "{refusal}");
    }
}

/// Long leases: nothing here waits for the end of one.
#[tokio::test]
async fn after_a_restart_the_leases_of_a_revoked_token_end_and_no_others() {
    let cluster = Cluster::new(3, no_shape()).await;
    let ready = cluster.manager.ready.clone();
    let mut admin = cluster.manager.client().await;
    let token = make(&mut admin, &ready, 5, spec("film")).await;
    let mut film = client(&ready, &token).await;
    let theirs = film.opened(open("theirs", Access::Write, true)).await;
    let others = admin.opened(open("others", Access::Write, true)).await;
    drop((film, admin));
    let cluster = cluster.restart_manager().await;
    let mut admin = cluster.manager.client().await;
    admin.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    let mine =
        |path, holder| Open { holder: HolderId(holder), alone: true, ..open(path, Access::Write, false) };
    assert_eq!(admin.refused(mine("theirs", 8)).await.reason, Reason::Leased);
    admin.done(TokenRevoke { name: "film".into() }).await;
    let ControlReply::Opened(opened) = admin.patient(mine("theirs", 8)).await.unwrap() else { panic!() };
    assert!(opened.lease > theirs.lease);
    assert_eq!(admin.refused(mine("others", 9)).await.reason, Reason::Leased);
    assert!(admin.renews(&others, HolderId(7)).await, "it is another token's");
}

#[tokio::test]
async fn a_token_names_directories_that_are_there_and_users_with_groups() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let mut admin = manager.client().await;
    let ask = |spec: TokenNew| TokenNew { id: TokenId(9), ..spec };
    let below = vec![NamePlace::of("none", "d")];
    assert_eq!(admin.refused(ask(TokenNew { below, ..spec("a") })).await.reason, Reason::NoVolume);
    let user = Some(TokenUser { uid: 1, gids: Vec::new() });
    assert_eq!(admin.refused(ask(TokenNew { user: user.clone(), ..spec("b") })).await.reason, Reason::Range);
    let role = braid_wire::token::TokenRole::Admin;
    let user = user.map(|user| TokenUser { gids: vec![1], ..user });
    let refusal = admin.refused(ask(TokenNew { user, role, ..spec("c") })).await;
    assert!(refusal.reason == Reason::Range && refusal.detail.contains("clients' tokens"), "{refusal}");
    manager.stop().await;
}
