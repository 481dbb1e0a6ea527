//! House rules that no lint can express. Each rule is a function from the repository's texts to its
//! violations. The test in `tests/` runs all of them on the repository, and each rule's unit tests show that
//! it can fail.
//!
//! | rule | module |
//! |---|---|
//! | a crate uses only crates on floors below its own | [`floors`] |
//! | versions stand in the workspace manifest only; each dependency's reason is in ARCHITECTURE.md | [`manifests`] |
//! | files stay short, and those that are long only shrink; so do functions | [`lengths`] |
//! | comments and documents are wrapped | [`widths`] |
//! | no unfinished work, no skipped tests, no lint switched off without a reason | [`words`] |
//! | each format document is bound to code by a test | [`formats`] |

pub mod floors;
pub mod formats;
pub mod lengths;
pub mod manifests;
pub mod tree;
pub mod widths;
pub mod words;
