//! Pins the format: golden bytes, the document, and properties of every message. All are made with a second
//! implementation of the field tables ([`schema`]).

mod document;
mod examples;
mod golden;
mod properties;
mod schema;
mod versions;
