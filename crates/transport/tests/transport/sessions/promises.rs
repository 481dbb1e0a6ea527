//! Sessions by datagrams under capabilities that promise a rate.

use std::time::{Duration, Instant};

use braid_datagram::policy::Kind;
use braid_datagram::{Config, Settings};
use braid_layout::ReservationId;
use braid_transport::{DriveSession, Limits, session_config};
use braid_wire::capability::{Capability, DataDirection, Promise};
use braid_wire::control::Grant;

use super::common::*;

/// Bound on what must happen some time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A capability that promises writes at this rate.
fn promised(rate: u64) -> Grant {
    let promise = Promise {
        reservation: ReservationId(1),
        direction: DataDirection::Write,
        rate,
        burst: 0,
        operation_bytes: 1,
        until_ms: u64::MAX,
    };
    let capability = Capability { promise, ..grant().capability };
    Grant { private: working_key().private_part(&capability), capability }
}

/// A session with a drive that answers each request. Its bursts have at most ten datagrams of 1200 bytes.
async fn session() -> DriveSession {
    let address = drive(|seal| Some(answer_to(seal))).await;
    let limits = Limits { connect: PATIENCE, stall: PATIENCE, reply: PATIENCE, ..limits() };
    let config = session_config(Kind::Cubic);
    let settings = Settings { datagram_bytes_max: 1200, ..config.settings };
    let config = Config { settings, ..config };
    DriveSession::connect_by_datagrams(&address, DRIVE, CLUSTER, &limits, &grant(), config).await.unwrap()
}

/// A promised rate bounds the time from below: a busy machine cannot break that.
#[tokio::test]
async fn writes_keep_to_the_rate_that_is_promised() {
    let mut session = session().await;
    let payload = vec![1; 1_000_000];
    let began = Instant::now();
    // The second is answered when all of the first has come.
    for _ in 0..2 {
        session.call(&promised(1_000_000), &stat(), &[&payload]).await.unwrap();
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(700), "1 MB at 1.25 MB/s came in {took:?}");
}

/// At a byte a second all beyond the first burst would take hours.
#[tokio::test]
async fn small_requests_that_share_a_session_keep_to_no_rate_of_before() {
    let mut session = session().await;
    session.call(&promised(1), &stat(), &[]).await.unwrap();
    let session = session.share().expect("nothing is in flight");
    for _ in 0..2 {
        session.ask(&grant(), &stat(), &[1; 16 << 10]).unwrap().expect("it is small").await.unwrap();
    }
}
