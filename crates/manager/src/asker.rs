//! The client whose request a task carries out, its token and its wire version.

use std::future::Future;
use std::sync::Arc;

use braid_layout::{ClientId, TokenId};
use braid_meta::tokens::access::Access;
use braid_wire::frame::WIRE_VERSION_OLDEST;

tokio::task_local! {
    static ASKER: (ClientId, TokenId, Option<Arc<Access>>);
    static VERSION: u16;
}

/// The newest wire version that the sender of this task's request speaks; the oldest that any peer speaks, if
/// that is not known.
pub(crate) fn asker_version() -> u16 {
    VERSION.try_with(|version| *version).unwrap_or(WIRE_VERSION_OLDEST)
}

/// Does the work of a request of a peer that speaks this wire version.
pub(crate) async fn asked_in<T>(version: u16, work: impl Future<Output = T>) -> T {
    VERSION.scope(version, work).await
}

/// The client that sent the request of this task; none: there is none, or one that did not give its number.
pub(crate) fn asker() -> ClientId {
    ASKER.try_with(|asker| asker.0).unwrap_or(ClientId::NONE)
}

/// The token of the session in which the request of this task came; none: a drive's, or no request.
pub(crate) fn asker_token() -> TokenId {
    ASKER.try_with(|asker| asker.1).unwrap_or(TokenId::NONE)
}

/// The limits of that token, to which this task's transactions keep; `None`: it has none.
pub(crate) fn asker_access() -> Option<Arc<Access>> {
    ASKER.try_with(|asker| asker.2.clone()).unwrap_or_default()
}

/// Does the work of a request of this client, in a session with this token of these limits.
pub(crate) async fn asked_by<T>(
    asker: ClientId,
    token: TokenId,
    access: Option<Arc<Access>>,
    work: impl Future<Output = T>,
) -> T {
    ASKER.scope((asker, token, access), work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_version_that_is_not_known_is_the_oldest() {
        assert_eq!(asker_version(), WIRE_VERSION_OLDEST);
        assert_eq!(asked_in(7, async { asker_version() }).await, 7);
        let elsewhere = asked_in(7, async { tokio::spawn(async { asker_version() }).await });
        assert_eq!(
            elsewhere.await.expect("it ends"),
            WIRE_VERSION_OLDEST,
            "a task that does not take it along"
        );
    }
}
