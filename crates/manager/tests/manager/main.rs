//! The manager's tests on loopback, with fake drives that answer only what it asks.

mod admission;
mod bulk;
mod crash;
mod crash_relayout;
mod failures;
mod fake;
mod fake_drive;
mod freed;
mod group;
mod heal;
mod live_out;
mod operations;
mod orphans;
mod paused;
mod races;
mod relayout;
mod restored;
mod session_limits;
mod sessions;
mod shared;
mod sisters;
mod sizes;
mod space;
mod states;
mod successors;
mod twice;
