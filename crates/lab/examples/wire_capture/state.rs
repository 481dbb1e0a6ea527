//! The secrets and names in a backup of the manager (docs/format-manager.md).

use braid_meta::records::schema::{
    AuthorityRecord, ClusterRecord, DriveRecord, SnapshotRecord, TokenRecord, VolumeRecord,
};
use braid_wire::Wire;

use crate::Result;
use crate::needles::Needles;

/// The shortest name that is looked for: a shorter one could be there by chance.
const NAME_MIN: usize = 8;

/// Looks for all of them.
pub(crate) fn all_of(backup: &[u8], needles: &mut Needles) -> Result<()> {
    let mut input = backup.strip_prefix(b"BRAIDMB\x03").ok_or("it is no backup of this release")?;
    let mut names = 0;
    while let Some(key) = row_part(&mut input)? {
        let value = row_part(&mut input)?.ok_or("the backup is cut short")?;
        let [version, fields @ ..] = value else { return Err("a row without a version".into()) };
        if *version != 3 {
            return Err(format!("a row is of version {version}").into());
        }
        let mut fields = fields;
        let mut found = Vec::new();
        match key {
            b"mcluster" => {
                let record = ClusterRecord::take(&mut fields)?;
                needles.secret(true, "of the first admin's token", record.client_secret.secret())?;
                needles.secret(true, "of the first join token", record.join_secret.secret())?;
            }
            b"mauthority" => {
                let record = AuthorityRecord::take(&mut fields)?;
                needles.secret(true, "key of the certificate authority", record.key.secret())?;
            }
            [b'A', ..] => {
                let record = TokenRecord::take(&mut fields)?;
                needles.secret(true, &format!("of the token {}", record.name), record.secret.secret())?;
                found.push(record.name.into_bytes());
            }
            [b'D', ..] => {
                let record = DriveRecord::take(&mut fields)?;
                needles.secret(true, &format!("master key of {}", record.name), record.master.secret())?;
                found.extend([record.name, record.host, record.directory].map(String::into_bytes));
            }
            // The wrapped key, which begins after the name of the key that wraps it.
            [b'J', ..] => {
                let id = String::take(&mut fields)?;
                let wrapped = Vec::<u8>::take(&mut fields)?;
                needles.secret(true, &format!("data key wrapped by {id}"), &wrapped)?;
            }
            [b'v', ..] => found.push(VolumeRecord::take(&mut fields)?.name.into_bytes()),
            [b'S', ..] => found.push(SnapshotRecord::take(&mut fields)?.name.into_bytes()),
            [b'd', name @ ..] => found.push(name.get(8..).unwrap_or_default().to_vec()),
            _ => {}
        }
        for name in found.iter().filter(|name| name.len() >= NAME_MIN) {
            needles.name(true, name)?;
            names += 1;
        }
    }
    if names == 0 { Err("the backup has no name that is long enough".into()) } else { Ok(()) }
}

/// The next key or value; `None`: there are no more rows.
fn row_part<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>> {
    let length = u32::take(input)?;
    if length == u32::MAX {
        return Ok(None);
    }
    let length = usize::try_from(length)?;
    let (part, rest) = input.split_at_checked(length).ok_or("the backup is cut short")?;
    *input = rest;
    Ok(Some(part))
}
