//! Connections of peers, and the requests that come on them.

pub(crate) mod answerer;
pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod convert;
pub(crate) mod datagrams;
pub(crate) mod facts;
pub(crate) mod inward;
pub(crate) mod manage;
pub(crate) mod methods;
pub(crate) mod modules;
pub(crate) mod outbox;
pub(crate) mod queries;
pub(crate) mod reads;
pub(crate) mod reply;
pub(crate) mod requests;
pub(crate) mod room;
pub(crate) mod send_costs;
pub(crate) mod sending;
pub(crate) mod steps;
