//! What the scheduler keeps, on a simulated device.

mod chaos;
mod corners;
mod device;
mod promises;
mod properties;
