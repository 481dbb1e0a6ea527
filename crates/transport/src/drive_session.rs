//! A session with a drive: requests under capabilities and their answers, both at the same time. A drive
//! answers requests as they are done, not in the order in which they came.

#[cfg(test)]
mod tests;
pub mod ways;

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use braid_datagram::Config;
use braid_layout::{ClusterId, DriveId};
use braid_wire::addresses::IN_TLS;
use braid_wire::capability::{Capability, DataDirection, Protection};
use braid_wire::control::Grant;
use braid_wire::data::{Address, DriveReply, DriveRequest, GetAttributes, Hello, PeerRole, ReplyHead};
use braid_wire::frame::FrameHeader;
use braid_wire::seal::{self, Asked, ReplyError};
use braid_wire::token;
use braid_wire::{Addresses, Wire};
use bytes::BufMut;
use tokio::time::timeout;

use crate::bodies::STRANGER_BODY_BYTES_MAX;
use crate::credit::{Credit, Credits};
use crate::datagrams::capability_secret;
use crate::error::{Result, TransportError};
use crate::hello::{self, Wanted};
use crate::host::is_simulated;
use crate::limits::Limits;
use crate::net::{ReadHalf, WriteHalf};
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stream::Stream;
use crate::tls::Secured;
use ways::Way;

/// Time after which the next address of a drive is tried too, if the one before has not answered yet.
pub const NEXT_RAIL: Duration = Duration::from_millis(200);

/// Maximum number of unanswered requests on one session.
const ASKED_MAX: usize = 1024;

/// Reason that an answer is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The caller made a request, with this tag.
    Request(u64),
    /// The session proved its key by a small request, sent before a first request that is longer than an
    /// unauthenticated peer may send. The answer is discarded.
    Introduction,
}

/// A try to connect.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<DriveSession>> + Send + 'a>>;

/// The unanswered requests, by number.
type Unanswered = Arc<Mutex<HashMap<u64, (Purpose, Asked)>>>;

/// The cluster of the drives that are asked, and the pin of its CA, by which their certificates are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The cluster to which a drive must belong.
    pub cluster: ClusterId,
    /// The pin of the cluster's CA; `None`: not known, and no session is in TLS.
    pub pin: Option<token::Pin>,
}

impl From<ClusterId> for Home {
    fn from(cluster: ClusterId) -> Home {
        Home { cluster, pin: None }
    }
}

/// Tells whether a session is in TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InTls {
    Yes,
    No,
}

/// A session with one drive, whose identity was checked. A reply that is not authentic ends it. After any
/// error but [`TransportError::Refusal`] and [`TransportError::TooManyAsked`]: connect again.
#[derive(Debug)]
pub struct DriveSession {
    drive: DriveId,
    link: Option<IpAddr>,
    /// The link's credit, once it was asked for.
    credit: Option<Arc<Credit>>,
    asker: Asker,
    answers: Answers,
}

/// The sending half of a session.
#[derive(Debug)]
pub struct Asker {
    sender: Sender,
    /// True if nobody can read along.
    is_private: bool,
    seal: seal::Asker,
    /// The number of the last request; each number is used once.
    request: u64,
    unanswered: Unanswered,
    body: Vec<u8>,
    /// Whole frames from [`Asker::put`] that are not sent yet.
    put: Vec<u8>,
}

/// A request whose body is encoded.
struct Sealed {
    /// The request that is to be sent before it.
    introduction: Option<Introduction>,
    asked: Asked,
}

/// A short request that makes the asker known to the drive.
struct Introduction {
    asked: Asked,
    kind: u16,
    body: Vec<u8>,
}

/// The receiving half of a session: an answer comes when its request is done.
#[derive(Debug)]
pub struct Answers {
    receiver: Receiver,
    limits: Limits,
    unanswered: Unanswered,
}

/// An answer. Take its payload next, by [`Answers::payload`]; the part that is not taken is skipped.
#[derive(Debug)]
pub struct Answer {
    /// The tag that [`Asker::ask`] was given.
    pub tag: u64,
    /// The drive's generation of the object.
    pub head: ReplyHead,
    /// The drive's reply, which may be a refusal.
    pub reply: DriveReply,
    /// Number of payload bytes that follow.
    pub payload_bytes: u32,
}

/// The parts of a session at rest.
pub(crate) struct Parts {
    /// The socket, and bytes that were read from it and not used.
    pub(crate) reading: (ReadHalf, Vec<u8>),
    pub(crate) writing: WriteHalf,
    /// Counter of the bytes sent, if any.
    pub(crate) sent: Option<Arc<AtomicU64>>,
    pub(crate) address: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) seal: seal::Asker,
    /// The number of the last request.
    pub(crate) request: u64,
    /// True if nobody can read along.
    pub(crate) is_private: bool,
}

impl DriveSession {
    /// Connects to `address` and checks that drive `expect` of the cluster answers there. If the address
    /// begins with [`IN_TLS`], the session is in TLS.
    pub async fn connect(
        address: &str,
        expect: DriveId,
        home: impl Into<Home>,
        limits: &Limits,
    ) -> Result<DriveSession> {
        let home = home.into();
        let plain = address.strip_prefix(IN_TLS);
        let stream = Stream::connect(plain.unwrap_or(address), limits).await?.named(address);
        let is_in_tls = if plain.is_some() { InTls::Yes } else { InTls::No };
        DriveSession::begin(stream, is_in_tls, expect, home, limits).await
    }

    /// Connects to `address` by datagrams, and checks that drive `expect` of the cluster answers there. The
    /// capability of `grant` proves the asker; requests may be under any.
    pub async fn connect_by_datagrams(
        address: &str,
        expect: DriveId,
        home: impl Into<Home>,
        limits: &Limits,
        grant: &Grant,
        config: Config,
    ) -> Result<DriveSession> {
        let identity = grant.capability.to_bytes();
        let secret = capability_secret(&grant.private);
        let stream = Stream::connect_by_datagrams(address, limits, config, &identity, secret).await?;
        DriveSession::begin(stream, InTls::No, expect, home.into(), limits).await
    }

    /// Begins the session on a connection.
    async fn begin(
        stream: Stream,
        is_in_tls: InTls,
        expect: DriveId,
        home: Home,
        limits: &Limits,
    ) -> Result<DriveSession> {
        let link = stream.link();
        let address = stream.address().to_owned();
        let (mut sender, mut receiver) = stream.into_halves();
        let wanted = Wanted::Cluster(home.cluster);
        let hello = hello::take(&mut receiver, PeerRole::Drive, wanted, Some(expect), limits).await?;
        let mut binding = hello.binding();
        let mut is_private = is_simulated();
        if is_in_tls == InTls::Yes {
            let refused =
                |what: &str| TransportError::Tls { address: address.clone(), what: what.to_owned() };
            let pin = home.pin.ok_or_else(|| refused("the pin of the cluster's CA is not known here"))?;
            if hello.features & Hello::TLS == 0 {
                return Err(refused("the drive has no certificate yet: it asks the manager for one"));
            }
            let secured = Secured::connect_to_drive(sender, receiver, &pin, expect).await?;
            (binding, is_private) = (secured.binding(&hello), secured.is_private());
            (sender, receiver) = (secured.sender, secured.receiver);
        }
        let seal = seal::Asker::bound(binding, hello::challenge());
        let unanswered = Unanswered::default();
        let asker = Asker {
            sender,
            is_private,
            seal,
            request: 0,
            unanswered: Arc::clone(&unanswered),
            body: Vec::new(),
            put: Vec::new(),
        };
        let answers = Answers { receiver, limits: *limits, unanswered };
        Ok(DriveSession { drive: expect, link, credit: None, asker, answers })
    }

    /// Connects to the drive at the first of its addresses that answers. They are tried in their order, each
    /// [`NEXT_RAIL`] after the one before, or as soon as that one has failed; the wait is at most
    /// `limits.connect` for each of both steps of the last. If none answers, the error is that of the first,
    /// or says that the drive refuses at one of them, or that another peer is there.
    pub async fn connect_first(
        addresses: &Addresses,
        expect: DriveId,
        home: impl Into<Home>,
        limits: &Limits,
    ) -> Result<DriveSession> {
        let home = home.into();
        let connect =
            |address| -> Connecting<'_> { Box::pin(DriveSession::connect(address, expect, home, limits)) };
        DriveSession::first(addresses, expect, connect).await
    }

    /// The first session of the tries to connect to each of the addresses.
    async fn first<'a>(
        addresses: &'a Addresses,
        expect: DriveId,
        connect: impl Fn(&'a str) -> Connecting<'a>,
    ) -> Result<DriveSession> {
        let mut tries: Vec<Connecting<'a>> = Vec::new();
        let mut left = addresses.iter();
        let mut failed: Option<TransportError> = None;
        loop {
            match left.next() {
                Some(address) => {
                    tries.push(connect(address));
                }
                None if tries.is_empty() => {
                    return Err(failed.unwrap_or_else(|| TransportError::Connect {
                        address: format!("drive {}", expect.short()),
                        source: std::io::Error::new(std::io::ErrorKind::NotFound, "no address is known"),
                    }));
                }
                None => {}
            }
            let ended = poll_fn(|context| {
                for at in 0..tries.len() {
                    if let Poll::Ready(tried) = tries[at].as_mut().poll(context) {
                        drop(tries.swap_remove(at));
                        return Poll::Ready(tried);
                    }
                }
                Poll::Pending
            });
            // After the last address nothing is to be begun.
            let pause = if left.clone().next().is_some() { NEXT_RAIL } else { Duration::MAX };
            match timeout(pause, ended).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => {
                    failed = match failed {
                        Some(before) if weight(&before) >= weight(&error) => Some(before),
                        _ => Some(error),
                    };
                }
                Err(_) => {}
            }
        }
    }

    /// The way that the session goes.
    pub fn way(&self) -> Way {
        if self.asker.sender.is_by_datagrams() { Way::Udp } else { Way::Tcp }
    }

    /// The address that was connected to.
    pub fn address(&self) -> &str {
        self.asker.sender.address()
    }

    /// Returns true if nobody can read along: the session is in TLS.
    pub fn is_private(&self) -> bool {
        self.asker.is_private
    }

    /// The drive at the other end.
    pub fn drive(&self) -> DriveId {
        self.drive
    }

    /// The credit of this machine's link that answers come over, which is one of `all`; always the same ones
    /// are to be given. `None` if the drive is on this machine.
    pub fn credit(&mut self, all: &Credits) -> Option<Arc<Credit>> {
        let link = self.link?;
        Some(Arc::clone(self.credit.get_or_insert_with(|| all.of(link))))
    }

    /// From now on adds the number of bytes that the session sends to `sent`: headers, capabilities, MACs and
    /// payloads.
    pub fn count_sent(&mut self, sent: Arc<AtomicU64>) {
        self.asker.sender.count_into(sent);
    }

    /// The address that was connected to, shared.
    pub fn rail(&self) -> Arc<str> {
        Arc::clone(self.asker.sender.shared_address())
    }

    /// Both halves, to send requests while answers arrive.
    pub fn halves(&mut self) -> (&mut Asker, &mut Answers) {
        (&mut self.asker, &mut self.answers)
    }

    /// Both halves, for use in two tasks.
    pub fn into_halves(self) -> (Asker, Answers) {
        (self.asker, self.answers)
    }

    /// Returns true if nothing is in flight, and no frame was left midway.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_between = self.asker.put.is_empty()
            && self.asker.sender.is_between_frames()
            && self.answers.receiver.is_between_frames();
        is_between && self.asker.in_flight() == 0
    }

    /// Takes the session apart. What its last requests were promised or bounded by holds no longer.
    pub(crate) fn into_parts(self) -> Parts {
        self.asker.sender.pace(None);
        self.asker.tell_window(None);
        let (writing, address, sent) = self.asker.sender.into_parts();
        let reading = self.answers.receiver.into_parts();
        let seal = self.asker.seal;
        let request = self.asker.request;
        let is_private = self.asker.is_private;
        let limits = self.answers.limits;
        Parts { reading, writing, sent, address, limits, seal, request, is_private }
    }

    /// Sends a request and returns its answer, with the payload. A refusal is [`TransportError::Refusal`];
    /// the session stays usable after it. Not to be mixed with requests in flight.
    pub async fn call(
        &mut self,
        grant: &Grant,
        request: &DriveRequest,
        payload: &[&[u8]],
    ) -> Result<(DriveReply, Vec<u8>)> {
        let (asker, answers) = self.halves();
        asker.ask(0, grant, request, payload).await?;
        let answer = answers.next().await?;
        let mut bytes =
            Vec::with_capacity(usize::try_from(answer.payload_bytes).expect("a payload is at most 64 MiB"));
        answers.payload_into(&mut bytes, answer.payload_bytes).await?;
        match answer.reply {
            DriveReply::Refused(refusal) => Err(TransportError::Refusal(refusal)),
            reply => Ok((reply, bytes)),
        }
    }
}

impl Asker {
    /// Sends a request under `grant`, with its payload from where it lies. The answer will carry `tag`. The
    /// request is encoded before this returns; only the payload is borrowed while it is sent. If that is
    /// dropped midway, the session is unusable.
    pub fn ask<'a>(
        &'a mut self,
        tag: u64,
        grant: &Grant,
        request: &DriveRequest,
        payload: &'a [&'a [u8]],
    ) -> impl Future<Output = Result<()>> + use<'a> {
        let payload_bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let payload_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        let in_flight = self.in_flight();
        let has_room = in_flight < ASKED_MAX;
        let is_in_clear = !self.may_carry(grant);
        let sealed = (has_room && !is_in_clear).then(|| self.seal_introduced(grant, request, payload_bytes));
        let kind = request.kind();
        // The asker does not know the manager's time: a promise that has ended counts until its capability
        // expires.
        self.sender.pace(paced(&grant.capability, DataDirection::Write, None));
        async move {
            let Some(sealed) = sealed else {
                if is_in_clear {
                    return Err(in_clear(self.sender.address()));
                }
                return Err(TransportError::TooManyAsked(in_flight, self.sender.address().to_owned()));
            };
            self.send_put().await?;
            if let Some(introduction) = sealed.introduction {
                let body = std::mem::replace(&mut self.body, introduction.body);
                self.send(Purpose::Introduction, introduction.asked, introduction.kind, &[]).await?;
                self.body = body;
            }
            self.send(Purpose::Request(tag), sealed.asked, kind, payload).await
        }
    }

    /// Seals a request into `self.body`, and one that is to be sent before it, if the drive takes no request
    /// so long from somebody whom it does not know.
    fn seal_introduced(&mut self, grant: &Grant, request: &DriveRequest, payload_bytes: u32) -> Sealed {
        let is_first = self.request == 0;
        let asked = self.seal(grant, request, payload_bytes);
        if !is_first || u32::try_from(self.body.len()).is_ok_and(|bytes| bytes <= STRANGER_BODY_BYTES_MAX) {
            return Sealed { introduction: None, asked };
        }
        let introduction = DriveRequest::from(GetAttributes { at: Address::DRIVE });
        let introduced = self.seal(grant, &introduction, 0);
        let body = std::mem::take(&mut self.body);
        let introduction = Introduction { asked: introduced, kind: introduction.kind(), body };
        Sealed { introduction: Some(introduction), asked: self.seal(grant, request, payload_bytes) }
    }

    /// Like [`Asker::ask`], for a short request that is sent together with others, by [`Asker::send_put`].
    /// Not for the first requests of a session. By datagrams no promised rate paces it: drives, which alone
    /// put requests, send them over TCP.
    pub fn put(&mut self, tag: u64, grant: &Grant, request: &DriveRequest, payload: &[u8]) -> Result<()> {
        let in_flight = self.in_flight();
        if !self.may_carry(grant) {
            return Err(in_clear(self.sender.address()));
        }
        if in_flight >= ASKED_MAX {
            return Err(TransportError::TooManyAsked(in_flight, self.sender.address().to_owned()));
        }
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let asked = self.seal(grant, request, payload_bytes);
        let number = asked.request();
        let header = FrameHeader::new(request.kind(), number, &self.body, payload_bytes);
        for part in [header.emit().as_slice(), &self.body, payload] {
            self.put.extend_from_slice(part);
        }
        let purpose = Purpose::Request(tag);
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (purpose, asked));
        Ok(())
    }

    /// By datagrams: tells the drive how many bytes of answers may be on their way here, of all drives;
    /// `None`: no bound. That which was told before is not told again.
    pub fn tell_window(&self, bytes: Option<u64>) {
        self.sender.tell_window(bytes);
    }

    /// Number of bytes that were put and not sent yet.
    pub fn put_bytes(&self) -> usize {
        self.put.len()
    }

    /// Sends the frames that were put.
    pub async fn send_put(&mut self) -> Result<()> {
        if self.put.is_empty() { Ok(()) } else { self.sender.send_frames(&mut self.put).await }
    }

    /// Encodes and seals the next request's body, and sets `self.request` to its number.
    fn seal(&mut self, grant: &Grant, request: &DriveRequest, payload_bytes: u32) -> Asked {
        self.request += 1;
        self.body.clear();
        self.seal.seal(grant, self.request, request, payload_bytes, &mut self.body)
    }

    async fn send(&mut self, purpose: Purpose, asked: Asked, kind: u16, payload: &[&[u8]]) -> Result<()> {
        let number = asked.request();
        // This comes before the first byte is sent, since the answer may arrive before `send` returns.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (purpose, asked));
        self.sender.send(kind, number, &self.body, payload).await
    }

    /// Returns true if requests under this grant may go over the session: what is private, in TLS only.
    fn may_carry(&self, grant: &Grant) -> bool {
        self.is_private || grant.capability.protection != Protection::Privacy
    }

    /// Number of requests without an answer yet.
    pub fn in_flight(&self) -> usize {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The amount that an error of one rail tells of the drive: a refusal, that it is there and what it wants;
/// another peer, that its address is not the drive's any more.
fn weight(error: &TransportError) -> u8 {
    match error {
        TransportError::Refusal(_) => 2,
        TransportError::WrongPeer { .. } => 1,
        _ => 0,
    }
}

/// The rate by which what is sent in this direction, under this capability, is paced at this time of the
/// manager's: a quarter above the promised one, so that what was late is made good; `None`: nothing is
/// promised for it. Without a time the promise counts as going on.
pub fn paced(capability: &Capability, direction: DataDirection, now_ms: Option<u64>) -> Option<u64> {
    let promise = &capability.promise;
    let is_over = now_ms.is_some_and(|now_ms| now_ms >= promise.until_ms);
    let is_promised = promise.rate > 0 && promise.direction == direction && !is_over;
    is_promised.then(|| promise.rate.saturating_add(promise.rate / 4))
}

/// The error of a request that is private, on a session that is not.
pub(crate) fn in_clear(address: &str) -> TransportError {
    let what = "the request is private, and the session is not in TLS".to_owned();
    TransportError::Tls { address: address.to_owned(), what }
}

impl Answers {
    /// The next answer, verified to be the drive's and to an unanswered request. Waits at most `limits.reply`
    /// for its first byte. A refusal is an answer. Unread payload of the last answer is skipped.
    ///
    /// A refusal from before the capability was verified carries no proof (its `head.mac` is zero). Only
    /// reasons that reveal nothing about the object are accepted in that form.
    pub async fn next(&mut self) -> Result<Answer> {
        loop {
            let at_hand = self.receiver.frame_at_hand()?;
            let frame = match at_hand {
                None => self.receiver.frame_within(self.limits.reply, "for an answer").await?,
                at_hand => at_hand,
            };
            let Some((header, body)) = frame else {
                return Err(TransportError::Closed { address: self.receiver.address().to_owned() });
            };
            let asked =
                self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).remove(&header.request);
            let Some((purpose, asked)) = asked else {
                let what = format!("answer to request {}, which is not waiting for one", header.request);
                return Err(self.unexpected(what));
            };
            let (head, reply) = self.check(&asked, &header, &body)?;
            self.receiver.recycle(body);
            if let Purpose::Request(tag) = purpose {
                return Ok(Answer { tag, head, reply, payload_bytes: header.payload_bytes });
            }
        }
    }

    fn check(&self, asked: &Asked, header: &FrameHeader, body: &[u8]) -> Result<(ReplyHead, DriveReply)> {
        let (head, reply) = asked.open(header, body).map_err(|error| match error {
            ReplyError::Decode(source) => {
                TransportError::Decode { address: self.receiver.address().to_owned(), source }
            }
            ReplyError::Request { .. } => self.unexpected(error.to_string()),
            ReplyError::Forged => {
                TransportError::Forged { address: self.receiver.address().to_owned(), what: "answer" }
            }
        })?;
        if header.payload_bytes > 0 && !matches!(reply, DriveReply::Read(_)) {
            return Err(self.unexpected(format!("payload with {}", reply.name())));
        }
        Ok((head, reply))
    }

    /// Returns true if segments of answers were lost on their way since the last call. Costs a system call.
    pub fn have_lost(&mut self) -> bool {
        self.receiver.has_lost()
    }

    /// Reads the next `into.len()` bytes of the last answer's payload.
    pub async fn payload(&mut self, into: &mut [u8]) -> Result<()> {
        self.receiver.payload(into).await
    }

    /// Reads the next `bytes` of the last answer's payload into spare capacity.
    pub async fn payload_into(&mut self, into: &mut impl BufMut, bytes: u32) -> Result<()> {
        self.receiver.payload_into(into, bytes).await
    }

    fn unexpected(&self, what: String) -> TransportError {
        TransportError::Unexpected { address: self.receiver.address().to_owned(), what }
    }
}
