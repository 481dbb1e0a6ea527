//! Requests about tokens.

use std::sync::Arc;

use braid_layout::{ClientId, TokenId};
use braid_meta::records::inodes;
use braid_meta::records::schema::TokenRecord;
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Once, Operation, OperationResult};
use braid_meta::tree::tokens::{self, Revoked};
use braid_wire::Refusal;
use braid_wire::control::{TokenMade, TokenNew, TokenRevoke, Tokens, TokensReply};
use braid_wire::token::TokenRole;

use crate::core::Core;
use crate::files::lapses::end_lease_alone;
use crate::sessions::keys;

/// Makes a token.
pub(crate) async fn make(
    core: &Arc<Core>,
    operation: Operation,
    by: &TokenRecord,
    new: TokenNew,
) -> Result<TokenMade, Refusal> {
    let id = new.id;
    let name = new.name.clone();
    let make = move |core: &Core, tx: &mut Tx| {
        let record = tokens::make(tx, &new, core.now_ms())?;
        Ok((OperationResult { number: record.expires_s, ..OperationResult::DONE }, record))
    };
    let made = move |core: &Core, record: &TokenRecord| core.tokens().put(id, record.clone());
    let expires_s = match core.once_then(operation, make, made).await? {
        Once::Now(record) => record.expires_s,
        Once::Before(result) => result.number,
    };
    tracing::info!(%name, by = %by.name, "a token was made");
    Ok(TokenMade { expires_s })
}

/// Lists the tokens on record.
pub(crate) async fn list(core: &Arc<Core>, asked: Tokens) -> Result<TokensReply, Refusal> {
    core.read(move |core, tx| {
        let sessions = |token| core.tokens().sessions(token);
        let (tokens, more) = tokens::rows(tx, asked.after, core.now_ms(), sessions)?;
        Ok(TokensReply { tokens, more })
    })
    .await
}

/// Ends a token. Its sessions end, and no capability is made for it, from when this is stored; its clients'
/// leases and locks end, and capabilities that they have end with the keys of its volumes.
pub(crate) async fn revoke(
    core: &Arc<Core>,
    operation: Operation,
    asked: TokenRevoke,
) -> Result<(), Refusal> {
    let name = asked.name.clone();
    let revoke = move |core: &Core, tx: &mut Tx| {
        let revoked = tokens::revoke(tx, &asked.name, core.now_ms())?;
        Ok((OperationResult { number: revoked.token.0, ..OperationResult::DONE }, revoked))
    };
    // Before any drive can hear of the keys: then no capability for the token is made with them.
    let revoked = |core: &Core, revoked: &Revoked| {
        let mut table = core.tokens();
        table.put(revoked.token, revoked.record.clone());
        revoked.forgotten.iter().for_each(|token| table.forget(*token));
        drop(table);
        core.token_ends.notify_waiters();
    };
    let token = match core.once_then(operation, revoke, revoked).await? {
        Once::Now(revoked) => revoked.token,
        Once::Before(result) => TokenId(result.number),
    };
    tracing::info!(%name, "a token was revoked");
    let joins = |role| matches!(role, TokenRole::Drive | TokenRole::Manager);
    if core.tokens().find(token).is_ok_and(|record| joins(record.role)) {
        return Ok(());
    }
    let clients = core.clients().with_token(token);
    let end_clients = async {
        for client in clients {
            keys::end_client(core, client).await?;
        }
        Ok::<(), Refusal>(())
    };
    let (ended, unheard, ()) = tokio::join!(end_clients, end_unheard(core, token), keys::tell_all(core));
    ended?;
    unheard?;
    keys::are_told(core, "the token is revoked").await
}

/// Ends the leases of holders that were not heard since the manager's start and that may be the token's: they
/// were taken with it, or it is not on record with which token.
async fn end_unheard(core: &Arc<Core>, token: TokenId) -> Result<(), Refusal> {
    let unheard = core.leases().unheard();
    let files = core.read(move |core, tx| {
        let Ok(record) = core.tokens().find(token) else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for file in unheard {
            let Some(inode) = inodes::find(tx, file)? else { continue };
            let is_in = record.volumes.as_ref().is_none_or(|volumes| volumes.contains(&inode.volume));
            let is_known = inode.has_file_alone() && inode.token != TokenId::NONE;
            if is_in && (!is_known || inode.token == token) {
                files.push(file);
            }
        }
        Ok(files)
    });
    for file in files.await? {
        let _turn = core.lock_file(file).await?;
        if core.leases().give_up_all_of(file, ClientId::NONE) {
            end_lease_alone(core, file).await?;
        }
    }
    Ok(())
}
