//! The client whose request a task carries out.

use std::future::Future;

tokio::task_local! {
    static ASKER: u64;
}

/// Who sent the request that this task carries out; 0: nobody, or one that did not say.
pub(crate) fn asker() -> u64 {
    ASKER.try_with(|asker| *asker).unwrap_or(0)
}

/// Carries out a request of this client.
pub(crate) async fn asked_by<T>(asker: u64, work: impl Future<Output = T>) -> T {
    ASKER.scope(asker, work).await
}
