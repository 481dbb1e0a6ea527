//! What a token allows in its sessions, and when these end.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, TokenId, VolumeId};
use braid_meta::records::schema::TokenRecord;
use braid_meta::tokens::rights;
use braid_meta::tree::tokens;
use braid_wire::Refusal;
use braid_wire::control::{ControlReply, ControlRequest};
use braid_wire::token::TokenRole;
use tokio::time::timeout;

use crate::core::Core;

/// Interval between two looks at whether a session's token has expired: the manager's clock may pause.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Ok if a session with this token may send the request.
pub(crate) async fn may(
    core: &Arc<Core>,
    token: &Arc<TokenRecord>,
    request: &ControlRequest,
) -> Result<(), Refusal> {
    if token.role == TokenRole::Admin {
        return Ok(());
    }
    let name = request.name();
    let need = rights::need(request);
    rights::allowed_at_all(token, name, need.right)?;
    if token.volumes.is_none() || need.places.is_empty() {
        return Ok(());
    }
    let token = Arc::clone(token);
    core.read(move |_, tx| rights::allowed(&token, name, &need, |place| tokens::volume_of(tx, place))).await
}

/// An answer as a session with this token is shown it.
pub(crate) async fn shown(
    core: &Arc<Core>,
    token: &TokenRecord,
    reply: ControlReply,
) -> Result<ControlReply, Refusal> {
    let Some(volumes) = rights::seen(token).map(<[VolumeId]>::to_vec) else { return Ok(reply) };
    if !rights::has_rows_of_volumes(&reply) {
        return Ok(reply);
    }
    let token = token.clone();
    let known = core.read(move |_, tx| tokens::volumes_of(tx, &token)).await?;
    let names: Vec<String> = known.into_iter().map(|volume| volume.name).collect();
    Ok(rights::shown(&volumes, &names, reply))
}

/// Manager time at which capabilities end that are made in a session with this token; the highest number:
/// they have their usual time. A token that is over gets none.
pub(crate) fn until_ms(core: &Core, token: TokenId) -> Result<u64, Refusal> {
    if token == TokenId::NONE {
        return Ok(u64::MAX);
    }
    let now_ms = core.now_ms();
    Ok(core.tokens().check(token, DriveId(0), now_ms)?.until_ms())
}

/// Waits until the token may not be used any more; for ever, if the session has none.
pub(crate) async fn is_over(core: &Core, token: TokenId) {
    if token == TokenId::NONE {
        return std::future::pending().await;
    }
    loop {
        let ends = core.token_ends.notified();
        let mut ends = std::pin::pin!(ends);
        ends.as_mut().enable();
        let until_ms = core.tokens().until_ms(token);
        let left_ms = until_ms.saturating_sub(core.now_ms());
        if left_ms == 0 {
            return;
        }
        if until_ms == u64::MAX {
            ends.await;
        } else {
            let _ = timeout(LOOK_EVERY.min(Duration::from_millis(left_ms)), ends).await;
        }
    }
}

/// A session with a token, counted as long as this is there.
pub(crate) struct Counted {
    core: Arc<Core>,
    token: TokenId,
}

impl Counted {
    /// Counts a session with this token.
    pub(crate) fn new(core: &Arc<Core>, token: TokenId) -> Counted {
        core.tokens().begin_session(token);
        Counted { core: Arc::clone(core), token }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.core.tokens().end_session(self.token);
    }
}
