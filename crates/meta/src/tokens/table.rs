//! The tokens, as sessions see them. A pure machine: time is a parameter.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{DriveId, TokenId};
use braid_wire::token::TokenRole;
use braid_wire::{Reason, Refusal};

use crate::records::schema::TokenRecord;

/// The tokens of a manager, and how many sessions are open with each.
#[derive(Debug, Default)]
pub struct TokenTable {
    known: BTreeMap<TokenId, Arc<TokenRecord>>,
    sessions: BTreeMap<TokenId, u32>,
}

impl TokenTable {
    /// The token is on record so.
    pub fn put(&mut self, token: TokenId, record: TokenRecord) {
        self.known.insert(token, Arc::new(record));
    }

    /// The token is on record no more.
    pub fn forget(&mut self, token: TokenId) {
        self.known.remove(&token);
    }

    /// The token of this number, valid or not. Who does not know its secret is not told more.
    pub fn find(&self, token: TokenId) -> Result<Arc<TokenRecord>, Refusal> {
        self.known.get(&token).cloned().ok_or_else(|| {
            let detail = "the cluster has no such token (it may have been revoked long ago): ask an admin for a new one \
                          (braid token new)";
            Refusal::new(Reason::BadToken, detail)
        })
    }

    /// All tokens, by number.
    pub fn all(&self) -> Vec<(TokenId, TokenRecord)> {
        self.known.iter().map(|(id, record)| (*id, TokenRecord::clone(record))).collect()
    }

    /// Ok if the token may be used now: for a token to join by this drive or manager.
    pub fn check(&self, token: TokenId, drive: DriveId, now_ms: u64) -> Result<Arc<TokenRecord>, Refusal> {
        let record = self.find(token)?;
        usable(&record, drive, now_ms)?;
        Ok(record)
    }

    /// Manager time at which the token ends; 0 if it is over or not known.
    pub fn until_ms(&self, token: TokenId) -> u64 {
        let valid = self.known.get(&token).filter(|record| record.revoked_ms == 0);
        valid.map_or(0, |record| record.until_ms())
    }

    /// A session with the token has begun.
    pub fn begin_session(&mut self, token: TokenId) {
        *self.sessions.entry(token).or_default() += 1;
    }

    /// A session with the token has ended.
    pub fn end_session(&mut self, token: TokenId) {
        let left = self.sessions.get(&token).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            self.sessions.remove(&token);
        } else {
            self.sessions.insert(token, left);
        }
    }

    /// Number of sessions that are open with the token.
    pub fn sessions(&self, token: TokenId) -> u32 {
        self.sessions.get(&token).copied().unwrap_or_default()
    }
}

/// Ok if a token may be used now; the refusal says what to do about it.
pub fn usable(record: &TokenRecord, drive: DriveId, now_ms: u64) -> Result<(), Refusal> {
    let name = &record.name;
    let new = format!("braid token new {name} --role {}", record.role.word());
    let refused = |why: &str, new: &str| {
        let detail = format!("token {name:?} {why}: ask an admin for a new one ({new})");
        Err(Refusal::new(Reason::BadToken, detail))
    };
    if record.revoked_ms != 0 {
        return refused("was revoked", &new);
    }
    if now_ms >= record.until_ms() {
        return refused("has expired", &format!("braid token revoke {name}, then {new}"));
    }
    if record.single_use && record.used_by != DriveId(0) && record.used_by != drive {
        let role = record.role.word();
        // The number of a manager's host is known to nobody.
        let other = match record.role {
            TokenRole::Drive => format!("drive {}", record.used_by.short()),
            _ => format!("another {role}"),
        };
        let detail = format!(
            "token {name:?} is for one {role}, and {other} has joined with it: ask an admin for another one for this \
             {role} (braid token new NAME --role {role})"
        );
        return Err(Refusal::new(Reason::BadToken, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_wire::capability::Key;

    use super::*;

    fn record(role: TokenRole) -> TokenRecord {
        TokenRecord {
            name: "film".into(),
            role,
            secret: Key::new([1; 32]),
            volumes: None,
            below: Vec::new(),
            user: None,
            read_only: false,
            single_use: role == TokenRole::Drive,
            used_by: DriveId(0),
            made_ms: 1,
            expires_s: 0,
            revoked_ms: 0,
        }
    }

    #[test]
    fn a_token_is_usable_until_it_ends_and_each_refusal_names_what_mends_it() {
        let says = |record: &TokenRecord, drive, now_ms, words: &[&str]| {
            let refusal = usable(record, DriveId(drive), now_ms).expect_err("refused");
            assert_eq!(refusal.reason, Reason::BadToken);
            words.iter().for_each(|word| assert!(refusal.detail.contains(word), "{word:?} in {refusal}"));
        };
        let client = record(TokenRole::Client);
        assert_eq!(usable(&client, DriveId(0), u64::MAX - 1), Ok(()), "it has no end");
        let ends = TokenRecord { expires_s: 5, ..client.clone() };
        assert_eq!(usable(&ends, DriveId(0), 4999), Ok(()));
        says(
            &ends,
            0,
            5000,
            &["has expired", "braid token revoke film, then braid token new film --role client"],
        );
        let revoked = TokenRecord { revoked_ms: 3, ..client };
        says(&revoked, 0, 4, &["was revoked", "braid token new film"]);
        let drive = record(TokenRole::Drive);
        assert_eq!(usable(&drive, DriveId(9), 1), Ok(()));
        let used = TokenRecord { used_by: DriveId(9), ..drive };
        assert_eq!(usable(&used, DriveId(9), 1), Ok(()), "it may have lost the answer");
        says(&used, 8, 1, &["is for one drive", "braid token new NAME --role drive"]);
        let many = TokenRecord { single_use: false, ..used };
        assert_eq!(usable(&many, DriveId(8), 1), Ok(()));
    }

    #[test]
    fn a_table_knows_what_is_on_record_and_counts_sessions() {
        let mut table = TokenTable::default();
        let id = TokenId(5);
        assert!(table.find(id).expect_err("none").detail.contains("braid token new"));
        table.put(id, TokenRecord { expires_s: 5, ..record(TokenRole::Client) });
        assert!(table.check(id, DriveId(0), 4999).is_ok() && table.check(id, DriveId(0), 5000).is_err());
        assert_eq!(table.until_ms(id), 5000);
        table.begin_session(id);
        table.begin_session(id);
        table.end_session(id);
        assert_eq!(table.sessions(id), 1);
        table.end_session(id);
        table.end_session(id);
        assert_eq!((table.sessions(id), table.sessions.len()), (0, 0));
        table.put(id, TokenRecord { revoked_ms: 1, ..record(TokenRole::Client) });
        assert_eq!(table.until_ms(id), 0);
        table.forget(id);
        assert!(table.find(id).is_err());
    }
}
