//! Two endpoints in memory on a virtual clock, with a network between them that loses, repeats, changes,
//! reorders and delays datagrams.

mod bad_input;
mod ends;
mod format;
mod links;
mod long_paths;
mod properties;
mod world;
