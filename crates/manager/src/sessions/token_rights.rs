//! What a token allows in its sessions, and when these end.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, TokenId, VolumeId};
use braid_meta::records::schema::TokenRecord;
use braid_meta::tokens::access::Access;
use braid_meta::tokens::permissions::Act;
use braid_meta::tokens::rights::{self, Right};
use braid_meta::tree::{reach, tokens};
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
    id: TokenId,
    token: &Arc<TokenRecord>,
    request: &ControlRequest,
) -> Result<(), Refusal> {
    if token.role == TokenRole::Admin {
        return Ok(());
    }
    let name = request.name();
    let need = rights::need(request);
    rights::allowed_at_all(token, name, need.right)?;
    let access = Access::of(token);
    if token.volumes.is_none() && access.is_none() || need.places.is_empty() {
        return Ok(());
    }
    let token = Arc::clone(token);
    core.read(move |core, tx| {
        rights::allowed(&token, name, &need, |place| tokens::volume_of(tx, place))?;
        let Some(access) = access else { return Ok(()) };
        let act = if need.right == Right::Write { Act::Write } else { Act::Read };
        let had = |file| core.opened_with().has(id, file);
        need.places.iter().try_for_each(|place| reach::may_be_at(tx, &access, act, place, had))
    })
    .await
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
    let urls = core.read(move |_, tx| match token.below.as_slice() {
        [] => {
            let known = tokens::volumes_of(tx, &token)?;
            Ok(known.into_iter().map(|volume| format!("braid://{}", volume.name)).collect())
        }
        below => reach::urls(tx, below),
    });
    let urls: Vec<String> = urls.await?;
    Ok(rights::shown(&volumes, &urls, reply))
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
