//! A drive, as its peers, its manager and its operator meet it.

mod ahead;
mod at_once;
mod caught_up;
mod datagrams;
mod joining;
mod keys;
mod life;
mod listing;
mod managers;
mod methods;
mod over;
mod peers;
mod rails;
mod refusals;
mod requests;
mod scrub;
mod steps;
mod stills;
mod support;
