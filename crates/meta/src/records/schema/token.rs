//! Tokens.

use braid_layout::{DriveId, FileId, VolumeId};
use braid_wire::capability::Key;
use braid_wire::control::TokenUser;
use braid_wire::record;
use braid_wire::token::TokenRole;

record! {
    /// A token: what its holder proves, and what it may do.
    pub struct TokenRecord {
        /// Name, for people.
        name: String,
        /// The kind of rights that it gives.
        role: TokenRole,
        /// The secret that its holder proves to know.
        secret: Key,
        /// Volumes for which a client's token is; absent: all.
        volumes: Option<Vec<VolumeId>>,
        /// Directories to which a client's token is confined, with what is below them; empty: none. The
        /// volumes are theirs then.
        below: Vec<FileId>,
        /// The user to whom a client's token is bound; absent: none.
        user: Option<TokenUser>,
        /// True if a client's token changes nothing.
        read_only: bool,
        /// True if one drive or manager may join with it, and no second one.
        single_use: bool,
        /// Drive that has joined with a token for one, or number of the host that became a manager; 0: none
        /// yet.
        used_by: DriveId,
        /// Manager time when it was made.
        made_ms: u64,
        /// Seconds since 1970, in manager time, at which it ends; 0: never.
        expires_s: u64,
        /// Manager time when it was revoked; 0: it was not.
        revoked_ms: u64,
    }
}

impl TokenRecord {
    /// Returns true if the token is neither revoked nor over at this manager time.
    pub fn is_valid(&self, now_ms: u64) -> bool {
        self.revoked_ms == 0 && now_ms < self.until_ms()
    }

    /// Manager time at which the token ends by itself, in milliseconds; the highest number: never.
    pub fn until_ms(&self) -> u64 {
        if self.expires_s == 0 { u64::MAX } else { self.expires_s.saturating_mul(1000) }
    }

    /// Returns true if the token stays until it is revoked.
    pub fn is_lasting(&self) -> bool {
        self.revoked_ms == 0 && self.expires_s == 0
    }
}
