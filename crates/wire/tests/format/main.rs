//! The format, pinned: golden bytes, the document, and properties of every message, each made with a second
//! reading of the field tables ([`schema`]).

mod document;
mod examples;
mod golden;
mod properties;
mod schema;
