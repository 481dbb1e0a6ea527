//! TLS 1.3 on a session: the side that connects, and the side that accepts.
//!
//! The accepting side says its Hello in the clear, so that any two builds can find out what they have in
//! common. With a manager all that follows is in TLS: there is no setting without it. A drive answers in TLS
//! on a connection on which the asker begins with it, and then with AES-256-GCM only; its certificate is for
//! its own number. Of real sockets a session comes from
//! [`Secured`] only; the sockets of a simulated host are memory of one process, and stay as they are. No
//! binary has those.
//!
//! The accepting side shows its certificate and its CA's. The asker compares the CA's hash with its [`Pin`]
//! before it sends anything of its own. The asker shows no certificate: it proves a secret (to a drive, that
//! it has a capability), as the other side then does too, and both proofs are tied to the session
//! ([`Secured::binding`]).
//!
//! Sessions are not resumed: they last long, and a handshake costs less than a millisecond.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use braid_layout::DriveId;
use braid_wire::capability::Binding;
use braid_wire::data::Hello;
use braid_wire::token::{Pin, pin_of};
use rcgen::KeyPair;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, PeerMisbehaved, RootCertStore,
    ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::authority::{Authority, Issued, MANAGER_NAME, drive_name, is_due, new_key};
use crate::error::{Mismatch, PinText, Result, TransportError};
use crate::host::is_simulated;
use crate::net::{ReadHalf, WriteHalf};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// Tolerated difference of two machines' clocks, in each direction.
const SKEW: Duration = Duration::from_secs(3600);
/// Label of the channel binding `tls-exporter` (RFC 9266).
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";
/// First byte of a connection that begins with TLS: the type of a handshake's record. No frame begins so.
const TLS_HANDSHAKE: u8 = 0x16;
/// Name of the wait for a handshake.
const HANDSHAKE: &str = "for its TLS handshake";

/// A session in TLS.
#[derive(Debug)]
pub struct Secured {
    pub sender: Sender,
    pub receiver: Receiver,
    /// The session's channel binding; `None` on a simulated host, and without TLS.
    exported: Option<[u8; 32]>,
}

/// The certificate by which a manager or a drive proves itself. Clones share it. It is replaced while
/// sessions are open, which does not touch them.
#[derive(Debug, Clone, Default)]
pub struct ServerIdentity(Arc<RwLock<Option<Certified>>>);

/// The key of a drive for which it asks a certificate. It is in memory only.
pub struct OwnKey(KeyPair);

#[derive(Debug, Clone)]
struct Certified {
    /// Seconds since 1970 at which the certificate was made.
    made_s: u64,
    config: Arc<ServerConfig>,
}

impl ServerIdentity {
    /// The identity with a certificate of this CA, valid from `now_s` on.
    pub fn of(authority: &Authority, now_s: u64) -> ServerIdentity {
        let identity = ServerIdentity::default();
        identity.renew_if_due(authority, now_s);
        identity
    }

    /// Takes a new certificate if there is none yet, or if the present one's time is half over. Returns true
    /// if it did.
    pub fn renew_if_due(&self, authority: &Authority, now_s: u64) -> bool {
        let made_s = self.certified().map(|certified| certified.made_s);
        if made_s.is_some_and(|made_s| !is_due(made_s, now_s)) {
            return false;
        }
        let certified = Certified { made_s: now_s, config: server_config(authority, now_s) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
        true
    }

    fn certified(&self) -> Option<Certified> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl OwnKey {
    /// Makes a new key.
    pub fn new() -> OwnKey {
        OwnKey(new_key())
    }

    /// The public key, to be certified.
    pub fn public_key(&self) -> [u8; 32] {
        self.0.public_key_raw().try_into().expect("a public key of Ed25519 has 32 bytes")
    }
}

impl Default for OwnKey {
    fn default() -> OwnKey {
        OwnKey::new()
    }
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnKey(secret)")
    }
}

impl ServerIdentity {
    /// Takes the certificate of this key that was made at `made_s`, with its CA's after it.
    pub fn set_certified(
        &self,
        key: &OwnKey,
        chain: Vec<Vec<u8>>,
        made_s: u64,
    ) -> std::result::Result<(), rustls::Error> {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let issued = Issued { chain, key: PrivatePkcs8KeyDer::from(key.0.serialize_der()).into() };
        let certified = Certified { made_s, config: data_config(issued)? };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
        Ok(())
    }

    /// Returns true if sessions can be begun with it: there is a certificate, or none is needed.
    pub fn is_ready(&self) -> bool {
        self.certified().is_some() || is_simulated()
    }
}

impl Secured {
    /// Begins TLS as [`Secured::connect`] does, with this drive.
    pub(crate) async fn connect_to_drive(
        sender: Sender,
        receiver: Receiver,
        pin: &Pin,
        drive: DriveId,
    ) -> Result<Secured> {
        let wait = receiver.limits().connect;
        let connector = TlsConnector::from(drive_client_config(*pin));
        let name = ServerName::try_from(drive_name(drive)).expect("the name is one of the domain system");
        let shake = async |socket: TcpStream| connector.connect(name, socket).await.map(TlsStream::Client);
        let asked = |address: &str, error: io::Error| asker_error(address, pin, error);
        Box::pin(secure(sender, receiver, wait, shake, asked)).await
    }

    /// Waits for the first byte of the other side, to which this side has said its Hello, and begins TLS if
    /// the other side does. Without a certificate nothing is waited for, and nothing begun.
    pub async fn accept_if_begun(
        sender: Sender,
        receiver: Receiver,
        identity: &ServerIdentity,
    ) -> Result<Secured> {
        if identity.certified().is_none() || !receiver.begins_with(TLS_HANDSHAKE).await? {
            return Ok(Secured { sender, receiver, exported: None });
        }
        Secured::accept(sender, receiver, identity).await
    }

    /// Returns true if nobody can read along: the session is in TLS, or within one process.
    pub fn is_private(&self) -> bool {
        self.exported.is_some() || is_simulated()
    }

    /// Begins TLS on a connection whose other side has said its Hello, and checks that the other side has a
    /// certificate of the CA with this pin.
    pub async fn connect(sender: Sender, receiver: Receiver, pin: &Pin) -> Result<Secured> {
        let wait = receiver.limits().connect;
        let connector = TlsConnector::from(client_config(*pin));
        let name = ServerName::try_from(MANAGER_NAME).expect("the name is one of the domain system");
        let shake = async |socket: TcpStream| connector.connect(name, socket).await.map(TlsStream::Client);
        let asked = |address: &str, error: io::Error| asker_error(address, pin, error);
        // Boxed: a handshake's state is large, and every caller's future would contain it.
        Box::pin(secure(sender, receiver, wait, shake, asked)).await
    }

    /// Begins TLS on a connection on which this side has said its Hello and the other side is to begin.
    pub async fn accept(sender: Sender, receiver: Receiver, identity: &ServerIdentity) -> Result<Secured> {
        let wait = receiver.limits().proof;
        let config = identity.certified().map(|certified| certified.config);
        let shake = async |socket: TcpStream| match config {
            Some(config) => TlsAcceptor::from(config).accept(socket).await.map(TlsStream::Server),
            None => Err(io::Error::other("this manager has no certificate")),
        };
        Box::pin(secure(sender, receiver, wait, shake, manager_error)).await
    }

    /// The binding of the session whose first frame was this hello.
    pub fn binding(&self, hello: &Hello) -> Binding {
        match &self.exported {
            Some(exported) => hello.binding_in(exported),
            None => hello.binding(),
        }
    }
}

/// Runs a handshake on the socket of the two halves, within `wait`, and the bounds of an unauthenticated
/// peer.
async fn secure(
    sender: Sender,
    receiver: Receiver,
    wait: Duration,
    shake: impl AsyncFnOnce(TcpStream) -> io::Result<TlsStream<TcpStream>>,
    in_words: impl Fn(&str, io::Error) -> TransportError,
) -> Result<Secured> {
    let whole = receiver.is_between_frames() && !receiver.has_more() && sender.is_between_frames();
    let (writing, address, _) = sender.into_parts();
    if !whole {
        let what = "bytes between its Hello and TLS".to_owned();
        return Err(TransportError::Unexpected { address: address.to_string(), what });
    }
    let (reading, rest) = receiver.detach();
    let socket = match (reading, writing) {
        (ReadHalf::Tcp(read), WriteHalf::Tcp(write)) => read.reunite(write).ok(),
        #[cfg(feature = "simulated")]
        (read @ ReadHalf::Simulated(_), write @ WriteHalf::Simulated(_)) => {
            let sender = rest.sender(write);
            return Ok(Secured { sender, receiver: rest.attach(read), exported: None });
        }
        _ => None,
    };
    let Some(socket) = socket else {
        let source = io::Error::other("TLS begins on a connection of its own, and once");
        return Err(TransportError::Io { address: address.to_string(), source });
    };
    let stream = rest.within(wait, HANDSHAKE, shake(socket)).await?;
    let stream = stream.map_err(|error| in_words(&address, error))?;
    let exported = exported(&stream).map_err(|error| in_words(&address, io::Error::other(error)))?;
    let (read, write) = tokio::io::split(Box::new(stream));
    let sender = rest.sender(WriteHalf::Tls(write));
    Ok(Secured { sender, receiver: rest.attach(ReadHalf::Tls(read)), exported: Some(exported) })
}

fn exported(stream: &TlsStream<TcpStream>) -> std::result::Result<[u8; 32], rustls::Error> {
    let bytes = [0; 32];
    match stream {
        TlsStream::Client(stream) => stream.get_ref().1.export_keying_material(bytes, EXPORTER, None),
        TlsStream::Server(stream) => stream.get_ref().1.export_keying_material(bytes, EXPORTER, None),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The provider for sessions with drives: with AES-256-GCM alone.
fn data_provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![TLS13_AES_256_GCM_SHA384];
    Arc::new(CryptoProvider { cipher_suites, ..rustls::crypto::aws_lc_rs::default_provider() })
}

fn server_config(authority: &Authority, now_s: u64) -> Arc<ServerConfig> {
    let config = server_config_of(provider(), authority.issue(now_s));
    config.expect("the certificate was made for this key")
}

fn data_config(issued: Issued) -> std::result::Result<Arc<ServerConfig>, rustls::Error> {
    server_config_of(data_provider(), issued)
}

fn server_config_of(
    provider: Arc<CryptoProvider>,
    issued: Issued,
) -> std::result::Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has TLS 1.3").with_no_client_auth();
    let mut config = builder.with_single_cert(issued.chain, issued.key)?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn drive_client_config(pin: Pin) -> Arc<ClientConfig> {
    client_config_of(data_provider(), pin)
}

fn client_config(pin: Pin) -> Arc<ClientConfig> {
    client_config_of(provider(), pin)
}

fn client_config_of(provider: Arc<CryptoProvider>, pin: Pin) -> Arc<ClientConfig> {
    let verifier = Verifier { pin, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has TLS 1.3").dangerous();
    let mut config = builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// Accepts certificates of one CA, which is known by its hash.
#[derive(Debug)]
struct Verifier {
    pin: Pin,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A certificate of another CA than the expected one.
#[derive(Debug, thiserror::Error)]
#[error("its CA is another one")]
struct OtherAuthority(Pin);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let [authority] = others else { return Err(CertificateError::UnknownIssuer.into()) };
        let found = pin_of(authority);
        if found != self.pin {
            return Err(CertificateError::Other(OtherError(Arc::new(OtherAuthority(found)))).into());
        }
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(certificate)?;
        let check =
            |now| verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, self.algorithms.all);
        let seconds = Duration::from_secs(now.as_secs());
        match check(now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => check(UnixTime::since_unix_epoch(seconds.saturating_sub(SKEW)))?,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => check(UnixTime::since_unix_epoch(seconds + SKEW))?,
            checked => checked?,
        }
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into()) // TLS 1.2 is not spoken
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The error of a handshake, as the asker has it.
fn asker_error(address: &str, pin: &Pin, error: io::Error) -> TransportError {
    let address = address.to_owned();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            if let CertificateError::Other(other) = why
                && let Some(OtherAuthority(found)) = other.0.downcast_ref()
            {
                let mismatch = Mismatch::Authority { expected: PinText(*pin), found: PinText(*found) };
                return TransportError::WrongPeer { address, mismatch };
            }
            TransportError::Tls { address, what: certificate_words(why) }
        }
        Some(other) => TransportError::Damaged { address, what: format!("TLS: {other}") },
        None => TransportError::io(&address, error),
    }
}

/// The fault of a certificate, and the remedy.
fn certificate_words(why: &CertificateError) -> String {
    use CertificateError as E;
    let remedy = match why {
        E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. } => {
            "compare the clocks of both machines (they may differ by an hour); a manager renews its certificate \
             by itself while it runs"
        }
        _ => {
            "the address may be another program's, or somebody answers in the manager's place: see that the \
             manager runs there"
        }
    };
    format!("its certificate is refused ({why}): {remedy}")
}

/// The error of a handshake, as the manager has it.
fn manager_error(address: &str, error: io::Error) -> TransportError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(why) => {
            let what = format!("{why}; peers of this release begin with TLS 1.3");
            TransportError::Tls { address: address.to_owned(), what }
        }
        None => TransportError::io(address, error),
    }
}
