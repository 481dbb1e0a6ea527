//! Tests against a scripted manager.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_layout::version::Lease;
use braid_layout::{ClusterId, ColumnMask, DriveId, FileId, HolderId, OperationNumber, TokenId};
use braid_transport::{
    Asked, Authority, Bounds, ConnectionSlots, ControlPeer, GivesWay, Listener, Origin, ServerIdentity,
    challenge,
};
use braid_wire::Key;
use braid_wire::capability::DataDirection;
use braid_wire::control::{
    Authenticate, Backup, ControlHead, CreateUnnamed, Done, HeldLease, Lookup, NamePlace, ReportLost,
    ReserveRate, ShapeSpec, Unlink,
};
use braid_wire::data::{Hello, PeerRole};
use braid_wire::token::{Token, TokenRole};
use tokio::sync::mpsc;

use super::*;

const CLUSTER: ClusterId = ClusterId(5);

/// The manager's reaction to a request.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Done,
    Refuse(Reason),
    /// The session ends without an answer.
    Break,
    /// No answer comes, and the session stays open.
    Mute,
    /// The request is carried out and answered after a second.
    Slow,
}

fn token() -> Token {
    Token::lasting(TokenRole::Client, authority().pin(), TokenId(1), Key::new([7; 32]))
}

fn authority() -> Authority {
    Authority::make(&Key::new([3; 32]))
}

/// A client of a manager that reacts as `act` says, given the request's index and the request; and the
/// request heads as they arrive. The manager's time is `now_ms`.
async fn client_of(
    now_ms: Arc<AtomicU64>,
    act: impl Fn(usize, &ControlRequest) -> Act + Send + Sync + 'static,
) -> (Arc<Control>, mpsc::UnboundedReceiver<RequestHead>) {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    let (tell, heads) = mpsc::unbounded_channel();
    let act = Arc::new(act);
    let asked = Arc::new(AtomicU64::new(0));
    let identity = ServerIdentity::of(&authority(), braid_transport::host::wall_ms() / 1000);
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let act = Arc::clone(&act);
            let tell = tell.clone();
            let now_ms = Arc::clone(&now_ms);
            let asked = Arc::clone(&asked);
            let identity = identity.clone();
            tokio::spawn(async move {
                let head = || ControlHead { term: 1, now_ms: now_ms.load(Ordering::SeqCst), managers: 0 };
                let hello = Hello {
                    role: PeerRole::Manager,
                    version_min: braid_wire::frame::WIRE_VERSION,
                    version_max: braid_wire::frame::WIRE_VERSION,
                    cluster: CLUSTER,
                    drive: DriveId(0),
                    features: 0,
                    challenge: challenge(),
                };
                let secret = |_: &Authenticate| Ok(token().secret);
                let slots = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
                let holder = stream.holder().unwrap();
                let slot = |_: &Authenticate| Ok(slots.take(holder, Origin::Here).unwrap());
                let accepted =
                    ControlPeer::accept(stream, &identity, &hello, Vec::new(), head, secret, slot).await;
                let mut peer = accepted.unwrap();
                while let Ok(Some(Asked { number, head: of, request, .. })) = peer.next(head).await {
                    let request = request.unwrap();
                    let nth = usize::try_from(asked.fetch_add(1, Ordering::SeqCst)).unwrap();
                    let _ = tell.send(of);
                    let reply = match act(nth, &request) {
                        Act::Done => ControlReply::Done(Done {}),
                        Act::Refuse(reason) => ControlReply::Refused(Refusal::new(reason, "no")),
                        Act::Break => return,
                        Act::Mute => std::future::pending().await,
                        Act::Slow => {
                            tokio::time::sleep(Duration::from_secs(1)).await;
                            ControlReply::Done(Done {})
                        }
                    };
                    if peer.reply(number, &head(), &reply).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let config = Config { patience: Duration::from_secs(20), ..Config::new(address, token()) };
    let config = Config { limits: Limits { reply: Duration::from_secs(60), ..Limits::default() }, ..config };
    let control = Arc::new(Control::new(config, ClientId(77)));
    control.greet().await.unwrap();
    (control, heads)
}

fn unlink() -> ControlRequest {
    Unlink { at: NamePlace::of("main", "f"), only: braid_wire::control::UnlinkOnly::Any, keep: false }.into()
}

fn renew() -> Renew {
    Renew { leases: vec![HeldLease { file: FileId(1), lease: Lease(1), holder: HolderId(77) }] }
}

fn lost(file: u64) -> ControlRequest {
    let file = FileId(file);
    let columns = ColumnMask(1);
    ReportLost { file, lease: Lease(1), holder: HolderId(77), segment: 0, columns, insist: false }.into()
}

#[tokio::test]
async fn a_repeat_has_the_number_of_the_first_try_and_the_next_says_that_it_is_settled() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth < 2 { Act::Break } else { Act::Done };
    let (control, mut heads) = client_of(now_ms, act).await;
    for _ in 0..2 {
        control.call("f", &unlink()).await.unwrap();
    }
    let first = heads.recv().await.unwrap();
    assert_eq!(
        (first.client, first.operation, first.settled_below),
        (ClientId(77), OperationNumber(1), OperationNumber(1))
    );
    assert!(first.begun_ms >= 1_000_000);
    for _ in 0..2 {
        assert_eq!(heads.recv().await.unwrap(), first);
    }
    let next = heads.recv().await.unwrap();
    assert_eq!((next.operation, next.settled_below), (OperationNumber(2), OperationNumber(2)));
}

#[tokio::test]
async fn a_refusal_of_a_repeat_is_an_error_and_never_success() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth == 0 { Act::Break } else { Act::Refuse(Reason::NotFound) };
    let (control, _heads) = client_of(now_ms, act).await;
    let error = control.call("f", &unlink()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::NotFound));
}

#[tokio::test]
async fn an_operation_is_begun_anew_if_its_time_was_wrong_and_nobody_can_have_carried_it_out() {
    // The manager's time has jumped since the last answer.
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth == 0 { Act::Refuse(Reason::Outdated) } else { Act::Done };
    let (control, mut heads) = client_of(Arc::clone(&now_ms), act).await;
    now_ms.store(9_000_000, Ordering::SeqCst);
    control.call("f", &unlink()).await.unwrap();
    let first = heads.recv().await.unwrap();
    let second = heads.recv().await.unwrap();
    assert!(first.begun_ms < 9_000_000 && second.begun_ms >= 9_000_000);
    assert_eq!((first.operation, second.operation), (OperationNumber(1), OperationNumber(2)));
    // Not so when an answer was lost: the operation may have been carried out.
    let act = |nth, _: &ControlRequest| if nth == 0 { Act::Break } else { Act::Refuse(Reason::Outdated) };
    let (control, _heads) = client_of(now_ms, act).await;
    assert_eq!(control.call("f", &unlink()).await.unwrap_err().reason(), Some(Reason::Outdated));
}

#[tokio::test]
async fn what_takes_long_is_asked_for_once() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth == 0 { Act::Slow } else { Act::Break };
    let (control, mut heads) = client_of(now_ms, act).await;
    let limits = Limits { reply: Duration::from_millis(100), ..Limits::default() };
    let control = Control::new(Config { limits, ..control.config.clone() }, ClientId(77));
    let asked = Backup {}.into();
    control.call_once("manager", &asked, Duration::from_secs(20)).await.unwrap();
    control.call_once("manager", &asked, Duration::from_secs(20)).await.unwrap_err();
    assert!(heads.try_recv().is_ok() && heads.try_recv().is_ok() && heads.try_recv().is_err());
}

#[tokio::test]
async fn renewals_wait_for_no_other_call_and_for_no_mute_session() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |_, request: &ControlRequest| match request {
        ControlRequest::ReportLost(_) => Act::Mute,
        _ => Act::Done,
    };
    let (control, mut heads) = client_of(now_ms, act).await;
    let mut calls = tokio::task::JoinSet::new();
    let sessions = Config::new("", token()).control_sessions;
    for file in 0..2 * u64::try_from(sessions).unwrap() {
        let control = Arc::clone(&control);
        calls.spawn(async move { control.call_for_now("f", &lost(file)).await });
    }
    for _ in 0..sessions {
        heads.recv().await.unwrap();
    }
    // All sessions for calls are in use; a call would wait for a minute.
    let renewed = timeout(Duration::from_secs(15), control.renew("f", renew(), Duration::from_secs(15)));
    renewed.await.expect("it waits for no call").unwrap();
    calls.abort_all();
    // Unresponsive sessions are abandoned.
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth < RENEWAL_SESSIONS { Act::Mute } else { Act::Done };
    let (control, _heads) = client_of(now_ms, act).await;
    let renewed = timeout(Duration::from_secs(15), control.renew("f", renew(), Duration::from_millis(300)));
    renewed.await.expect("it waits for no mute session").unwrap();
}

/// A request that is no operation may be the one that sends a batch with others' operations: the batch has
/// the client's number all the same.
#[tokio::test]
async fn operations_go_along_with_requests_that_are_none() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |nth, _: &ControlRequest| if nth < SHARED_SESSIONS { Act::Slow } else { Act::Break };
    let (control, mut heads) = client_of(now_ms, act).await;
    let look: ControlRequest = Lookup { at: NamePlace::of("main", "f"), follow: false, watch: false }.into();
    let mut calls = tokio::task::JoinSet::new();
    // Two requests take the sessions. The first of those that wait, a lookup, sends the batch.
    for request in [look.clone(), look.clone(), look, unlink()] {
        let control = Arc::clone(&control);
        calls.spawn(async move { control.call("f", &request).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..SHARED_SESSIONS {
        // The client's number is sent in case the client watches.
        let head = RequestHead { client: ClientId(77), ..RequestHead::NONE };
        assert_eq!(heads.recv().await.unwrap(), head);
    }
    let batch = heads.recv().await.unwrap();
    assert_eq!(
        (batch.client, batch.operation, batch.settled_below),
        (ClientId(77), OperationNumber::NONE, OperationNumber(1))
    );
    calls.abort_all();
}

/// The manager bounds the wait for the answers of a batch. So a request that may wait for a fence goes in a
/// batch even alone: it does not keep the session.
#[tokio::test]
async fn what_may_wait_goes_in_a_batch_even_alone() {
    let now_ms = Arc::new(AtomicU64::new(1_000_000));
    let act = |_, request: &ControlRequest| match request {
        ControlRequest::Batch(_) => Act::Refuse(Reason::NotFound),
        _ => Act::Done,
    };
    let (control, mut heads) = client_of(now_ms, act).await;
    let create = CreateUnnamed {
        volume: "main".into(),
        shape: ShapeSpec::DEFAULT,
        holder: HolderId(77),
        avoid: Vec::new(),
        meant_for: None,
        takes_sealed: false,
        new: crate::naming::attributes::usual_file(),
    };
    let refused = control.call("f", &create.into()).await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::NotFound), "it came in a batch");
    assert_eq!(heads.recv().await.unwrap().client, ClientId(77));
    control.call("f", &unlink()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_may_wait_for_itself_is_not_blamed_on_it() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    fn tell(_: &str) {
        TOLD.fetch_add(1, Ordering::SeqCst);
    }
    let config = Config { on_wait: Some(tell), ..Config::new("127.0.0.1:1", token()) };
    let control = Control::new(config, ClientId(1));
    let reserve = ControlRequest::from(ReserveRate {
        at: NamePlace::of("v", "cam"),
        direction: DataDirection::Read,
        rate: 1,
        streams: 1,
        period_ms: 100,
        survive: 0,
        duration_ms: 1,
        claim_ms: 0,
        rail: 0,
        shape: ShapeSpec::DEFAULT,
        trial: false,
    });
    let waits =
        [(&reserve, ENDED_WAIT_MS, 0), (&unlink(), ENDED_WAIT_MS, 1), (&reserve, 2 * ENDED_WAIT_MS, 2)];
    for (request, wait_ms, expected) in waits {
        control.told(told_after(request), tokio::time::sleep(Duration::from_millis(wait_ms))).await;
        assert_eq!(TOLD.load(Ordering::SeqCst), expected, "{request:?} for {wait_ms} ms");
    }
}
