//! The manager's tests on loopback, with drives that answer just what it asks of them.

mod admission;
mod crash;
mod failures;
mod fake;
mod fake_drive;
mod operations;
mod orphans;
mod paused;
mod races;
mod restored;
mod room;
mod sessions;
mod sizes;
mod space;
