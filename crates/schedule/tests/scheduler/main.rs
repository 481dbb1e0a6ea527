//! What the scheduler keeps, on a simulated device.

mod chaos;
mod commits;
mod corners;
mod device;
mod promises;
mod properties;
