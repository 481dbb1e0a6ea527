//! News of connections, as their owner hears them.

use std::fmt;

use crate::connection::News;
use crate::error::EndReason;
use crate::streams::StreamId;

/// Number of a connection of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u32);

/// News of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The connection that this side opens is open.
    Opened(ConnectionId),
    /// A peer has opened a connection, and has proved that it knows the secret of this identity.
    Accepted(ConnectionId, Vec<u8>),
    /// A message has come, or the stream's end.
    Readable(ConnectionId, StreamId),
    /// A stream that refused a message has room again.
    Writable(ConnectionId, StreamId),
    /// The connection is at its end. What has arrived can still be received, until it is released.
    Ended(ConnectionId, EndReason),
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl Event {
    pub(crate) fn of(id: ConnectionId, news: News) -> Event {
        match news {
            News::Readable(stream) => Event::Readable(id, stream),
            News::Writable(stream) => Event::Writable(id, stream),
            News::Ended(why) => Event::Ended(id, why),
        }
    }

    /// The connection that it is news of.
    pub fn connection(&self) -> ConnectionId {
        match self {
            Event::Opened(id) | Event::Accepted(id, _) | Event::Ended(id, _) => *id,
            Event::Readable(id, _) | Event::Writable(id, _) => *id,
        }
    }
}
