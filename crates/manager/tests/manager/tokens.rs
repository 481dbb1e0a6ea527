//! Tokens: what each allows, and when its sessions end.

use braid_layout::{ClientId, DriveId, TokenId};
use braid_manager::Ready;
use braid_transport::{ControlSession, Credentials, Limits, TransportError};
use braid_wire::capability::Key;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use braid_wire::token::{Standing, Token, TokenRole};
use braid_wire::{Reason, Refusal};
use tokio::time::timeout;

use crate::fake::{Client, Cluster, Manager, no_shape, open};

pub(crate) fn spec(name: &str) -> TokenNew {
    TokenNew {
        name: name.to_owned(),
        id: TokenId::NONE,
        secret: Key::new([0x5a; 32]),
        role: TokenRole::Client,
        volumes: None,
        below: Vec::new(),
        user: None,
        read_only: false,
        lasts_s: 0,
    }
}

/// Makes a token of this number.
pub(crate) async fn make(admin: &mut Client, ready: &Ready, id: u64, spec: TokenNew) -> Token {
    let id = TokenId(id);
    let role = spec.role;
    let secret = spec.secret.clone();
    let expires_s = match admin.ask(TokenNew { id, ..spec }).await.unwrap() {
        ControlReply::TokenMade(made) => made.expires_s,
        other => panic!("{other:?}"),
    };
    Token { role, pin: ready.client_token.pin, id, secret, expires_s }
}

pub(crate) async fn client(ready: &Ready, token: &Token) -> Client {
    Client::connect(&Ready { client_token: token.clone(), ..ready.clone() }).await
}

async fn connect(ready: &Ready, credentials: impl Into<Credentials>) -> Result<ControlSession, Refusal> {
    match ControlSession::connect(&ready.address, credentials, &Limits::default()).await {
        Ok(session) => Ok(session),
        Err(TransportError::Refusal(refusal)) => Err(refusal),
        Err(error) => panic!("{error}"),
    }
}

/// A request that waits for news for as long as it may.
pub(crate) fn watch(client: ClientId) -> Watch {
    let open = Vec::new();
    let closed = Vec::new();
    Watch { client, order: 1, seen: 0, heeded: 0, written: 0, open, closed, wait_ms: u32::MAX }
}

fn join(name: &str) -> JoinDrive {
    JoinDrive {
        name: name.into(),
        addresses: "127.0.0.1:1".into(),
        host: "h".into(),
        rack: String::new(),
        directory: "/d".into(),
        pid: 1,
        capacity_bytes: 1 << 40,
    }
}

#[tokio::test]
async fn a_token_is_for_its_volumes_and_its_rights() {
    let cluster = Cluster::new(3, no_shape()).await;
    let ready = &cluster.manager.ready;
    let mut admin = cluster.manager.client().await;
    admin
        .done(VolumeCreate {
            name: "media".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    admin.create("f").await;
    let reads = TokenNew { volumes: Some(vec!["main".into()]), read_only: true, ..spec("reads") };
    let token = make(&mut admin, ready, 5, reads).await;
    let mut reads = client(ready, &token).await;
    assert_eq!(reads.stat("f").await.unwrap().size(), 0);
    let ControlReply::Volumes(list) = reads.ask(VolumeList {}).await.unwrap() else { panic!("a list") };
    assert_eq!(list.volumes.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["main"]);
    for request in [
        ControlRequest::from(open("f", Access::Write, false)),
        ControlRequest::from(Lookup { at: NamePlace::of("media", ""), follow: false, watch: false }),
        ControlRequest::from(VolumeRemove { name: "media".into() }),
        ControlRequest::from(Tokens { after: TokenId::NONE }),
    ] {
        let refusal = reads.refused(request).await;
        assert!(refusal.reason == Reason::NotAllowed && refusal.detail.contains("\"reads\""), "{refusal}");
    }
    // What is in a batch has no other rights.
    let lookup = Lookup { at: NamePlace::of("media", ""), follow: false, watch: false };
    let item = BatchItem::new(&RequestHead::NONE, &lookup.into());
    let batch = Batch { items: vec![item] };
    let ControlReply::Batch(batch) = reads.ask(batch).await.unwrap() else { panic!("a batch") };
    let answer = batch.answers.first().expect("one").reply().unwrap();
    assert!(matches!(&answer, ControlReply::Refused(no) if no.reason == Reason::NotAllowed), "{answer:?}");
}

#[tokio::test]
async fn the_sessions_of_a_revoked_token_end_and_it_opens_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let ready = manager.ready.clone();
    let mut admin = manager.client().await;
    let token = make(&mut admin, &ready, 5, spec("film")).await;
    let mut waits = client(&ready, &token).await;
    let waiting = tokio::spawn(async move {
        let watch = watch(waits.1);
        loop {
            if let Err(error) = waits.0.call(&watch.clone().into()).await {
                return error;
            }
        }
    });
    let mut idle = connect(&ready, &token).await.unwrap();
    let sessions = async |admin: &mut Client| {
        let ControlReply::Tokens(list) = admin.ask(Tokens { after: TokenId(4) }).await.unwrap() else {
            panic!()
        };
        let row = list.tokens.iter().find(|row| row.name == "film").unwrap();
        (row.state, row.sessions)
    };
    assert_eq!(sessions(&mut admin).await, (TokenState::Valid, 2));
    admin.done(TokenRevoke { name: "film".into() }).await;
    // Either the session has ended, or its last request was refused first.
    timeout(braid_testing::PATIENCE, waiting).await.expect("at once").unwrap();
    assert!(idle.call(&VolumeList {}.into()).await.is_err());
    let refusal = connect(&ready, &token).await.unwrap_err();
    assert!(refusal.reason == Reason::BadToken && refusal.detail.contains("revoked"), "{refusal}");
    braid_testing::eventually("its sessions are over", || async {
        let mut admin = Client::connect(&ready).await;
        sessions(&mut admin).await == (TokenState::Revoked, 0)
    })
    .await;
    // A wrong secret is not told what became of the token.
    let forged = Token { secret: Key::new([1; 32]), ..token.clone() };
    assert!(!connect(&ready, &forged).await.unwrap_err().detail.contains("revoked"));
    // All of that is on record.
    let manager = manager.restart().await;
    assert!(connect(&manager.ready, &token).await.unwrap_err().detail.contains("revoked"));
    manager.stop().await;
}

#[tokio::test]
async fn capabilities_end_with_the_token_and_so_does_the_session() {
    let cluster = Cluster::new(3, no_shape()).await;
    let ready = &cluster.manager.ready;
    let mut admin = cluster.manager.client().await;
    admin.create("f").await;
    let token = make(&mut admin, ready, 5, TokenNew { lasts_s: 60, ..spec("film") }).await;
    let mut short = client(ready, &token).await;
    let opened = short.opened(open("f", Access::Read, false)).await;
    assert_eq!(opened.expires_ms, token.expires_s * 1000);
    let brief = make(&mut admin, ready, 6, TokenNew { lasts_s: 1, ..spec("brief") }).await;
    let over = async {
        loop {
            let connected = ControlSession::connect(&ready.address, &brief, &Limits::default()).await;
            let Ok(mut session) = connected else { return connected.map(drop).unwrap_err() };
            // The session ends by itself, in the middle of its waiting.
            let watch = watch(ClientId(9));
            while session.call(&watch.clone().into()).await.is_ok() {}
        }
    };
    let error = timeout(braid_testing::PATIENCE, over).await.expect("it expires");
    let TransportError::Refusal(refusal) = error else { panic!("{error}") };
    assert!(refusal.detail.contains("has expired") && refusal.detail.contains("braid token"), "{refusal}");
}

#[tokio::test]
async fn one_drive_joins_with_its_token_and_goes_on_when_that_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let ready = manager.ready.clone();
    let mut admin = manager.client().await;
    let token = make(&mut admin, &ready, 5, TokenNew { role: TokenRole::Drive, ..spec("disk") }).await;
    let mut master = Key::new([0; 32]);
    // Its answer may have been lost: the same drive joins again.
    for _ in 0..2 {
        let mut session = connect(&ready, Credentials::joining(&token, DriveId(9))).await.unwrap();
        master = Token::master_key(&token.secret, session.binding(), session.nonce(), DriveId(9));
        session.call(&join("nine").into()).await.unwrap();
    }
    let refusal = connect(&ready, Credentials::joining(&token, DriveId(10))).await.unwrap_err();
    let says = |words| refusal.detail.contains(words);
    assert!(
        refusal.reason == Reason::BadToken && says("is for one drive") && says("--role drive"),
        "{refusal}"
    );
    admin.done(TokenRevoke { name: "disk".into() }).await;
    connect(&ready, Credentials::of_drive(ready.cluster, token.pin, DriveId(9), 1, &master)).await.unwrap();
    // The manager's own is for any number, until it is revoked; a restart makes another.
    for drive in [DriveId(11), DriveId(12)] {
        let mut session = connect(&ready, Credentials::joining(&ready.join_token, drive)).await.unwrap();
        session.call(&join(&format!("d{}", drive.0)).into()).await.unwrap();
    }
    admin.done(TokenRevoke { name: "join".into() }).await;
    connect(&ready, Credentials::joining(&ready.join_token, DriveId(13))).await.unwrap_err();
    let manager = manager.restart().await;
    assert_ne!(manager.ready.join_token, ready.join_token);
    connect(&manager.ready, Credentials::joining(&manager.ready.join_token, DriveId(13))).await.unwrap();
    manager.stop().await;
}

#[tokio::test]
async fn a_token_of_another_role_is_refused_with_the_command_that_makes_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let ready = &manager.ready;
    let joins = Credentials { standing: Standing::Join, ..Credentials::from(&ready.client_token) };
    let refusal = connect(ready, joins).await.unwrap_err();
    assert!(refusal.detail.contains("--role drive"), "{refusal}");
    let client = Credentials { standing: Standing::Client, ..Credentials::from(&ready.join_token) };
    let refusal = connect(ready, client).await.unwrap_err();
    assert!(refusal.detail.contains("braid token new NAME"), "{refusal}");
    let unknown = Token { id: TokenId(77), ..ready.client_token.clone() };
    assert!(connect(ready, &unknown).await.unwrap_err().detail.contains("braid token new"));
    manager.stop().await;
}

#[tokio::test]
async fn the_repeat_of_an_answer_that_was_lost_makes_no_second_token() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let mut admin = manager.client().await;
    let head = admin.operation();
    let request = TokenNew { id: TokenId(5), lasts_s: 3600, ..spec("film") };
    let first = admin.ask_as(&head, request.clone()).await.unwrap();
    assert_eq!(admin.ask_as(&head, request).await.unwrap(), first);
    let again = admin.refused(TokenNew { id: TokenId(6), ..spec("film") }).await;
    assert_eq!(again.reason, Reason::Exists);
    let last = admin.refused(TokenRevoke { name: "admin".into() }).await;
    assert!(last.detail.contains("--role admin"), "{last}");
    manager.stop().await;
}
