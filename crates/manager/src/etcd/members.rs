//! The members of etcd, for status.

use std::time::Duration;

use braid_wire::control::MemberRow;
use etcd_client::{AlarmAction, AlarmType};
use tokio::time::timeout;

use super::link::{Link, Member};

/// Maximum time that a member is waited for.
const WAIT: Duration = Duration::from_secs(1);

/// Asks each member how it is. A member that does not answer is named by its address for clients.
pub(super) async fn ask(link: &Link) -> Vec<MemberRow> {
    let mut rows = Vec::new();
    let mut known = Vec::new();
    let mut alarms = Vec::new();
    for member in link.members().await.iter() {
        let mut client = member.client.clone();
        if known.is_empty()
            && let Ok(Ok(list)) = timeout(WAIT, client.member_list()).await
        {
            known = list.members().to_vec();
            let found = timeout(WAIT, client.alarm(AlarmAction::Get, AlarmType::None, None)).await;
            if let Ok(Ok(found)) = found {
                let alarm = |kind| match kind {
                    AlarmType::Nospace => "NOSPACE",
                    AlarmType::Corrupt => "CORRUPT",
                    AlarmType::None => "NONE",
                };
                alarms =
                    found.alarms().iter().map(|found| (found.member_id(), alarm(found.alarm()))).collect();
            }
        }
        rows.push(status(member).await);
    }
    let of = |(id, mut row): (u64, MemberRow)| {
        if let Some(member) = known.iter().find(|member| member.id() == id) {
            row.name = member.name().to_owned();
            row.peer = member.peer_urls().first().cloned().unwrap_or_default();
        }
        row.alarms = alarms.iter().filter(|(of, _)| *of == id).map(|(_, what)| (*what).to_owned()).collect();
        row
    };
    rows.into_iter().map(of).collect()
}

async fn status(member: &Member) -> (u64, MemberRow) {
    let mut client = member.client.clone();
    let mut row = MemberRow {
        name: member.endpoint.clone(),
        peer: String::new(),
        healthy: false,
        leads: false,
        database_bytes: 0,
        alarms: Vec::new(),
    };
    let Ok(Ok(status)) = timeout(WAIT, client.status()).await else { return (0, row) };
    let id = status.header().map_or(0, |header| header.member_id());
    row.healthy = status.leader() != 0;
    row.leads = status.leader() == id;
    row.database_bytes = u64::try_from(status.db_size()).unwrap_or_default();
    (id, row)
}
