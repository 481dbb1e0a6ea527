//! Tokens: their making, their list and their end.

use braid_layout::TokenId;

use super::names::NamePlace;
use crate::capability::Key;
use crate::token::TokenRole;

/// Maximum number of groups of a token's user.
pub const GROUPS_MAX: usize = 64;

record! {
    /// The user as whom the manager takes all requests under a token, whatever its holder claims to be.
    pub struct TokenUser {
        /// The user's number; 0: the superuser.
        uid: u32,
        /// Numbers of the user's groups, from 1 to 64 of them; what is new gets the first one.
        gids: Vec<u32>,
    }
}

record! {
    /// Makes a token. Refused with [`Exists`](crate::Reason::Exists) if a token of that name is there that
    /// was not revoked.
    pub struct TokenNew {
        /// Name of the token, for people: 1 to 64 letters, digits, `.`, `_` or `-`.
        name: String,
        /// Random number of the token, drawn by the asker.
        id: TokenId,
        /// The token's secret, drawn by the asker.
        secret: Key,
        /// The kind of rights that the token gives.
        role: TokenRole,
        /// Names of the volumes for which a client token is; absent: all volumes.
        volumes: Option<Vec<String>>,
        /// Directories to which a client token is confined, with all below them; empty: it reaches the
        /// whole of its volumes. Given, they say the volumes too.
        below: Vec<NamePlace>,
        /// The user to whom a client token is bound; absent: its holder may act as any user.
        user: Option<TokenUser>,
        /// True if a client token changes nothing.
        read_only: bool,
        /// Seconds from now to the token's end; 0: none.
        lasts_s: u64,
    }
}

record! {
    /// The answer to [`TokenNew`].
    pub struct TokenMade {
        /// Seconds since 1970 at which the token ends, by the manager's clock; 0: never.
        expires_s: u64,
    }
}

record! {
    /// Lists the tokens on record.
    pub struct Tokens {
        /// The number after which the list begins; 0: from the first token.
        after: TokenId,
    }
}

choice! {
    /// The state of a token.
    pub enum TokenState {
        /// It may be.
        Valid = 1,
        /// A drive or a manager has joined with it, and no other may.
        Used = 2,
        /// It has ended by itself.
        Expired = 3,
        /// It was revoked.
        Revoked = 4,
    }
}

record! {
    /// A token, without its secret.
    pub struct TokenRow {
        /// Number of the token.
        id: TokenId,
        /// Name of the token.
        name: String,
        /// The kind of rights that it gives.
        role: TokenRole,
        /// Names of the volumes for which it is; absent: all volumes.
        volumes: Option<Vec<String>>,
        /// URLs of the directories to which it is confined; empty: none.
        below: Vec<String>,
        /// The user to whom it is bound; absent: none.
        user: Option<TokenUser>,
        /// True if it changes nothing.
        read_only: bool,
        /// True if one drive or manager may join with it, and no second one.
        single_use: bool,
        /// Name of the drive, or number of the manager, that has joined with it; empty: none, or any number
        /// may.
        used_by: String,
        /// Manager time when it was made, in milliseconds.
        made_ms: u64,
        /// Seconds since 1970 at which it ends; 0: never.
        expires_s: u64,
        /// The state of the token.
        state: TokenState,
        /// Number of sessions that are open with it.
        sessions: u32,
    }
}

record! {
    /// The answer to [`Tokens`].
    pub struct TokensReply {
        /// Some of the tokens on record, by number: all that were not revoked, and the last ones that were.
        tokens: Vec<TokenRow>,
        /// True if there are more tokens after the last.
        more: bool,
    }
}

record! {
    /// Ends a token now, with all that is open with it: sessions, leases, locks, capabilities. Drives that
    /// have joined with it stay.
    pub struct TokenRevoke {
        /// Name of the token.
        name: String,
    }
}
