//! Links: on each rail one medium that all hosts share, or a switch with two ports for each host.

use super::server::Server;
use crate::model::{LinkModel, Medium};
use crate::number::index;

/// The ports of all rails.
#[derive(Debug)]
pub(crate) struct Network<J> {
    pub(crate) model: LinkModel,
    rails: u32,
    pub(crate) ports: Vec<Server<J>>,
    /// Time up to which each port's rate is spent, if the bucket is not counted, in nanoseconds.
    spent: Vec<u64>,
    /// Bytes that wait at each port.
    waiting_bytes: Vec<u64>,
    /// Rail on which each host sends its next burst, if all rails have the same rate.
    next_rail: Vec<u32>,
    /// Rate of each rail, as a percentage of the link's; empty: all have that.
    percents: Vec<u32>,
    /// Bytes that each host has sent on each rail.
    dealt: Vec<u64>,
}

/// Direction of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A host sends through the port.
    Send,
    /// The switch sends to the host through the port.
    Receive,
}

impl<J> Network<J> {
    pub(crate) fn new(model: LinkModel, rails: u32, hosts: u32) -> Network<J> {
        let count = match model.medium {
            Medium::Shared => rails,
            Medium::Switch => hosts * rails * 2,
        };
        Network {
            model,
            rails,
            ports: (0..count).map(|_| Server::new(1)).collect(),
            spent: vec![0; index(u64::from(count))],
            waiting_bytes: vec![0; index(u64::from(count))],
            next_rail: vec![0; index(u64::from(hosts))],
            percents: Vec::new(),
            dealt: vec![0; index(u64::from(hosts * rails))],
        }
    }

    /// The same, with rails of these rates, as percentages of the link's; none: all have that.
    pub(crate) fn with_percents(self, percents: Vec<u32>) -> Network<J> {
        Network { percents, ..self }
    }

    /// The rail for a host's next burst: each in turn if all have the same rate, and else that which would
    /// have sent all of its bytes first.
    pub(crate) fn take_rail(&mut self, host: u32, bytes: u32) -> u32 {
        if !self.percents.is_empty() {
            let first = index(u64::from(host * self.rails));
            let after = |rail: &u32| {
                let at = index(u64::from(*rail));
                let sent = u128::from(self.dealt[first + at] + u64::from(bytes));
                sent * (1 << 32) / u128::from(self.percents[at].max(1))
            };
            let rail = (0..self.rails).min_by_key(after).expect("there is a rail");
            self.dealt[first + index(u64::from(rail))] += u64::from(bytes);
            return rail;
        }
        let next = &mut self.next_rail[index(u64::from(host))];
        let rail = *next;
        *next = (rail + 1) % self.rails;
        rail
    }

    /// The number of a port.
    pub(crate) fn port(&self, host: u32, rail: u32, end: End) -> u32 {
        match (self.model.medium, end) {
            (Medium::Shared, _) => rail,
            (Medium::Switch, End::Send) => (host * self.rails + rail) * 2,
            (Medium::Switch, End::Receive) => (host * self.rails + rail) * 2 + 1,
        }
    }

    /// The host, rail and end of a port; for a shared medium only the rail has a meaning.
    pub(crate) fn of_port(&self, port: u32) -> (u32, u32, End) {
        match self.model.medium {
            Medium::Shared => (0, port, End::Send),
            Medium::Switch => {
                let end = if port.is_multiple_of(2) { End::Send } else { End::Receive };
                (port / 2 / self.rails, port / 2 % self.rails, end)
            }
        }
    }

    /// Time for which a burst keeps a port, in nanoseconds. A burst at an idle port with a bucket pays only
    /// what the bucket lacks. A burst that must wait pays all: nothing is left in the bucket for it.
    pub(crate) fn service(&mut self, now: u64, port: u32, bytes: u32, of_client: bool) -> u64 {
        let percent = self.percents.get(index(u64::from(self.of_port(port).1))).copied().unwrap_or(100);
        let on_rail = |time: u64| if percent == 100 { time } else { time * 100 / u64::from(percent.max(1)) };
        let whole = on_rail(self.model.time(u64::from(bytes), of_client));
        let Some(bucket) = self.model.bucket else { return whole };
        let depth = on_rail(self.model.time_on_wire(bucket.0, of_client));
        let port = index(u64::from(port));
        let spent = self.spent[port].max(now) + whole;
        self.spent[port] = spent;
        if !self.ports[port].is_free() {
            return whole;
        }
        let missing = spent.saturating_sub(now + depth);
        self.ports[port].usage.add_busy(whole - missing);
        missing
    }

    /// Returns true if a burst finds room at a switch's port, and else counts the loss.
    pub(crate) fn has_room(&mut self, port: u32, bytes: u32) -> bool {
        let at = index(u64::from(port));
        let full = self.model.queue.is_some_and(|queue| self.waiting_bytes[at] + u64::from(bytes) > queue.0);
        if full {
            self.ports[at].usage.refused += 1;
        }
        !full
    }

    /// Notes that a burst has come to a port (`Receive`) or has left it (`Send`).
    pub(crate) fn note_bytes(&mut self, port: u32, bytes: u32, end: End) {
        let waiting = &mut self.waiting_bytes[index(u64::from(port))];
        match end {
            End::Receive => *waiting += u64::from(bytes),
            End::Send => *waiting -= u64::from(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;
    use crate::parts::server::Class;

    #[test]
    fn a_bucket_lets_through_what_it_holds() {
        let free = LinkModel::preset("free").expect("it is listed");
        let rate = crate::units::Rate(1e9);
        let bucket = Some(crate::units::Bytes(1000));
        let mut network: Network<()> = Network::new(LinkModel { rate, bucket, ..free }, 1, 1);
        // A byte takes a nanosecond. The bucket has the first 600 of 1000, then 400 of the next 600; the
        // rest comes at the rate.
        assert_eq!(network.service(5000, 0, 600, false), 0);
        assert_eq!(network.service(5000, 0, 600, false), 200);
        assert_eq!(network.ports[0].begin(5000, (), 200, Class::Rest), Some(((), 200)));
        // A burst that waits finds nothing in the bucket.
        assert_eq!(network.service(5100, 0, 300, false), 300);
        assert_eq!(network.ports[0].begin(5100, (), 300, Class::Rest), None);
        assert_eq!(network.ports[0].end(5200), Some(((), 300)));
        assert_eq!(network.ports[0].end(5500), None);
        // After 400 ns the bucket has 400 bytes again; it never has more than it holds.
        assert_eq!(network.service(5900, 0, 500, false), 100);
        network.spent[0] = 6000;
        assert_eq!(network.service(1_000_000, 0, 1001, false), 1);
        // Bytes from the bucket count too: 600 + 400 + 400 + 1000, beside the 200 + 300 of the jobs that
        // were handed in.
        assert_eq!(network.ports[0].usage.utilisation(5800, 1), 0.5);
    }

    #[test]
    fn bytes_are_dealt_out_by_the_rates_of_the_rails() {
        let link = LinkModel { client_rate: None, ..LinkModel::preset("1GbE").expect("it is listed") };
        let time = link.time(4096, false);
        let network: Network<()> = Network::new(link.clone(), 2, 1);
        let mut unequal = network.with_percents(vec![75, 25]);
        let rails: Vec<u32> = (0..8).map(|_| unequal.take_rail(0, 4096)).collect();
        assert_eq!(rails.iter().filter(|rail| **rail == 0).count(), 6, "{rails:?}");
        let slow = unequal.port(0, 1, End::Send);
        assert_eq!(unequal.service(0, slow, 4096, false), time * 4);
        let mut equal: Network<()> = Network::new(link, 2, 1);
        let rails: Vec<u32> = [9, 4096, 9, 9].map(|bytes| equal.take_rail(0, bytes)).into();
        assert_eq!(rails, [0, 1, 0, 1]);
    }

    #[test]
    fn without_a_bucket_each_takes_its_time() {
        let link = LinkModel { client_rate: None, ..LinkModel::preset("1GbE").expect("it is listed") };
        let time = link.time(4096, false);
        let mut network: Network<()> = Network::new(link, 1, 1);
        assert_eq!([0, 1 << 40].map(|now| network.service(now, 0, 4096, false)), [time, time]);
    }
}
