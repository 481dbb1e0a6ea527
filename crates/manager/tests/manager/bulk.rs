//! Many requests in one message.

use std::time::{Duration, Instant};

use braid_layout::{HolderId, OperationNumber, ReservationId};
use braid_wire::Reason;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, NEW_FILE, eventually, no_shape, open, raid5, release};

fn make(path: &str) -> ControlRequest {
    MakeDirectory { at: NamePlace::of("main", path), parents: false, new: NEW_FILE }.into()
}

fn look(path: &str) -> ControlRequest {
    Lookup { at: NamePlace::of("main", path), follow: false, watch: false }.into()
}

fn unlink(path: &str) -> ControlRequest {
    Unlink { at: NamePlace::of("main", path), only: UnlinkOnly::Any, keep: false }.into()
}

/// Sends these requests as a batch, each under its head, and returns the answers.
async fn ask_all(client: &mut Client, asked: &[(RequestHead, ControlRequest)]) -> Vec<ControlReply> {
    let items = asked.iter().map(|(head, request)| BatchItem::new(head, request)).collect();
    ask_items(client, &asked[0].0, items).await
}

async fn ask_items(client: &mut Client, head: &RequestHead, items: Vec<BatchItem>) -> Vec<ControlReply> {
    let head = RequestHead { operation: OperationNumber::NONE, begun_ms: 0, ..head.clone() };
    match client.ask_as(&head, Batch { items }).await {
        Ok(ControlReply::Batch(reply)) => {
            reply.answers.iter().map(|answer| answer.reply().expect("a reply")).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn done() -> ControlReply {
    Done {}.into()
}

fn why(reply: &ControlReply) -> Reason {
    match reply {
        ControlReply::Refused(refusal) => refusal.reason,
        other => panic!("it was not refused: {}", other.name()),
    }
}

#[tokio::test]
async fn one_bad_request_keeps_no_other_from_being_done_and_repeats_get_the_first_answers() {
    let cluster = Cluster::new(3, no_shape()).await;
    let (mut client, mut other) = (cluster.manager.client().await, cluster.manager.client().await);
    client.made(MakeDirectory { at: NamePlace::of("main", "old"), parents: false, new: NEW_FILE }).await;
    let heads = client.operations(3);
    let asked = [
        (heads[0].clone(), make("a")),
        (heads[1].clone(), unlink("no such")),
        (RequestHead::NONE, look("old")),
        (RequestHead::NONE, look("no such")),
        (heads[2].clone(), unlink("old")),
    ];
    let answers = ask_all(&mut client, &asked).await;
    assert!(matches!(&answers[0], ControlReply::Stat(_)), "{:?}", answers[0]);
    assert_eq!(answers[4], done());
    assert_eq!((why(&answers[1]), why(&answers[3])), (Reason::NotFound, Reason::NotFound));
    let ControlReply::Refused(refusal) = &answers[1] else { unreachable!() };
    assert!(refusal.detail.contains("no such"), "{refusal}");
    assert!(client.stat("a").await.is_ok() && client.stat("old").await.is_err());

    // The answers were lost. Operations are not carried out again; the old name belongs to another now.
    other.made(MakeDirectory { at: NamePlace::of("main", "old"), parents: false, new: NEW_FILE }).await;
    let again = ask_all(&mut client, &asked).await;
    assert!(matches!(&again[0], ControlReply::Stat(_)), "{:?}", again[0]);
    assert_eq!((why(&again[1]), &again[4]), (Reason::NotFound, &done()));
    assert!(client.stat("old").await.is_ok(), "it is the other's");
}

#[tokio::test]
async fn what_may_not_be_in_a_batch_is_refused_by_itself() {
    let cluster = Cluster::new(3, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let status = Status {}.into();
    let inner = Batch { items: Vec::new() }.into();
    let none = RequestHead::NONE;
    let mut items: Vec<BatchItem> =
        [status, inner, look("")].iter().map(|request| BatchItem::new(&none, request)).collect();
    items.push(BatchItem {
        operation: OperationNumber::NONE,
        begun_ms: 0,
        kind: 0x0214,
        body: vec![1, 2, 3],
    });
    items.push(BatchItem { operation: OperationNumber::NONE, begun_ms: 0, kind: 0x7777, body: Vec::new() });
    // A change without a number.
    items.push(BatchItem::new(&none, &make("a")));
    // A refresh may take the file for itself, and the manager could not tell that it is carried out late.
    let file = client.create("f").await;
    let (file, lease) = (file.stat.file, file.lease);
    let refresh = Refresh {
        file,
        access: Access::Write,
        lease,
        holder: HolderId(7),
        turn: Turn::Take,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    };
    items.insert(2, BatchItem::new(&none, &refresh.into()));
    let head = client.operation();
    let answers = ask_items(&mut client, &head, items).await;
    assert_eq!(why(&answers[0]), Reason::Unsupported);
    assert_eq!(why(&answers[1]), Reason::Unsupported);
    assert_eq!(why(&answers[2]), Reason::Unsupported);
    assert!(matches!(answers[3], ControlReply::Stat(_)));
    assert!(answers[4..].iter().all(|answer| why(answer) == Reason::Malformed), "{answers:?}");
    let many = vec![BatchItem::new(&none, &look("")); BATCH_ITEMS_MAX + 1];
    assert_eq!(client.refused(Batch { items: many }).await.reason, Reason::Malformed);
    assert!(ask_items(&mut client, &head, Vec::new()).await.is_empty());
}

#[tokio::test]
async fn what_takes_long_holds_up_no_other_and_goes_on() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let (mut client, mut other) = (cluster.manager.client().await, cluster.manager.client().await);
    let file = client.create("f").await;
    cluster.of(&file, 0).state().mute = true;
    client.done(release(&file, false)).await;
    // The next writer waits for the fence, and the fence for the drive.
    let began = Instant::now();
    let head = client.operation();
    let write: ControlRequest = open("f", Access::Write, false).into();
    let answers =
        ask_all(&mut client, &[(head.clone(), write.clone()), (RequestHead::NONE, look("f"))]).await;
    assert!(matches!(answers[1], ControlReply::Stat(_)));
    let ControlReply::Refused(refusal) = &answers[0] else { panic!("{:?}", answers[0]) };
    assert!(refusal.reason == Reason::Busy && refusal.again_ms > 0, "{refusal}");
    assert!(began.elapsed() < Duration::from_secs(3), "the batch waits for a fraction of a second");
    // A repeat is refused as long as the first copy is under way.
    let again = client.ask_as(&head, write.clone()).await.unwrap_err();
    assert_eq!(again.reason, Reason::Busy, "{again}");
    cluster.of(&file, 0).state().mute = false;
    let client = tokio::sync::Mutex::new(client);
    eventually("it is open", || async { client.lock().await.ask_as(&head, write.clone()).await.is_ok() })
        .await;
    assert!(other.stat("f").await.expect("stat").g.0 > file.stat.g.0, "by a fence");
}
