//! Datagrams on the simulated network: each may be lost, doubled, changed, late, or out of order.
//!
//! A datagram arrives at the end of a step of the world, if at that moment the way is open and a socket is
//! there. If the host is up and no socket is there, the sender is told, as by ICMP.
//!
//! Sockets that hear one peer may be behind a NAT that forgets: others see them at another port from then on,
//! and what goes to the port before is lost.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, Waker};

use braid_transport::host::simulated::DatagramSocket;

use super::Net;
use crate::random::{Random, mix};

/// Most bytes that have arrived at a socket and were not received; what is more is lost.
const QUEUE_BYTES: usize = 512 << 10;
/// Percentage of networks that lose and change nothing.
const CALM: u64 = 30;
/// Of a datagram that is late: the longest time by which it is.
const LATE_MS: u64 = 200;
/// Of one in `AGES_OF` of those: as much, so that it may find another process at its address.
const AGES_MS: u64 = 8_000;
const AGES_OF: u64 = 10;
const FORGETS_OF: u64 = 10_000;

/// All sockets, and the datagrams on their way.
#[derive(Debug)]
pub(super) struct Datagrams {
    random: Random,
    weather: Weather,
    sockets: BTreeMap<SocketAddr, Mailbox>,
    /// The address at which others see a socket, by its own, where they differ; and the other way round.
    seen_at: BTreeMap<SocketAddr, SocketAddr>,
    own_of: BTreeMap<SocketAddr, SocketAddr>,
    /// By the time of their arrival, and their number.
    flight: BTreeMap<(u64, u64), Datagram>,
    sent: u64,
    /// The host whose process is being killed: it says nothing more.
    dying: Option<IpAddr>,
}

/// The faults that datagrams meet. Shares are in a thousand.
#[derive(Debug, Clone, Copy)]
struct Weather {
    lost: u64,
    doubled: u64,
    /// One bit is changed.
    changed: u64,
    late: u64,
    /// The longest difference between the delays of datagrams that are not late.
    spread_ms: u64,
    /// The longest datagram that links carry, without their headers.
    bytes_max: usize,
    /// Before a datagram goes out, its socket gets another address: of so many in `FORGETS_OF`.
    forgets: u64,
}

#[derive(Debug, Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// The side of a socket that the network puts datagrams into.
#[derive(Debug, Default)]
struct Mailbox {
    /// The only address that is heard, if any.
    peer: Option<SocketAddr>,
    arrived: VecDeque<Datagram>,
    arrived_bytes: usize,
    /// True if the peer's host has said that nothing listens there.
    is_refused: bool,
    reader: Option<Waker>,
}

/// A process's end of a socket.
#[derive(Debug)]
pub(super) struct SocketEnd {
    net: Net,
    address: SocketAddr,
}

impl Weather {
    const CALM: Weather =
        Weather { lost: 0, doubled: 0, changed: 0, late: 0, spread_ms: 0, bytes_max: 8972, forgets: 0 };

    fn draw(random: &mut Random) -> Weather {
        // Drawn from a copy of the stream, which goes on as if nothing had been drawn.
        let forgets = Random::new(mix(random.clone().draw())).one(&[0, 0, 5, 50]).unwrap_or(0);
        if random.percent(CALM) {
            return Weather::CALM;
        }
        Weather {
            forgets,
            lost: random.one(&[0, 1, 10, 50, 150]).unwrap_or(0),
            doubled: random.one(&[0, 5, 50]).unwrap_or(0),
            changed: random.one(&[0, 1, 20]).unwrap_or(0),
            late: random.one(&[0, 1, 20]).unwrap_or(0),
            spread_ms: random.below(4),
            bytes_max: random.one(&[1200, 1400, 1472, 8972, 65_507]).unwrap_or(1472),
        }
    }
}

impl Datagrams {
    pub(super) fn new(mut random: Random) -> Datagrams {
        let weather = Weather::draw(&mut random);
        Datagrams {
            random,
            weather,
            sockets: BTreeMap::new(),
            seen_at: BTreeMap::new(),
            own_of: BTreeMap::new(),
            flight: BTreeMap::new(),
            sent: 0,
            dying: None,
        }
    }

    /// Returns true if the NAT before this socket forgets it now.
    fn forgets(&mut self, socket: SocketAddr) -> bool {
        self.weather.forgets > 0
            && self.sockets.get(&socket).is_some_and(|mailbox| mailbox.peer.is_some())
            && self.random.below(FORGETS_OF) < self.weather.forgets
    }

    /// Others see this socket at another address from now on; `None`: at its own.
    fn see_at(&mut self, socket: SocketAddr, address: Option<SocketAddr>) {
        if let Some(before) = self.seen_at.remove(&socket) {
            self.own_of.remove(&before);
        }
        if let Some(address) = address {
            self.seen_at.insert(socket, address);
            self.own_of.insert(address, socket);
        }
    }

    /// The socket that others see at this address; `None`: it is at another by now, or there is none.
    fn socket_at(&mut self, seen: SocketAddr) -> Option<&mut Mailbox> {
        let own = match self.own_of.get(&seen) {
            Some(own) => *own,
            None if self.seen_at.contains_key(&seen) => return None,
            None => seen,
        };
        self.sockets.get_mut(&own)
    }

    /// Returns true if something arrives until this time.
    pub(super) fn arrives_until(&self, now_ms: u64) -> bool {
        self.flight.keys().next().is_some_and(|(at_ms, _)| *at_ms <= now_ms)
    }

    fn is_met_by(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.random.below(1000) < thousandths
    }

    /// The time that a datagram takes, beside what slow links add.
    fn delay_ms(&mut self) -> u64 {
        if self.is_met_by(self.weather.late) {
            let most = if self.random.below(AGES_OF) == 0 { AGES_MS } else { LATE_MS };
            return self.random.below(most);
        }
        if self.weather.spread_ms == 0 { 0 } else { self.random.below(self.weather.spread_ms + 1) }
    }
}

impl Net {
    /// A socket at an address of a host, which hears only `peer`, if that is given.
    pub(crate) fn datagrams(
        &self,
        host: IpAddr,
        asked: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> io::Result<Box<dyn DatagramSocket>> {
        let mut state = self.lock();
        let port = if asked.port() == 0 { state.free_port() } else { asked.port() };
        let address = SocketAddr::new(host, port);
        let sockets = &mut state.datagrams.sockets;
        if sockets.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        sockets.insert(address, Mailbox { peer, ..Mailbox::default() });
        Ok(Box::new(SocketEnd { net: self.clone(), address }))
    }

    /// From now on nothing happens to datagrams: whoever looks for what is left of the trouble is to reach
    /// each drive at once.
    pub(crate) fn calm_datagrams(&self) {
        self.lock().datagrams.weather = Weather::CALM;
    }

    /// From now on nothing happens to datagrams but that one in a hundred comes from another address.
    #[cfg(test)]
    pub(super) fn forget_often(&self) {
        self.lock().datagrams.weather = Weather { forgets: FORGETS_OF / 100, ..Weather::CALM };
    }

    /// Notes the host whose process is being killed: what it would say by datagrams at its end is not said.
    /// No system says it for a process, as it ends TCP's connections.
    pub(crate) fn set_dying(&self, host: Option<IpAddr>) {
        self.lock().datagrams.dying = host;
    }

    fn send_datagram(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut state = self.lock();
        let state = &mut *state;
        if state.down.contains(&from.ip()) || state.datagrams.dying == Some(from.ip()) {
            return;
        }
        state.busy = true;
        if state.datagrams.forgets(from) {
            let seen = SocketAddr::new(from.ip(), state.free_port());
            state.datagrams.see_at(from, Some(seen));
            state.trace.count("sockets seen at another address");
        }
        let from = state.datagrams.seen_at.get(&from).copied().unwrap_or(from);
        let datagrams = &mut state.datagrams;
        if bytes.len() > datagrams.weather.bytes_max {
            state.trace.count("datagrams too long");
            return;
        }
        let is_doubled = datagrams.is_met_by(datagrams.weather.doubled);
        if is_doubled {
            state.trace.count("datagrams doubled");
        }
        let extra_ms = state.slow.get(&(from.ip(), to.ip())).copied().unwrap_or(0);
        for _ in 0..1 + usize::from(is_doubled) {
            if datagrams.is_met_by(datagrams.weather.lost) {
                state.trace.count("datagrams lost");
                continue;
            }
            let mut bytes = bytes.to_vec();
            if datagrams.is_met_by(datagrams.weather.changed) {
                let bit = datagrams.random.below(8 * bytes.len() as u64);
                if let Some(byte) = bytes.get_mut(usize::try_from(bit / 8).unwrap_or(0)) {
                    *byte ^= 1 << (bit % 8);
                    state.trace.count("datagrams changed");
                }
            }
            let slowed_ms = if extra_ms == 0 { 0 } else { datagrams.random.below(extra_ms + 1) };
            let at_ms = crate::host::now_ms() + datagrams.delay_ms() + slowed_ms;
            datagrams.sent += 1;
            datagrams.flight.insert((at_ms, datagrams.sent), Datagram { from, to, bytes });
        }
    }
}

impl super::State {
    /// Brings all datagrams that arrive now.
    pub(super) fn bring_datagrams(&mut self, wakers: &mut Vec<Waker>) {
        let later = self.datagrams.flight.split_off(&(self.now_ms + 1, 0));
        for ((_, number), datagram) in std::mem::replace(&mut self.datagrams.flight, later) {
            if self.is_cut_off_at(datagram.from, datagram.to) {
                self.trace.count("datagrams cut off");
                continue;
            }
            let Some(mailbox) = self.datagrams.socket_at(datagram.to) else {
                self.refuse(&datagram, wakers);
                continue;
            };
            if mailbox.peer.is_some_and(|peer| peer != datagram.from) {
                continue;
            }
            if mailbox.arrived_bytes + datagram.bytes.len() > QUEUE_BYTES {
                self.trace.count("datagrams beyond a queue");
                continue;
            }
            self.trace.bytes(number, &datagram.bytes);
            mailbox.arrived_bytes += datagram.bytes.len();
            mailbox.arrived.push_back(datagram);
            wakers.extend(mailbox.reader.take());
        }
    }

    /// Tells the sender of a datagram that nothing listens where it came to.
    fn refuse(&mut self, datagram: &Datagram, wakers: &mut Vec<Waker>) {
        if self.is_cut_off_at(datagram.to, datagram.from) {
            return;
        }
        let Some(mailbox) = self.datagrams.socket_at(datagram.from) else { return };
        if mailbox.peer == Some(datagram.to) {
            mailbox.is_refused = true;
            wakers.extend(mailbox.reader.take());
        }
    }
}

impl DatagramSocket for SocketEnd {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        self.net.send_datagram(self.address, to, bytes);
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.net.lock();
        let Some(mailbox) = state.datagrams.sockets.get_mut(&self.address) else { return Poll::Pending };
        if mailbox.is_refused || !mailbox.arrived.is_empty() {
            return Poll::Ready(());
        }
        mailbox.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut state = self.net.lock();
        let mailbox = state.datagrams.sockets.get_mut(&self.address).ok_or(io::ErrorKind::NotConnected)?;
        if std::mem::take(&mut mailbox.is_refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let datagram = mailbox.arrived.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        mailbox.arrived_bytes -= datagram.bytes.len();
        let length = datagram.bytes.len().min(into.len());
        into[..length].copy_from_slice(&datagram.bytes[..length]);
        Ok((length, datagram.from))
    }
}

impl Drop for SocketEnd {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        state.datagrams.see_at(self.address, None);
        let mailbox = state.datagrams.sockets.remove(&self.address);
        drop(state);
        drop(mailbox);
    }
}
