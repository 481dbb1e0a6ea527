//! Plans as texts, fills, templates, and the bounds of plan sets.

mod bounds;
mod fill;
mod plans;
mod template;
