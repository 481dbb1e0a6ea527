//! The client whose request a task carries out.

use std::future::Future;

use braid_layout::ClientId;

tokio::task_local! {
    static ASKER: ClientId;
}

/// The client that sent the request of this task; none: there is none, or one that did not give its number.
pub(crate) fn asker() -> ClientId {
    ASKER.try_with(|asker| *asker).unwrap_or(ClientId::NONE)
}

/// Does the work of a request of this client.
pub(crate) async fn asked_by<T>(asker: ClientId, work: impl Future<Output = T>) -> T {
    ASKER.scope(asker, work).await
}
