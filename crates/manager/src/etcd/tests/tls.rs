//! An etcd that speaks TLS and asks for certificates.

use std::path::PathBuf;

use braid_processes::etcd::{Etcd, Tls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;
use crate::etcd::error::EtcdError;

/// A certificate authority, with a certificate of it for this machine.
struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// Writes bytes in PEM.
fn write_pem(path: &Path, label: &str, der: &[u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(bytes);
        for at in 0..4 {
            let letter = usize::try_from(bits >> (18 - 6 * at) & 63).expect("six bits");
            text.push(if at <= three.len() { char::from(LETTERS[letter]) } else { '=' });
        }
    }
    std::fs::write(path, format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"))
        .expect("written");
}

fn make(dir: &Path, name: &str) -> Files {
    let file = |what: &str| dir.join(format!("{name}-{what}.pem"));
    let pair = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = params.self_signed(&pair).expect("a certificate");
    let issuer = Issuer::new(params, pair);
    let leaf = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let certificate = params.signed_by(&leaf, &issuer).expect("a certificate");
    write_pem(&file("ca"), "CERTIFICATE", authority.der());
    write_pem(&file("certificate"), "CERTIFICATE", certificate.der());
    write_pem(&file("key"), "PRIVATE KEY", &leaf.serialize_der());
    Files { ca: file("ca"), certificate: file("certificate"), key: file("key") }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_trusted_by_its_ca_and_trusts_the_manager_by_its_certificate() {
    let dir = tempfile::tempdir().expect("a directory");
    let right = make(dir.path(), "right");
    let wrong = make(dir.path(), "wrong");
    let tls = Tls { ca: &right.ca, certificate: &right.certificate, key: &right.key };
    let etcd = Etcd::start_secured(tls);
    let find = async |ca: &Path, own: Option<&Files>| {
        let mut config = EtcdConfig::of_state(&etcd.state()).expect("a state");
        config.ca = Some(ca.to_owned());
        config.certificate = own.map(|own| own.certificate.clone());
        config.key = own.map(|own| own.key.clone());
        let link = Link::new(&config, None).await.expect("a link");
        let cache = tempfile::tempdir().expect("a directory");
        let cache = Arc::new(Cache::open(cache.path()).expect("a copy"));
        identify(&link, &cache, WAIT).await
    };
    find(&right.ca, Some(&right)).await.expect("both are trusted");
    let error = find(&wrong.ca, Some(&right)).await.expect_err("etcd is not trusted");
    assert!(matches!(error, EtcdError::Untrusted { .. }), "{error}");
    assert!(error.to_string().contains("--etcd-ca"), "{error}");
    for own in [None, Some(&wrong)] {
        let error = find(&right.ca, own).await.expect_err("the manager is not trusted");
        assert!(matches!(error, EtcdError::Untrusted { .. }), "{error}");
        assert!(error.to_string().contains("--etcd-certificate"), "{error}");
    }
}
