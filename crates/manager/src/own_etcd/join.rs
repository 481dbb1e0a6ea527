//! Hosts that become managers, and managers that leave.

use std::sync::Arc;

use braid_layout::{DriveId, TokenId};
use braid_meta::records::schema::TokenRecord;
use braid_meta::records::tx::Tx;
use braid_meta::tree::tokens;
use braid_wire::control::{AddManager, EtcdPeer, ManagerAdded, PATH_BYTES_MAX};
use braid_wire::{Reason, Refusal};

use super::OwnEtcd;
use super::plan::{self, Add};
use super::{calls, plan::Member};
use crate::core::Core;

/// Adds a host. Its token is used by this; a repeat by the same host is answered alike, so that one that died
/// halfway can go on.
pub(crate) async fn add(
    core: &Arc<Core>,
    host: DriveId,
    token: TokenId,
    add: AddManager,
) -> Result<ManagerAdded, Refusal> {
    let own = own(core)?;
    check("address", &add.address)?;
    check("address of its etcd", &add.peer)?;
    let _one = core.changing_members.lock().await;
    let members = calls::look(&own.access).await?;
    let decided = plan::add(&members, &add.address, &add.peer)?;
    // First the token: a second host with it must find it used.
    let use_token = move |core: &Core, tx: &mut Tx| tokens::handle_join(tx, token, host, core.now_ms());
    let used = move |core: &Core, record: &TokenRecord| core.tokens().put(token, record.clone());
    core.write_then(use_token, used).await?;
    if decided == Add::Anew {
        calls::add_learner(&own.access, &add.peer).await?;
        tracing::info!(manager = %add.address, peer = %add.peer, "a manager joins");
    }
    core.wake.notify_waiters();
    let members = calls::look(&own.access).await?;
    let peer = |member: Member| {
        let name = if member.peer == add.peer { add.address.clone() } else { member.name };
        EtcdPeer { name, peer: member.peer, client: member.client }
    };
    Ok(ManagerAdded {
        authority: own.authority.key.clone(),
        certificate: own.authority.certificate.clone(),
        members: members.into_iter().map(peer).collect(),
    })
}

/// Takes a manager out that is lost.
pub(crate) async fn remove(core: &Arc<Core>, address: &str) -> Result<(), Refusal> {
    let own = own(core)?;
    let _one = core.changing_members.lock().await;
    let members = calls::look(&own.access).await?;
    let lost = plan::remove(&members, address)?;
    calls::remove(&own.access, lost.id).await?;
    core.managers().handle_removed(lost.shown());
    tracing::info!(manager = %lost.shown(), "a manager was taken out of the cluster");
    Ok(())
}

/// The etcd that Braid runs.
fn own(core: &Core) -> Result<&OwnEtcd, Refusal> {
    core.own_etcd.as_ref().ok_or_else(|| {
        let detail = "this cluster's state is not in an etcd that braid runs, so hosts cannot join it: braid cluster init \
                      begins one that they can";
        Refusal::new(Reason::Unsupported, detail)
    })
}

/// Refuses what is no address of a host.
fn check(what: &str, address: &str) -> Result<(), Refusal> {
    let parts = address.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port != 0)
            && !host.contains([',', '=', '/', ' '])
    });
    if parts.is_some() && address.len() <= PATH_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::Malformed,
        format!("the manager's {what} is {address:?}, and must be HOST:PORT"),
    ))
}
