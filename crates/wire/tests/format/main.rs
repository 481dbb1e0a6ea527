//! Tests that pin the format: golden bytes, the document, and properties of every message. All use a second
//! implementation of the field tables ([`schema`]).

mod document;
mod examples;
mod golden;
mod properties;
mod schema;
mod versions;
