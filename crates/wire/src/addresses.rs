//! The addresses of one drive: its rails.
//!
//! A drive may be reached over several network paths, each at an address of its own. In messages and in the
//! manager's records its addresses are one text with commas between them, the drive's first choice first.

use std::fmt;

use crate::codec::{DecodeError, Wire};

/// Maximum number of addresses of one drive.
pub const RAILS_MAX: usize = 8;
/// Maximum length of an address, in bytes: a name of 253, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 259;

/// The beginning of an address at which sessions with the drive are in TLS. Only clients write it, for
/// themselves: a drive has the same addresses for both.
pub const IN_TLS: &str = "tls://";

/// The addresses at which a drive listens, `host:port` each; none if they are not known. What a peer sends
/// may hold anything: [`Addresses::check`] says whether it is a list that others may be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(String);

/// Reason for which addresses are no list of a drive's rails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddresses {
    /// There is no address.
    #[error("a drive needs an address at which it is reached")]
    None,
    /// There are too many.
    #[error("{0} addresses are given; a drive has at most {RAILS_MAX}: leave some out")]
    TooMany(usize),
    /// An address stands there twice.
    #[error("the address {0} is given twice: give each once")]
    Twice(String),
    /// An address is too long.
    #[error("an address of the drive has {0} bytes; at most {ADDRESS_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// An address has no port, or a character that no address has.
    #[error("{0:?} is no address: write HOST:PORT, and an IPv6 address in brackets, such as [fd00::1]:7400")]
    Unreadable(String),
}

impl Addresses {
    /// These addresses, in this order.
    pub fn new<A: AsRef<str>>(addresses: &[A]) -> Result<Addresses, BadAddresses> {
        if let Some(bad) = addresses.iter().find(|address| address.as_ref().contains(',')) {
            return Err(BadAddresses::Unreadable(bad.as_ref().to_owned()));
        }
        let texts: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
        let made = Addresses(texts.join(","));
        made.check().map(|()| made)
    }

    /// Refuses a list that has no address, too many, one twice, or one that nobody could connect to.
    pub fn check(&self) -> Result<(), BadAddresses> {
        let all: Vec<&str> = self.0.split(',').filter(|_| !self.0.is_empty()).collect();
        if all.is_empty() {
            return Err(BadAddresses::None);
        }
        if all.len() > RAILS_MAX {
            return Err(BadAddresses::TooMany(all.len()));
        }
        for (at, address) in all.iter().enumerate() {
            if address.len() > ADDRESS_BYTES_MAX {
                return Err(BadAddresses::TooLong(address.len()));
            }
            if !is_address(address) {
                return Err(BadAddresses::Unreadable((*address).to_owned()));
            }
            if all[..at].contains(address) {
                return Err(BadAddresses::Twice((*address).to_owned()));
            }
        }
        Ok(())
    }

    /// The addresses, at most [`RAILS_MAX`].
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.split(',').filter(|address| !address.is_empty()).take(RAILS_MAX)
    }

    /// The same addresses, for sessions in TLS.
    pub fn in_tls(&self) -> Addresses {
        let each: Vec<String> = self.iter().map(|address| format!("{IN_TLS}{address}")).collect();
        Addresses(each.join(","))
    }

    /// Number of addresses.
    pub fn count(&self) -> usize {
        self.iter().count()
    }
}

/// Returns true for HOST:PORT with both parts; an IPv6 host is in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').is_some_and(|ip| ip.contains(':')),
        None => !host.is_empty() && !host.contains([':', ']']),
    };
    let is_plain = host.chars().all(|c| c.is_ascii_graphic() && c != '/');
    is_host && is_plain && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Of one address, or of several with commas between them; not checked.
impl From<&str> for Addresses {
    fn from(text: &str) -> Addresses {
        Addresses(text.to_owned())
    }
}

impl From<String> for Addresses {
    fn from(text: String) -> Addresses {
        Addresses(text)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.iter().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{address}")?;
        }
        Ok(())
    }
}

impl Wire for Addresses {
    const BYTES_MIN: usize = String::BYTES_MIN;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Addresses, DecodeError> {
        String::take(input).map(Addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_told_only_if_others_could_use_it() {
        let good: [&[&str]; 3] = [&["a:1"], &["10.0.0.1:7400", "[fd00::1]:7400"], &["a:1"; 1]];
        for list in good {
            let made = Addresses::new(list).expect("a good list");
            assert_eq!(made.iter().collect::<Vec<_>>(), list);
            assert_eq!(Addresses::from_bytes(&made.to_bytes()), Ok(made));
        }
        let unreadable = |text: &str| BadAddresses::Unreadable(text.to_owned());
        for text in ["a", "a:", ":1", "a:0", "a:70000", "::1", "fd00::1:7400", "[fd00::1]", "a/b:1", "a b:1"]
        {
            assert_eq!(Addresses::new(&[text]), Err(unreadable(text)));
        }
        assert_eq!(Addresses::new(&["a:1,b:2"]), Err(unreadable("a:1,b:2")));
        assert_eq!(Addresses::new::<&str>(&[]), Err(BadAddresses::None));
        assert_eq!(Addresses::new(&["a:1", "b:1", "a:1"]), Err(BadAddresses::Twice("a:1".into())));
        let many: Vec<String> = (1..10).map(|port| format!("a:{port}")).collect();
        assert_eq!(Addresses::new(&many), Err(BadAddresses::TooMany(9)));
        let long = format!("{}:1", "a".repeat(258));
        assert_eq!(Addresses::new(&[long]), Err(BadAddresses::TooLong(260)));
    }

    #[test]
    fn what_a_peer_sent_is_bounded_when_it_is_used() {
        let many = Addresses::from("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1");
        assert_eq!(many.count(), RAILS_MAX);
        assert_eq!(Addresses::from("a:1,,b:1").to_string(), "a:1, b:1");
        assert_eq!(Addresses::from("").count(), 0);
    }
}
