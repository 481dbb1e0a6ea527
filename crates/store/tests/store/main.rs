//! The store's public interface: its behaviour against a plain model, through crashes, damage and full disks,
//! and its bytes on disk against the golden files and the document.

mod amplification;
mod checkpoint_damage;
mod checkpoint_format;
mod clean;
mod common;
mod crash;
mod cut;
mod damage;
mod document;
mod enumerate;
mod face;
mod faults;
mod fold;
mod golden;
mod handles;
mod images;
mod inspect;
mod list;
mod log_rest;
mod missing;
mod model;
mod paged;
mod parity;
mod present;
mod ready;
mod recycled;
mod reserve;
mod snapshots;
mod space;
mod storm;
mod threads;
mod together;
mod unit_writes;
mod unreadable;
mod verify;
