//! The cluster's own certificate authority (CA), and the short-lived certificates that it gives its manager.
//!
//! The CA is a key of Ed25519 and a certificate that it signed itself. Peers know it by the SHA-256 of that
//! certificate ([`Authority::pin`]) and by nothing else, so it carries no name and never expires. A manager's
//! certificate lasts [`CERTIFICATE_S`], with a key of its own that is never stored; a new one is made when
//! half of that time is over ([`is_due`]). The etcd that holds the managers' state has certificates of the
//! same CA, one for each use ([`EtcdUse`]), so that none of them passes for another. Nothing here reads a
//! clock: the time is handed in, in seconds since 1970.

use std::fmt;
use std::time::Duration;

use braid_layout::DriveId;
use braid_wire::base64;
use braid_wire::capability::Key;
use braid_wire::token::{Pin, pin_of};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Name for which a manager's certificate is valid. It tells roles apart; which cluster's manager it is, the
/// CA tells.
pub(crate) const MANAGER_NAME: &str = "manager.braid";
/// Time for which a manager's or a drive's certificate is valid, in seconds: 7 days.
pub const CERTIFICATE_S: u64 = 7 * 24 * 3600;
/// Latest time of a certificate: a clock beyond the year 9999 has no certificate's form.
const CLOCK_MAX_S: u64 = 253_000_000_000;
/// The bytes before the 32 of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// Reason for which a CA on record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificate authority on record cannot be used: {0}")]
pub struct BadAuthority(String);

/// Time for which a certificate of etcd is valid, in seconds: ten years. The host makes it anew at each
/// start, and each day. It has the CA's key itself, so a shorter time would protect nothing; and etcd must
/// start after any time for which all managers were switched off.
pub const ETCD_CERTIFICATE_S: u64 = 3650 * 24 * 3600;
/// Time before now from which a certificate of etcd is valid: etcd tolerates no difference of clocks.
const ETCD_BEFORE_S: u64 = 24 * 3600;

/// The common name of the certificates by which members of etcd know each other.
pub const ETCD_PEER_NAME: &str = "Braid etcd peer";

/// The use of a certificate of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdUse {
    /// Between etcd's members, in both directions.
    Peer,
    /// Of a member, to managers.
    Server,
    /// Of a manager, to etcd's members.
    Client,
}

impl EtcdUse {
    /// All uses, each once.
    pub const ALL: [EtcdUse; 3] = [EtcdUse::Peer, EtcdUse::Server, EtcdUse::Client];
}

/// A certificate and its key, as texts in PEM.
pub struct PemPair {
    /// The certificate itself.
    pub certificate: String,
    /// Its secret key, in PKCS #8.
    pub key: String,
}

/// A certificate of a manager, the CA's after it, and its key.
pub(crate) struct Issued {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    /// Makes a CA of this key, which must be random and known to nobody else.
    pub fn make(key: &Key) -> Authority {
        let pair = key_pair(key).expect("any 32 bytes are a key of Ed25519");
        let certificate = authority_params().self_signed(&pair).expect("its parameters are sound");
        let certificate = certificate.der().clone();
        Authority { issuer: Issuer::new(authority_params(), pair), certificate }
    }

    /// The CA that was made of this key, with the certificate that was made then.
    pub fn of_record(key: &Key, certificate: &[u8]) -> Result<Authority, BadAuthority> {
        let bad = |error: &dyn fmt::Display| BadAuthority(error.to_string());
        let pair = key_pair(key).map_err(|error| bad(&error))?;
        let certificate = CertificateDer::from(certificate.to_vec());
        rustls::server::ParsedCertificate::try_from(&certificate).map_err(|error| bad(&error))?;
        Ok(Authority { issuer: Issuer::new(authority_params(), pair), certificate })
    }

    /// The CA's certificate, in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The hash by which peers know the CA.
    pub fn pin(&self) -> Pin {
        pin_of(&self.certificate)
    }

    /// The CA's certificate, in PEM.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// A certificate of etcd for a host with these names and addresses, valid around `now_s`. Managers' own
    /// are for no host: etcd compares a name in them with the address that a connection comes from.
    pub fn issue_for_etcd(&self, of: EtcdUse, hosts: &[String], now_s: u64) -> Result<PemPair, BadAuthority> {
        let bad = |error: rcgen::Error| BadAuthority(error.to_string());
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(bad)?;
        let params = etcd_params(of, hosts, now_s).map_err(bad)?;
        let certificate = params.signed_by(&pair, &self.issuer).map_err(bad)?;
        let key = pem("PRIVATE KEY", &pair.serialize_der());
        Ok(PemPair { certificate: pem("CERTIFICATE", certificate.der()), key })
    }

    /// A certificate for a drive with this public key, valid from `now_s` on, then the CA's; both in DER.
    pub fn certify(&self, drive: DriveId, public_key: &[u8; 32], now_s: u64) -> Vec<Vec<u8>> {
        let params = params_for(&drive_name(drive), "Braid drive", now_s);
        let certificate = params.signed_by(&PublicKey(*public_key), &self.issuer);
        let certificate = certificate.expect("its parameters are sound").der().to_vec();
        vec![certificate, self.certificate.to_vec()]
    }

    /// A certificate for a manager, valid from `now_s` on.
    pub(crate) fn issue(&self, now_s: u64) -> Issued {
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("the system gives random bytes");
        let certificate = params_for(MANAGER_NAME, "Braid manager", now_s).signed_by(&pair, &self.issuer);
        let certificate = certificate.expect("its parameters are sound").der().clone();
        let key = PrivatePkcs8KeyDer::from(pair.serialize_der()).into();
        Issued { chain: vec![certificate, self.certificate.clone()], key }
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("pin", &hex(&self.pin())).finish_non_exhaustive()
    }
}

/// Returns true if a certificate that was made at `made_s` is to be replaced at `now_s`: half of its time is
/// over, or the clock was set back to before it.
pub(crate) fn is_due(made_s: u64, now_s: u64) -> bool {
    now_s.checked_sub(made_s).is_none_or(|age_s| age_s >= CERTIFICATE_S / 2)
}

/// Bytes in hexadecimal, for messages.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_pair(key: &Key) -> Result<KeyPair, rcgen::Error> {
    let der = [PKCS8_HEAD.as_slice(), key.secret()].concat();
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
}

/// Parameters of the CA's certificate. An issuer of record is made of them again: they must not change.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Braid cluster CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn etcd_params(of: EtcdUse, hosts: &[String], now_s: u64) -> Result<CertificateParams, rcgen::Error> {
    let hosts = if of == EtcdUse::Client { Vec::new() } else { hosts.to_vec() };
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = named(match of {
        EtcdUse::Peer => ETCD_PEER_NAME,
        EtcdUse::Server => "Braid etcd",
        EtcdUse::Client => "Braid manager of etcd",
    });
    let now_s = now_s.min(CLOCK_MAX_S);
    set_valid(&mut params, now_s.saturating_sub(ETCD_BEFORE_S), now_s + ETCD_CERTIFICATE_S);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match of {
        EtcdUse::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        EtcdUse::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        EtcdUse::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    Ok(params)
}

/// Sets the time for which a certificate is valid, in seconds since 1970.
fn set_valid(params: &mut CertificateParams, from_s: u64, until_s: u64) {
    let at = |seconds| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = at(from_s);
    params.not_after = at(until_s);
}

/// Bytes in PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().map(|letter| char::from(*letter)));
        lines.push('\n');
    }
    lines + &format!("-----END {label}-----\n")
}

/// Name for which a drive's certificate is valid: of that drive alone.
pub(crate) fn drive_name(drive: DriveId) -> String {
    format!("{:032x}.drive.braid", drive.0)
}

/// A new key of a drive, which is in its memory only.
pub(crate) fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).expect("the system gives random bytes")
}

/// A public key of Ed25519.
struct PublicKey([u8; 32]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

fn params_for(name: &str, common: &str, now_s: u64) -> CertificateParams {
    let now_s = now_s.min(CLOCK_MAX_S);
    let mut params = CertificateParams::new([name.to_owned()]).expect("the name is one of the domain system");
    params.distinguished_name = named(common);
    set_valid(&mut params, now_s, now_s + CERTIFICATE_S);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_the_same_authority() {
        let key = Key::new([7; 32]);
        let made = Authority::make(&key);
        let again = Authority::of_record(&key, made.certificate()).unwrap();
        assert_eq!(again.pin(), made.pin());
        assert_ne!(Authority::make(&Key::new([8; 32])).pin(), made.pin());
        let cut = &made.certificate()[..100];
        assert!(Authority::of_record(&key, cut).is_err());
        assert!(!format!("{made:?}").contains(&hex(&[7; 8])), "the key is not shown");
    }

    #[test]
    fn a_certificate_is_renewed_at_half_its_time_and_when_the_clock_was_set_back() {
        for (now_s, expected) in [
            (1_000_000, false),
            (1_000_000 + CERTIFICATE_S / 2 - 1, false),
            (1_000_000 + CERTIFICATE_S / 2, true),
            (999_999, true),
        ] {
            assert_eq!(is_due(1_000_000, now_s), expected, "{now_s}");
        }
    }

    #[test]
    fn any_clock_gets_a_certificate() {
        let authority = Authority::make(&Key::new([7; 32]));
        for now_s in [0, u64::MAX] {
            assert_eq!(authority.issue(now_s).chain.len(), 2);
        }
    }

    #[test]
    fn a_certificate_of_etcd_is_for_its_use_and_hosts_only() {
        let authority = Authority::make(&Key::new([7; 32]));
        let hosts = ["10.77.0.1".to_owned(), "a.example".to_owned()];
        let der = |of| etcd_params(of, &hosts, 1_000_000_000).unwrap();
        // etcd compares times as they are, and hosts' clocks may be an hour apart.
        let made = date_time_ymd(1970, 1, 1) + Duration::from_secs(1_000_000_000);
        let hour = Duration::from_secs(3600);
        assert!(EtcdUse::ALL.iter().all(|of| der(*of).not_before + hour < made));
        assert_eq!(der(EtcdUse::Client).subject_alt_names.len(), 0);
        assert_eq!(der(EtcdUse::Server).subject_alt_names.len(), 2);
        assert_eq!(der(EtcdUse::Server).extended_key_usages, [ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(der(EtcdUse::Client).extended_key_usages, [ExtendedKeyUsagePurpose::ClientAuth]);
        for of in EtcdUse::ALL {
            let pair = authority.issue_for_etcd(of, &hosts, u64::MAX).unwrap();
            assert!(pair.certificate.starts_with("-----BEGIN CERTIFICATE-----\nM"), "{}", pair.certificate);
            assert!(pair.key.ends_with("\n-----END PRIVATE KEY-----\n"));
        }
        assert!(authority.issue_for_etcd(EtcdUse::Peer, &["a b\u{e4}".to_owned()], 0).is_err());
    }
}
