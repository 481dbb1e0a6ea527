//! A session that many callers share.

use braid_layout::Generation;
use braid_transport::{DriveSession, SHARED_PAYLOAD_BYTES_MAX, SharedSession, TransportError};
use braid_wire::Wire;
use braid_wire::data::DriveReply;
use braid_wire::seal::ReplySeal;
use tokio::task::JoinSet;

use super::common::*;

async fn shared(address: &str) -> SharedSession {
    connect(address).await.unwrap().share().expect("nothing is in flight")
}

#[tokio::test]
async fn many_callers_get_their_own_answers_in_any_order() {
    const COUNT: u64 = 50;
    let mut seals: Vec<ReplySeal> = Vec::new();
    let address = drive_of(move |seal| {
        let number = seal.request();
        seals.push(seal);
        // Of each fifty requests, the one that came last is answered first.
        if number % COUNT != 0 {
            return Vec::new();
        }
        seals.drain(..).rev().map(|seal| answer_to(&seal)).collect()
    })
    .await;
    let session = std::sync::Arc::new(shared(&address).await);
    for _ in 0..3 {
        let mut callers = JoinSet::new();
        for _ in 0..COUNT {
            let session = session.clone();
            callers.spawn(async move {
                let answer = session.ask(&grant(), &stat(), b"some bytes").unwrap().unwrap().await.unwrap();
                assert_eq!((answer.head.g, answer.reply), (Generation(7), done()));
                assert!(answer.payload.bytes().is_empty());
            });
        }
        callers.join_all().await;
    }
    assert!(!session.has_ended());
}

#[tokio::test]
async fn it_goes_on_from_what_the_session_has_asked_before() {
    let address = drive(|seal| Some(answer_to(seal))).await;
    let mut session = connect(&address).await.unwrap();
    session.call(&grant(), &stat(), &[]).await.unwrap();
    session.halves().0.ask(0, &grant(), &stat(), &[]).await.unwrap();
    let mut session = *session.share().expect_err("a request is in flight");
    session.halves().1.next().await.unwrap();
    let session = session.share().expect("nothing is in flight");
    session.ask(&grant(), &stat(), &[]).unwrap().unwrap().await.unwrap();
}

#[tokio::test]
async fn too_much_is_for_another_session() {
    let address = drive(|_| None).await;
    let session = shared(&address).await;
    let large = vec![0; usize::try_from(SHARED_PAYLOAD_BYTES_MAX).unwrap() + 1];
    assert!(session.ask(&grant(), &stat(), &large).unwrap().is_none());
    let mut askings = Vec::new();
    while let Some(asking) = session.ask(&grant(), &stat(), &[]).unwrap() {
        askings.push(asking);
        assert!(askings.len() < 256, "a drive takes no more");
    }
    drop(askings);
    assert!(session.ask(&grant(), &stat(), &[]).unwrap().is_none(), "they are still with the drive");
}

#[tokio::test]
async fn an_overdue_answer_fails_alone_and_a_dropped_wait_harms_nobody() {
    let address = drive(|seal| (seal.request() != 1).then(|| answer_to(seal))).await;
    let session = DriveSession::connect(&address, DRIVE, CLUSTER, &brief()).await.unwrap();
    let session = session.share().expect("nothing is in flight");
    let silent = session.ask(&grant(), &stat(), &[]).unwrap().unwrap();
    drop(session.ask(&grant(), &stat(), &[]).unwrap().unwrap());
    session.ask(&grant(), &stat(), &[]).unwrap().unwrap().await.unwrap();
    let error = silent.await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { what: "for an answer", .. }), "{error}");
    session.ask(&grant(), &stat(), &[]).unwrap().unwrap().await.unwrap();
}

#[tokio::test]
async fn wrong_answers_end_the_session_for_all() {
    let twice = drive_of(|seal| vec![answer_to(&seal), answer_to(&seal)]).await;
    let forged = drive(|seal| {
        let (kind, request, mut body) = answer_to(seal);
        body[6] ^= 1;
        Some((kind, request, body))
    })
    .await;
    for address in [twice, forged] {
        let session = shared(&address).await;
        let mut error = None;
        for _ in 0..3 {
            match session.ask(&grant(), &stat(), &[]) {
                Ok(asking) => error = asking.unwrap().await.err().or(error),
                Err(ended) => error = Some(ended),
            }
        }
        let error = error.expect("it is noticed");
        assert!(matches!(error, TransportError::Unexpected { .. }), "{error}");
        assert!(session.has_ended());
    }
}

#[tokio::test]
async fn who_waits_is_told_when_the_peer_has_gone() {
    let address = peer(async |mut sender, mut receiver| {
        let hello = hello(braid_wire::data::PeerRole::Drive);
        sender.send(braid_wire::data::HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        receiver.frame().await.unwrap();
    })
    .await;
    let session = shared(&address).await;
    let first = session.ask(&grant(), &stat(), &[]).unwrap();
    let second = session.ask(&grant(), &stat(), &[]).unwrap();
    for asking in [first, second] {
        let error = asking.unwrap().await.unwrap_err();
        assert!(matches!(error, TransportError::Closed { .. }), "{error}");
    }
    assert!(session.ask(&grant(), &stat(), &[]).is_err() && session.has_ended());
}

#[tokio::test]
async fn what_was_asked_is_answered_after_the_session_is_dropped() {
    let address = drive(|seal| Some(answer_to(seal))).await;
    let session = shared(&address).await;
    let asking = session.ask(&grant(), &stat(), &[]).unwrap().unwrap();
    drop(session);
    assert_eq!(asking.await.unwrap().reply, DriveReply::from(braid_wire::data::Done {}));
}
