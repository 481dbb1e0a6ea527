//! The store from outside: its face, its behaviour against a plain model, through crashes, damage and full disks, and
//! its bytes on disk against the golden files and the document.

mod amplification;
mod checkpoint_damage;
mod checkpoint_format;
mod clean;
mod common;
mod crash;
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
mod mapped;
mod means;
mod missing;
mod model;
mod paged;
mod parity;
mod ready;
mod reserve;
mod snapshots;
mod space;
mod spares;
mod storm;
mod threads;
mod together;
mod unit_writes;
mod unreadable;
mod verify;
