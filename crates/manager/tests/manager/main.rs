//! The manager's tests on loopback, with drives that answer just what it asks of them.

mod fake;
mod sessions;
