//! The programs in docs/c.md: each block of C with a `main` is compiled and run, in their order.

use std::fs;

use crate::{Cluster, Library, here};

pub(crate) fn run(library: &Library, cluster: &Cluster) {
    let text = fs::read_to_string(here("../../docs/c.md")).expect("the document");
    let blocks: Vec<&str> = blocks(&text).filter(|block| block.contains("int main(")).collect();
    assert!(blocks.len() > 2, "the document has {} programs", blocks.len());
    for (number, block) in blocks.iter().enumerate() {
        let source = library.root.join(format!("document-{number}.c"));
        fs::write(&source, block).expect("written");
        let program = library.compile("cc", "-std=gnu11", &source);
        let said = library.run(&program, cluster, &[]);
        assert_eq!(said.code, 0, "program {number} of docs/c.md:\n{block}\n{}", said.err);
    }
}

/// The blocks of C.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```c\n").skip(1).filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block))
}
