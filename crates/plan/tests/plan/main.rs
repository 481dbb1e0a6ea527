//! Plans as texts, fills, runs of methods, templates, and the bounds of plan sets.

mod bounds;
mod fill;
mod plans;
mod run;
mod template;
