//! Tokens: how clients and drives prove to the manager that they belong to the cluster.
//!
//! A token is text: `braid-KIND-CLUSTER-SECRET-CA`, where KIND is `client` or `join`, CLUSTER 32, SECRET and
//! CA 64 hex digits. The secret never crosses the wire: each side proves that it knows it by an HMAC over
//! both sides' nonces. CA is the [`Pin`] by which the manager is known before anything is proved to it.

use std::fmt;
use std::str::FromStr;

use braid_layout::{ClusterId, DriveId};
use sha2::{Digest, Sha256};

use crate::capability::{Binding, Challenge, Key};
use crate::codec::Wire;

choice! {
    /// The kind of a session with the manager, which decides what the session may do.
    pub enum Standing {
        /// A client: names, opens, volumes.
        Client = 1,
        /// A machine that adds a drive.
        Join = 2,
        /// A drive that has joined.
        Drive = 3,
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
    /// The kind of session that the token allows: `Client` or `Join`.
    pub standing: Standing,
    /// The cluster that issued the token.
    pub cluster: ClusterId,
    /// The secret that its holder knows.
    pub secret: Key,
    /// The pin of the cluster's certificate authority.
    pub pin: Pin,
}

/// The error for text that is not a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a token: it must look like braid-client-CLUSTER-SECRET-CA or braid-join-CLUSTER-SECRET-CA; one without CA is of \
     an earlier release: take the manager's client.token or join.token anew"
)]
pub struct BadToken;

impl Token {
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
        let kind = match self.standing {
            Standing::Client => "client",
            Standing::Join => "join",
            Standing::Drive => "drive",
        };
        write!(f, "braid-{kind}-{}-", self.cluster)?;
        self.secret.secret().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-")?;
        self.pin.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Token, BadToken> {
        let mut parts = text.trim().strip_prefix("braid-").ok_or(BadToken)?.split('-');
        let standing = match parts.next() {
            Some("client") => Standing::Client,
            Some("join") => Standing::Join,
            _ => return Err(BadToken),
        };
        // The standard parsers also accept a sign; here only digits are allowed.
        let mut hex = |count| {
            parts
                .next()
                .filter(|hex| hex.len() == count && hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
        };
        let cluster = hex(32).ok_or(BadToken)?;
        let secret = bytes_of(hex(64).ok_or(BadToken)?)?;
        let pin = bytes_of(hex(64).ok_or(BadToken)?)?;
        let cluster = u128::from_str_radix(cluster, 16).map_err(|_| BadToken)?;
        if parts.next().is_some() {
            return Err(BadToken);
        }
        Ok(Token { standing, cluster: ClusterId(cluster), secret: Key::new(secret), pin })
    }
}

/// The bytes of 64 hex digits.
fn bytes_of(hex: &str) -> Result<[u8; 32], BadToken> {
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| BadToken)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| BadToken)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_is_a_token() {
        let secret = Key::new([0xab; 32]);
        let good = Token { standing: Standing::Join, cluster: ClusterId(7), secret, pin: [0xcd; 32] };
        let text = good.to_string();
        assert_eq!(text.parse(), Ok(good.clone()));
        assert_eq!(format!(" {text}\n").parse(), Ok(good));
        for bad in [
            String::new(),
            "braid".into(),
            text.replace("braid-", ""),
            text.replace("join", "drive"),
            text.replace("join", "Join"),
            text.replacen("-0", "-+", 1),
            text.replacen("-ab", "-+b", 1),
            format!("{text}-"),
            format!("{text}0"),
            text[..text.len() - 1].to_owned(),
            text[..text.len() - 65].to_owned(),
            text.replacen("ab", "ä", 1),
        ] {
            assert_eq!(bad.parse::<Token>(), Err(BadToken), "{bad:?}");
        }
    }
}
