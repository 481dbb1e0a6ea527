//! Reserved data rates: who is under one, how one is booked, and how they end.

pub(crate) mod booking;
pub(crate) mod books;
pub(crate) mod follow;
pub(crate) mod qualify;
pub(crate) mod reserve;
pub(crate) mod tend;
pub(crate) mod under;
