//! The client whose request a task carries out.

use std::future::Future;

tokio::task_local! {
    static ASKER: u64;
}

/// The client that sent the request of this task; 0: none, or one that did not give its number.
pub(crate) fn asker() -> u64 {
    ASKER.try_with(|asker| *asker).unwrap_or(0)
}

/// Does the work of a request of this client.
pub(crate) async fn asked_by<T>(asker: u64, work: impl Future<Output = T>) -> T {
    ASKER.scope(asker, work).await
}
