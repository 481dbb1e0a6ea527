//! Tokens on record: their making, their use by drives, their end. Each function is the work of one
//! transaction.
//!
//! There is always an admin's token that does not expire, and one with which any number of drives may join:
//! the manager makes them where they are missing. A token that was revoked stays on record for a while, so
//! that its holder is told what happened.

use braid_layout::{DriveId, FileId, TokenId, VolumeId};
use braid_wire::capability::Key;
use braid_wire::control::{GROUPS_MAX, NamePlace, TokenNew, TokenRow, TokenState};
use braid_wire::token::TokenRole;
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::schema::{
    ClusterRecord, DriveRecord, ReservationRecord, TokenRecord, VolumeRecord, key, table,
};
use crate::records::tx::Tx;
use crate::tokens::rights::Place;
use crate::tokens::table::usable;
use crate::tree::names::{check_label, show};
use crate::tree::snapshots::{place_of, root_at};
use crate::tree::{doors, keys, seen, volumes};

/// Maximum number of tokens that are not revoked.
pub const TOKENS_MAX: usize = 10_000;
/// Maximum number of revoked tokens that are kept; beyond it, those that have been for longest are forgotten.
pub const REVOKED_MAX: usize = 1000;
/// Maximum number of volumes that a token names.
pub const VOLUMES_EACH_MAX: usize = 64;
/// Maximum number of directories that a token names.
pub const DIRECTORIES_EACH_MAX: usize = 16;
/// Maximum number of rows in one answer: with the longest names they fit a frame.
pub const ROWS_MAX: usize = 100;

/// Numbers and secrets for tokens that the manager makes: random, drawn by the caller.
pub struct Drawn {
    /// A number for each token.
    pub ids: [u64; 2],
    /// A secret for each token.
    pub secrets: [Key; 2],
}

/// All tokens, by number.
pub fn all(tx: &Tx) -> Result<Vec<(TokenId, TokenRecord)>, Refusal> {
    let rows = tx.records::<TokenRecord>(&key::all(table::TOKEN), usize::MAX)?;
    Ok(rows.into_iter().map(|(row, record)| (TokenId(key::number(&row, 1)), record)).collect())
}

/// Makes an admin's token and a token with which drives join, where there is none. The first ones have the
/// cluster's own secrets.
pub fn complete(tx: &mut Tx, cluster: &ClusterRecord, drawn: &Drawn, now_ms: u64) -> Result<(), Refusal> {
    let known = all(tx)?;
    let [admin_id, join_id] = drawn.ids.map(TokenId);
    let [admin, join] = &drawn.secrets;
    let first = |of: &Key, secret: &Key| if known.is_empty() { of.clone() } else { secret.clone() };
    if standing_admin(&known).is_none() {
        let secret = first(&cluster.client_secret, admin);
        add(tx, admin_id, &free_name(&known, "admin"), TokenRole::Admin, secret, now_ms);
    }
    if standing_join(&known).is_none() {
        let secret = first(&cluster.join_secret, join);
        add(tx, join_id, &free_name(&known, "join"), TokenRole::Drive, secret, now_ms);
    }
    Ok(())
}

/// The oldest admin's token that does not expire.
pub fn standing_admin(known: &[(TokenId, TokenRecord)]) -> Option<&(TokenId, TokenRecord)> {
    let is_one = |record: &TokenRecord| record.role == TokenRole::Admin && record.is_lasting();
    known.iter().filter(|(_, record)| is_one(record)).min_by_key(|(id, record)| (record.made_ms, *id))
}

/// The oldest token with which any number of drives may join.
pub fn standing_join(known: &[(TokenId, TokenRecord)]) -> Option<&(TokenId, TokenRecord)> {
    let is_one =
        |record: &TokenRecord| record.role == TokenRole::Drive && record.is_lasting() && !record.single_use;
    known.iter().filter(|(_, record)| is_one(record)).min_by_key(|(id, record)| (record.made_ms, *id))
}

fn add(tx: &mut Tx, id: TokenId, name: &str, role: TokenRole, secret: Key, now_ms: u64) {
    let record = TokenRecord {
        name: name.to_owned(),
        role,
        secret,
        volumes: None,
        below: Vec::new(),
        user: None,
        read_only: false,
        single_use: false,
        used_by: DriveId(0),
        made_ms: now_ms,
        expires_s: 0,
        revoked_ms: 0,
    };
    tx.set(key::token(id), &record);
}

/// The name, or the name with the first number that no token has.
fn free_name(known: &[(TokenId, TokenRecord)], name: &str) -> String {
    let taken = |name: &String| known.iter().any(|(_, it)| it.name == *name && it.revoked_ms == 0);
    let numbered = (2u64..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}

/// Makes a token.
pub fn make(tx: &mut Tx, new: &TokenNew, now_ms: u64) -> Result<TokenRecord, Refusal> {
    check_label("token", &new.name)?;
    let limits = new.volumes.is_some() || !new.below.is_empty() || new.user.is_some() || new.read_only;
    if limits && new.role != TokenRole::Client {
        let role = new.role.word();
        let detail = format!(
            "volumes, directories, a user and read-only are for clients' tokens; this is to be for role {role}"
        );
        return Err(Refusal::new(Reason::Range, detail));
    }
    if new.user.as_ref().is_some_and(|user| !(1..=GROUPS_MAX).contains(&user.gids.len())) {
        let detail = format!("a token's user is in from 1 to {GROUPS_MAX} groups");
        return Err(Refusal::new(Reason::Range, detail));
    }
    let known = all(tx)?;
    let valid: Vec<&TokenRecord> =
        known.iter().map(|(_, record)| record).filter(|record| record.revoked_ms == 0).collect();
    if let Some(other) = valid.iter().find(|record| record.name == new.name) {
        let is_over = if other.is_valid(now_ms) { "" } else { " (it has expired)" };
        let name = &new.name;
        let detail = format!(
            "there is a token {name:?}{is_over}: choose another name, or end that one first (braid token revoke {name})"
        );
        return Err(Refusal::new(Reason::Exists, detail));
    }
    if new.id == TokenId::NONE || known.iter().any(|(id, _)| *id == new.id) {
        return Err(Refusal::new(Reason::Exists, "the token's number is not new: ask again"));
    }
    if valid.len() >= TOKENS_MAX {
        let detail = format!("a cluster has at most {TOKENS_MAX} tokens: revoke some (braid token ls)");
        return Err(Refusal::new(Reason::Quota, detail));
    }
    let volumes = match &new.volumes {
        Some(names) if names.is_empty() || names.len() > VOLUMES_EACH_MAX => {
            let detail = format!("a token names from 1 to {VOLUMES_EACH_MAX} volumes, or is for all");
            return Err(Refusal::new(Reason::Range, detail));
        }
        Some(names) => {
            let numbers = names.iter().map(|name| Ok(volumes::find(tx, name)?.volume));
            Some(numbers.collect::<Result<Vec<VolumeId>, Refusal>>()?)
        }
        None => None,
    };
    let (below, volumes) = match new.below.is_empty() {
        true => (Vec::new(), volumes),
        false => directories_of(tx, &new.below, volumes.as_deref()).map(|(below, of)| (below, Some(of)))?,
    };
    let record = TokenRecord {
        name: new.name.clone(),
        role: new.role,
        secret: new.secret.clone(),
        volumes,
        below,
        user: new.user.clone(),
        read_only: new.read_only,
        single_use: matches!(new.role, TokenRole::Drive | TokenRole::Manager),
        used_by: DriveId(0),
        made_ms: now_ms,
        expires_s: match new.lasts_s {
            0 => 0,
            lasts_s => (now_ms / 1000).saturating_add(lasts_s),
        },
        revoked_ms: 0,
    };
    tx.set(key::token(new.id), &record);
    Ok(record)
}

/// The directories at these places, and their volumes, which must be among `allowed` if that is given.
fn directories_of(
    tx: &Tx,
    places: &[NamePlace],
    allowed: Option<&[VolumeId]>,
) -> Result<(Vec<FileId>, Vec<VolumeId>), Refusal> {
    if places.len() > DIRECTORIES_EACH_MAX {
        let detail = format!("a token names at most {DIRECTORIES_EACH_MAX} directories");
        return Err(Refusal::new(Reason::Range, detail));
    }
    let mut directories = Vec::new();
    let mut volumes = Vec::new();
    for at in places {
        let found = root_at(tx, at)?;
        let volume = found.volume.volume;
        if allowed.is_some_and(|allowed| !allowed.contains(&volume)) {
            let name = &found.volume.name;
            let detail = format!(
                "directory {:?} is in volume {name:?}, which is not among the token's: name it too, or leave the volumes out",
                show(&at.path)
            );
            return Err(Refusal::new(Reason::Range, detail));
        }
        if !directories.contains(&found.file) {
            directories.push(found.file);
        }
        if !volumes.contains(&volume) {
            volumes.push(volume);
        }
    }
    Ok((directories, volumes))
}

/// The token of a drive or manager that joins, after its use.
pub fn handle_join(tx: &mut Tx, token: TokenId, drive: DriveId, now_ms: u64) -> Result<TokenRecord, Refusal> {
    let record: Option<TokenRecord> = tx.record(&key::token(token))?;
    let gone = || Refusal::new(Reason::BadToken, "the token is gone: ask for another (braid token new)");
    let mut record = record.ok_or_else(gone)?;
    usable(&record, drive, now_ms)?;
    if record.single_use && record.used_by != drive {
        record.used_by = drive;
        tx.set(key::token(token), &record);
    }
    Ok(record)
}

/// Ends the tokens that one drive has joined with, as that drive leaves for ever: it could repeat them.
/// Returns them as they are after that.
pub fn drive_left(tx: &mut Tx, drive: DriveId, now_ms: u64) -> Result<Vec<(TokenId, TokenRecord)>, Refusal> {
    let mut ended = Vec::new();
    for (token, mut record) in all(tx)? {
        let is_its = record.role == TokenRole::Drive && record.single_use && record.used_by == drive;
        if is_its && record.revoked_ms == 0 {
            record.revoked_ms = now_ms.max(1);
            tx.set(key::token(token), &record);
            ended.push((token, record));
        }
    }
    Ok(ended)
}

/// The outcome of a revocation.
#[derive(Debug)]
pub struct Revoked {
    /// The token that was revoked.
    pub token: TokenId,
    /// The token's record after that.
    pub record: TokenRecord,
    /// Tokens that are forgotten for it.
    pub forgotten: Vec<TokenId>,
}

/// Ends the token of this name, and turns the keys of all volumes in which capabilities may be in use that
/// were made for it. The last admin's token that does not expire stays.
pub fn revoke(tx: &mut Tx, name: &str, now_ms: u64) -> Result<Revoked, Refusal> {
    let known = all(tx)?;
    let found = known.iter().find(|(_, record)| record.name == name && record.revoked_ms == 0);
    let Some((token, record)) = found.cloned() else {
        let was = known.iter().any(|(_, record)| record.name == name);
        let why = if was { "was revoked already" } else { "is not known" };
        let detail = format!("token {name:?} {why}: braid token ls names those that are there");
        return Err(Refusal::new(Reason::NotFound, detail));
    };
    let others: Vec<(TokenId, TokenRecord)> =
        known.iter().filter(|(other, _)| *other != token).cloned().collect();
    if record.role == TokenRole::Admin && standing_admin(&others).is_none() {
        let detail = format!(
            "token {name:?} is the last admin's token that does not expire, and without one nobody could make another: \
             make another first (braid token new NAME --role admin)"
        );
        return Err(Refusal::new(Reason::NotAllowed, detail));
    }
    let record = TokenRecord { revoked_ms: now_ms.max(1), ..record };
    tx.set(key::token(token), &record);
    if !matches!(record.role, TokenRole::Drive | TokenRole::Manager) {
        for volume in volumes_of(tx, &record)? {
            keys::rotate_volume(tx, &volume.name, true, now_ms)?;
        }
    }
    let mut revoked: Vec<(u64, TokenId)> = others
        .iter()
        .filter(|(_, record)| record.revoked_ms != 0)
        .map(|(id, record)| (record.revoked_ms, *id))
        .collect();
    revoked.sort_unstable();
    let over = (revoked.len() + 1).saturating_sub(REVOKED_MAX);
    let forgotten: Vec<TokenId> = revoked.iter().take(over).map(|(_, id)| *id).collect();
    forgotten.iter().for_each(|id| tx.delete(key::token(*id)));
    Ok(Revoked { token, record, forgotten })
}

/// The volumes for which a token is, those that are there.
pub fn volumes_of(tx: &Tx, record: &TokenRecord) -> Result<Vec<VolumeRecord>, Refusal> {
    let mut all = volumes::all(tx)?;
    if let Some(only) = &record.volumes {
        all.retain(|volume| only.contains(&volume.volume));
    }
    Ok(all)
}

/// Some rows of tokens, after this number, and true if there are more. `sessions`: how many are open.
pub fn rows(
    tx: &Tx,
    after: TokenId,
    now_ms: u64,
    sessions: impl Fn(TokenId) -> u32,
) -> Result<(Vec<TokenRow>, bool), Refusal> {
    let mut known = all(tx)?;
    known.retain(|(id, _)| *id > after);
    let more = known.len() > ROWS_MAX;
    known.truncate(ROWS_MAX);
    let rows = known.into_iter().map(|(id, record)| row(tx, id, record, now_ms, sessions(id)));
    Ok((rows.collect::<Result<_, Refusal>>()?, more))
}

fn row(tx: &Tx, id: TokenId, record: TokenRecord, now_ms: u64, sessions: u32) -> Result<TokenRow, Refusal> {
    let volumes = match &record.volumes {
        Some(numbers) => {
            let name = |number: &VolumeId| match volumes::by_number(tx, *number) {
                Ok(volume) => Ok(volume.name),
                Err(refusal) if refusal.reason == Reason::NoVolume => {
                    Ok(format!("(volume {number}, removed)"))
                }
                Err(refusal) => Err(refusal),
            };
            Some(numbers.iter().map(name).collect::<Result<Vec<_>, Refusal>>()?)
        }
        None => None,
    };
    let url = |directory: &FileId| match inodes::find(tx, *directory)? {
        Some(_) => place_of(tx, *directory),
        None => Ok(format!("(directory {directory}, removed)")),
    };
    let below = record.below.iter().map(url).collect::<Result<Vec<_>, Refusal>>()?;
    let used_by = match record.used_by {
        DriveId(0) => String::new(),
        drive => {
            let known: Option<DriveRecord> = tx.record(&key::drive(drive))?;
            known.map_or_else(|| drive.to_string(), |known| known.name)
        }
    };
    let state = if record.revoked_ms != 0 {
        TokenState::Revoked
    } else if record.used_by != DriveId(0) {
        TokenState::Used
    } else if record.is_valid(now_ms) {
        TokenState::Valid
    } else {
        TokenState::Expired
    };
    let TokenRecord { name, role, user, read_only, single_use, made_ms, expires_s, .. } = record;
    Ok(TokenRow {
        id,
        name,
        role,
        volumes,
        below,
        user,
        read_only,
        single_use,
        used_by,
        made_ms,
        expires_s,
        state,
        sessions,
    })
}

/// The volume of a place that a request names; `None`: what is held or reserved there is gone.
pub fn volume_of(tx: &Tx, place: &Place) -> Result<Option<VolumeId>, Refusal> {
    match place {
        Place::Volume(name) => Ok(Some(volumes::find(tx, name)?.volume)),
        Place::Name(at) if at.from.0 == 0 => {
            let label = at.volume.split('@').next().unwrap_or_default();
            Ok(Some(volumes::find(tx, label)?.volume))
        }
        Place::Name(at) => {
            let file = doors::behind(at.from).filter(|_| at.snapshot == 0).unwrap_or(at.from);
            volume_of(tx, &Place::File(file, at.snapshot))
        }
        Place::File(file, 0) => Ok(Some(inodes::get(tx, *file)?.volume)),
        Place::File(file, snapshot) => Ok(Some(seen::volume_of(tx, *file, *snapshot)?)),
        Place::Held(file) => Ok(inodes::find(tx, *file)?.map(|inode| inode.volume)),
        Place::Reservation(reservation) => {
            let record: Option<ReservationRecord> = tx.record(&key::reservation(*reservation))?;
            Ok(record.map(|record| record.volume))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::ClusterId;
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::rules::grants::KEY_EPOCH_FIRST;

    fn drawn(seed: u8) -> Drawn {
        let id = u64::from(seed) * 10;
        Drawn { ids: [id, id + 1], secrets: [Key::new([seed; 32]), Key::new([seed + 1; 32])] }
    }

    fn cluster() -> ClusterRecord {
        ClusterRecord {
            cluster: ClusterId(1),
            client_secret: Key::new([0xc; 32]),
            join_secret: Key::new([0xd; 32]),
            created_ms: 0,
        }
    }

    fn state() -> Db {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
            volumes::create(tx, "main", shape.clone(), 0, 0)?;
            volumes::create(tx, "media", shape, 0, 0)?;
            complete(tx, &cluster(), &drawn(1), 5)
        })
        .expect("made");
        db
    }

    fn new(name: &str, id: u64) -> TokenNew {
        TokenNew {
            name: name.to_owned(),
            id: TokenId(id),
            secret: Key::new([7; 32]),
            role: TokenRole::Client,
            volumes: None,
            below: Vec::new(),
            user: None,
            read_only: false,
            lasts_s: 0,
        }
    }

    fn made(db: &Db, new: &TokenNew, now_ms: u64) -> Result<TokenRecord, Refusal> {
        db.write(|tx| make(tx, new, now_ms))
    }

    fn names(db: &Db) -> Vec<String> {
        let known = db.read(all).expect("read");
        known.into_iter().filter(|(_, it)| it.revoked_ms == 0).map(|(_, it)| it.name).collect()
    }

    #[test]
    fn the_first_tokens_have_the_clusters_secrets_and_later_ones_new_ones() {
        let db = state();
        let known = db.read(all).expect("read");
        let secret = |name: &str, known: &[(TokenId, TokenRecord)]| {
            let found = known.iter().find(|(_, it)| it.name == name && it.revoked_ms == 0);
            found.expect("there").1.secret.clone()
        };
        assert_eq!(secret("admin", &known), cluster().client_secret);
        assert_eq!(secret("join", &known), cluster().join_secret);
        db.write(|tx| complete(tx, &cluster(), &drawn(3), 6)).expect("nothing to do");
        assert_eq!(names(&db), ["admin", "join"]);
        db.write(|tx| revoke(tx, "join", 7)).expect("revoked");
        made(&db, &TokenNew { role: TokenRole::Drive, ..new("join", 77) }, 7).expect("the name is free");
        db.write(|tx| complete(tx, &cluster(), &drawn(5), 8)).expect("made anew");
        let known = db.read(all).expect("read");
        assert_eq!(secret("join-2", &known), drawn(5).secrets[1], "the one that leaked does not come back");
    }

    #[test]
    fn what_a_token_cannot_be_is_refused() {
        let db = state();
        let reason = |new: &TokenNew| made(&db, new, 9).expect_err("refused").reason;
        made(&db, &new("film", 5), 9).expect("made");
        let refusal = made(&db, &new("film", 6), 9).expect_err("twice");
        assert!(
            refusal.reason == Reason::Exists && refusal.detail.contains("braid token revoke film"),
            "{refusal}"
        );
        assert_eq!(reason(&new("other", 5)), Reason::Exists);
        assert_eq!(reason(&new("other", 0)), Reason::Exists);
        assert_eq!(reason(&new("a b", 6)), Reason::BadName);
        let of = |volumes: &[&str]| Some(volumes.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(reason(&TokenNew { volumes: of(&["none"]), ..new("other", 6) }), Reason::NoVolume);
        assert_eq!(reason(&TokenNew { volumes: of(&[]), ..new("other", 6) }), Reason::Range);
        for role in [TokenRole::Admin, TokenRole::Drive, TokenRole::Manager] {
            let limited = TokenNew { role, read_only: true, ..new("other", 6) };
            assert_eq!(reason(&limited), Reason::Range);
        }
        let lasts = TokenNew { lasts_s: 60, volumes: of(&["media"]), ..new("other", 6) };
        let record = made(&db, &lasts, 9_000).expect("made");
        assert_eq!((record.expires_s, record.volumes.as_ref().map(Vec::len)), (69, Some(1)));
        assert!(record.is_valid(68_999) && !record.is_valid(69_000));
        // An expired one keeps its name until it is revoked, and the refusal says so.
        let refusal = db.write(|tx| make(tx, &new("other", 7), 70_000)).expect_err("twice");
        assert!(refusal.detail.contains("has expired"), "{refusal}");
    }

    #[test]
    fn the_last_admin_stays_and_a_revoked_token_turns_the_keys_of_its_volumes() {
        let db = state();
        let refusal = db.write(|tx| revoke(tx, "admin", 9)).map(drop).expect_err("the last");
        assert!(refusal.detail.contains("braid token new NAME --role admin"), "{refusal}");
        let admin = TokenNew { role: TokenRole::Admin, ..new("second", 5) };
        made(&db, &TokenNew { lasts_s: 60, ..admin.clone() }, 9).expect("made");
        db.write(|tx| revoke(tx, "admin", 9)).map(drop).expect_err("the other one expires");
        let epochs =
            || db.read(keys::volume_rows).expect("read").iter().map(|row| row.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(), [KEY_EPOCH_FIRST; 2]);
        let media = Some(vec!["media".to_owned()]);
        made(&db, &TokenNew { volumes: media, ..new("film", 6) }, 9).expect("made");
        let revoked = db.write(|tx| revoke(tx, "film", 10)).expect("revoked");
        assert_eq!((revoked.token, revoked.record.is_valid(10)), (TokenId(6), false));
        assert_eq!(epochs(), [KEY_EPOCH_FIRST, KEY_EPOCH_FIRST + 2]);
        db.write(|tx| revoke(tx, "film", 10)).map(drop).expect_err("once");
        made(&db, &TokenNew { id: TokenId(8), name: "third".into(), ..admin }, 9).expect("made");
        db.write(|tx| revoke(tx, "admin", 11)).expect("there is another");
        assert_eq!(epochs(), [KEY_EPOCH_FIRST + 2, KEY_EPOCH_FIRST + 4]);
    }

    #[test]
    fn one_drive_joins_with_a_token_for_one() {
        let db = state();
        let drive = TokenNew { role: TokenRole::Drive, ..new("d", 5) };
        assert!(made(&db, &drive, 9).expect("made").single_use);
        let join = |token, drive| db.write(|tx| handle_join(tx, TokenId(token), DriveId(drive), 10));
        assert_eq!(join(5, 1).expect("the first").used_by, DriveId(1));
        assert_eq!(join(5, 1).expect("the first again").used_by, DriveId(1));
        assert_eq!(join(5, 2).expect_err("the second").reason, Reason::BadToken);
        let (many, _) = db.read(|tx| Ok(standing_join(&all(tx)?).expect("there").clone())).expect("read");
        assert_eq!(join(many.0, 1).expect("any number").used_by, DriveId(0));
        assert_eq!(join(many.0, 2).expect("any number").used_by, DriveId(0));
        let rows = db.read(|tx| rows(tx, TokenId(4), 10, |_| 3)).expect("read").0;
        let row = rows.iter().find(|row| row.name == "d").expect("listed");
        assert_eq!((row.state, row.sessions), (TokenState::Used, 3));
        // It leaves for ever: it cannot repeat the join.
        let ended = db.write(|tx| drive_left(tx, DriveId(1), 11)).expect("ended");
        assert_eq!(ended.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [5]);
        assert_eq!(join(5, 1).expect_err("revoked").reason, Reason::BadToken);
        assert_eq!(join(many.0, 1).expect("any number").used_by, DriveId(0));
    }

    #[test]
    fn revoked_tokens_are_forgotten_in_the_order_of_their_end() {
        let db = state();
        db.write(|tx| {
            let record = make(tx, &new("old", 100), 1)?;
            for at in 0..REVOKED_MAX as u64 {
                let revoked = TokenRecord { revoked_ms: at + 1, ..record.clone() };
                tx.set(key::token(TokenId(at + 100)), &revoked);
            }
            Ok(())
        })
        .expect("made");
        made(&db, &new("film", 50), 9).expect("made");
        let revoked = db.write(|tx| revoke(tx, "film", u64::MAX / 2)).expect("revoked");
        assert_eq!(revoked.forgotten, [TokenId(100)]);
    }

    #[test]
    fn the_volume_of_a_place_is_found_by_name_and_by_number() {
        let db = state();
        let of = |place: &Place| db.read(|tx| volume_of(tx, place));
        let (main, root) =
            db.read(|tx| volumes::find(tx, "main").map(|it| (it.volume, it.root))).expect("there");
        assert_eq!(of(&Place::Volume("main".into())), Ok(Some(main)));
        assert_eq!(of(&Place::Name(NamePlace::of("main@monday", "d/f"))), Ok(Some(main)));
        assert_eq!(of(&Place::Name(NamePlace::under(root, "f"))), Ok(Some(main)));
        assert_eq!(of(&Place::Name(NamePlace::under(doors::of(root), "f"))), Ok(Some(main)));
        assert_eq!(of(&Place::File(root, 0)), Ok(Some(main)));
        assert_eq!(of(&Place::Held(FileId(999))), Ok(None));
        assert_eq!(of(&Place::Reservation(braid_layout::ReservationId(9))), Ok(None));
        assert_eq!(of(&Place::File(FileId(999), 0)).expect_err("none").reason, Reason::NotFound);
        assert_eq!(of(&Place::Volume("none".into())).expect_err("none").reason, Reason::NoVolume);
    }
}
