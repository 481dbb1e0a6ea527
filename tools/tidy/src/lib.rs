//! House rules that no lint can express. Each rule is a function from the repository's texts to its
//! violations. The test in `tests/` runs all of them on the repository, and each rule's unit tests show that
//! it can fail.
//!
//! | rule | module |
//! |---|---|
//! | a crate uses only crates on floors below its own | [`floors`] |
//! | versions stand in the workspace manifest only; each dependency's reason is in ARCHITECTURE.md | [`manifests`] |
//! | files stay short, and those that are long only shrink; so do functions | [`lengths`] |
//! | circles of imports within a crate have at most five files | [`circles`] |
//! | a folder has at most 25 files | [`folders`] |
//! | tuples that only save lines, docs of two words, and docs that begin as questions only get fewer | [`tuples`], [`sentences`], [`ratchet`] |
//! | paths and links in documents lead to something | [`paths`] |
//! | comments and documents are wrapped | [`widths`] |
//! | examples in docs are run | [`doctests`] |
//! | no unfinished work, no skipped tests, no lint switched off without a reason | [`words`] |
//! | each format document is bound to code by a test | [`formats`] |

pub mod circles;
pub mod doctests;
pub mod floors;
pub mod folders;
pub mod formats;
pub mod lengths;
pub mod manifests;
pub mod paths;
pub mod ratchet;
pub mod sentences;
pub mod syntax;
pub mod tree;
pub mod tuples;
pub mod widths;
pub mod words;
