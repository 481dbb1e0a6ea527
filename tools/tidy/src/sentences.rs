//! Doc comments that say too little, or make their reader ask what the subject is.

use crate::tree::Source;

/// Fewer words repeat the name that they stand at.
const WORDS_MIN: usize = 3;
/// Words that keep a sentence's subject for later when it begins with them.
const QUESTIONS: [&str; 3] = ["What", "Whether", "How"];

/// Counts of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sentences {
    /// Doc comments.
    pub docs: usize,
    /// Of one or two words.
    pub stubs: usize,
    /// That begin as a question does.
    pub questions: usize,
}

/// All of the sources'.
pub fn count(sources: &[Source]) -> Sentences {
    let mut sentences = Sentences::default();
    for source in sources {
        let mut doc = String::new();
        for line in source.text.lines().chain([""]) {
            if let Some(text) = line.trim_start().strip_prefix("///") {
                doc.push_str(text);
                continue;
            }
            let words: Vec<&str> = doc.split_whitespace().collect();
            if let Some(first) = words.first() {
                sentences.docs += 1;
                sentences.stubs += usize::from(words.len() < WORDS_MIN);
                sentences.questions += usize::from(QUESTIONS.contains(first));
            }
            doc.clear();
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_and_questions_are_counted() {
        let text = "/// Its bytes.\nbytes: u8,\n/// Whether all of it\n/// is there.\nis_whole: bool,\n// Code.\n/// The file's size, in bytes.\n";
        let found = count(&[Source { path: "x.rs".into(), text: text.into() }]);
        assert_eq!(found, Sentences { docs: 3, stubs: 1, questions: 1 });
    }
}
