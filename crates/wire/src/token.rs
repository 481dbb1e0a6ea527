//! Tokens: how clients and drives prove to the manager that they belong to the cluster.
//!
//! A token is text: `braid1.ROLE.CA.ID.SECRET.EXPIRY`. ROLE is `admin`, `client`, `drive` or `manager`; CA 64
//! hex digits, the [`Pin`] by which the manager is known before anything is sent to it; ID 16 and SECRET 64
//! hex digits; EXPIRY a decimal number, the seconds since 1970 at which the token ends, 0 for never. The
//! manager goes by its own record of the token: role and expiry stand in the text for people, and for
//! programs that are to refuse a wrong one early.
//!
//! The secret crosses the wire once, within TLS: when the token is made, by the client that asks for it. From
//! then on each side proves that it knows it by an HMAC over both sides' nonces.

use std::fmt;
use std::str::FromStr;

use braid_layout::{DriveId, TokenId};
use sha2::{Digest, Sha256};

use crate::capability::{Binding, Challenge, Key};
use crate::codec::Wire;

choice! {
    /// The kind of a session with the manager.
    pub enum Standing {
        /// A client: names, opens, volumes, as far as its token's rights go.
        Client = 1,
        /// A machine that adds a drive.
        Join = 2,
        /// A drive that has joined.
        Drive = 3,
        /// A host that becomes one of the cluster's managers.
        Manager = 4,
    }
}

choice! {
    /// The role of a token: the kind of rights that it gives.
    pub enum TokenRole {
        /// All requests of clients, in all volumes.
        Admin = 1,
        /// Names, files and reservations.
        Client = 2,
        /// To join as a drive, and nothing else.
        Drive = 3,
        /// To join as a manager, and nothing else.
        Manager = 4,
    }
}

impl TokenRole {
    /// The role's word in a token's text.
    pub fn word(self) -> &'static str {
        match self {
            TokenRole::Admin => "admin",
            TokenRole::Client => "client",
            TokenRole::Drive => "drive",
            TokenRole::Manager => "manager",
        }
    }

    /// The role of this word.
    pub fn of_word(word: &str) -> Option<TokenRole> {
        TokenRole::ALL.iter().copied().find(|role| role.word() == word)
    }

    /// The kind of session for which a token of this role is.
    pub fn standing(self) -> Standing {
        match self {
            TokenRole::Admin | TokenRole::Client => Standing::Client,
            TokenRole::Drive => Standing::Join,
            TokenRole::Manager => Standing::Manager,
        }
    }
}

/// The SHA-256 of the certificate of a cluster's certificate authority: who has it knows the cluster's
/// manager by the certificate that it shows.
pub type Pin = [u8; 32];

/// The pin of a certificate authority, from its certificate in DER.
pub fn pin_of(certificate: &[u8]) -> Pin {
    Sha256::digest(certificate).into()
}

/// The parts of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The role that the token was made for.
    pub role: TokenRole,
    /// The pin of the cluster's certificate authority.
    pub pin: Pin,
    /// Number of the token in the manager's records.
    pub id: TokenId,
    /// The secret that its holder knows.
    pub secret: Key,
    /// Seconds since 1970 at which the token ends; 0: never.
    pub expires_s: u64,
}

/// The error for text that is not a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a token: it must look like braid1.ROLE.CA.ID.SECRET.EXPIRY, with ROLE admin, client, drive or manager (braid \
     token new makes one)"
)]
pub struct BadToken;

impl Token {
    /// A token that never expires, of the cluster whose certificate authority has this pin.
    pub fn lasting(role: TokenRole, pin: Pin, id: TokenId, secret: Key) -> Token {
        Token { role, pin, id, secret, expires_s: 0 }
    }

    /// The asker's proof that it knows the secret now. The proof covers this connection's hello and a new
    /// nonce.
    pub fn asker_proof(
        secret: &Key,
        binding: &Binding,
        nonce: &Challenge,
        standing: Standing,
        drive: DriveId,
    ) -> [u8; 32] {
        secret.hmac(&[b"braid asker\0", &binding.0, nonce, &standing.to_bytes(), &drive.to_bytes()])
    }

    /// The manager's proof in return, over the same hello and nonce.
    pub fn manager_proof(secret: &Key, binding: &Binding, nonce: &Challenge) -> [u8; 32] {
        secret.hmac(&[b"braid manager\0", &binding.0, nonce])
    }

    /// The master key of a drive that joins in this session. Both sides derive the key, and neither sends
    /// it.
    pub fn master_key(secret: &Key, binding: &Binding, nonce: &Challenge, drive: DriveId) -> Key {
        Key::new(secret.hmac(&[b"braid master\0", &binding.0, nonce, &drive.to_bytes()]))
    }

    /// The secret with which a joined drive proves itself in its own sessions.
    pub fn drive_secret(master: &Key) -> Key {
        master.derive("braid drive session", &[])
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "braid1.{}.", self.role.word())?;
        self.pin.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ".{}.", self.id)?;
        self.secret.secret().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ".{}", self.expires_s)
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Token, BadToken> {
        let mut parts = text.trim().split('.');
        let mut next = || parts.next().ok_or(BadToken);
        if next()? != "braid1" {
            return Err(BadToken);
        }
        let role = TokenRole::of_word(next()?).ok_or(BadToken)?;
        let pin = hex(next()?)?;
        let id = TokenId(u64::from_be_bytes(hex(next()?)?));
        let secret = Key::new(hex(next()?)?);
        let digits = next()?;
        // The standard parser also accepts a sign, and zeros before the number: one token has one text.
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number || digits.len() > 1 && digits.starts_with('0') || parts.next().is_some() {
            return Err(BadToken);
        }
        let expires_s = digits.parse().map_err(|_| BadToken)?;
        Ok(Token { role, pin, id, secret, expires_s })
    }
}

/// Bytes written as exactly that many pairs of small hex digits.
fn hex<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], BadToken> {
    // The standard parser also accepts a sign; here only digits are allowed.
    let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * BYTES || !text.bytes().all(is_hex) {
        return Err(BadToken);
    }
    let mut bytes = [0; BYTES];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| BadToken)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| BadToken)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(role: TokenRole) -> Token {
        Token {
            role,
            pin: [0xcd; 32],
            id: TokenId(0xd1),
            secret: Key::new([0xab; 32]),
            expires_s: 1_800_000_000,
        }
    }

    #[test]
    fn the_text_is_as_it_was() {
        let text = token(TokenRole::Client).to_string();
        let secret = "ab".repeat(32);
        let pin = "cd".repeat(32);
        assert_eq!(text, format!("braid1.client.{pin}.00000000000000d1.{secret}.1800000000"));
        for role in TokenRole::ALL {
            assert_eq!(token(*role).to_string().split('.').nth(1), Some(role.word()));
        }
    }

    #[test]
    fn only_a_token_is_a_token() {
        let good = token(TokenRole::Drive);
        let text = good.to_string();
        assert_eq!(text.parse(), Ok(good.clone()));
        assert_eq!(format!(" {text}\n").parse(), Ok(good.clone()));
        let never = Token { expires_s: 0, ..good };
        assert_eq!(never.to_string().parse(), Ok(never));
        for bad in [
            String::new(),
            "braid1".into(),
            text.replace("braid1", "braid2"),
            text.replace("braid1.", ""),
            text.replace("drive", "join"),
            text.replace("drive", "Drive"),
            text.replace("drive", ""),
            text.replacen(".00", ".+0", 1),
            text.replacen(".ab", ".+b", 1),
            text.replacen(".ab", ".AB", 1),
            text.replacen(".ab", ".ä", 1),
            text.replacen(".18", ".+18", 1),
            text.replacen(".18", ".-18", 1),
            text.replacen(".18", ".018", 1),
            format!("{text}."),
            format!("{text}.0"),
            format!("{text}99999999999999999999"),
            format!("{text}x"),
            text.trim_end_matches("1800000000").to_owned(),
            text.replacen('.', "..", 1),
        ] {
            assert_eq!(bad.parse::<Token>(), Err(BadToken), "{bad:?}");
        }
    }
}
