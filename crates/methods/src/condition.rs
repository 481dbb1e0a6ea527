//! Conditions on the columns of a table: comparisons of a column with a value, joined by `and`.

use std::cmp::Ordering;

use crate::arguments::{ArgumentsError, wrong};

/// A way to compare a column with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// It is the same.
    Equal,
    /// It is another value.
    Unequal,
    /// It is less.
    Less,
    /// It is less or the same.
    AtMost,
    /// It is greater.
    Greater,
    /// It is greater or the same.
    AtLeast,
}

/// A comparison of a column with a value, as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Name of the column.
    pub column: String,
    /// The way in which it is compared.
    pub operator: Operator,
    /// The value, without the quotes around it.
    pub value: String,
}

/// The operators as they are typed; those of two characters come first.
const OPERATORS: [(&str, Operator); 6] = [
    ("!=", Operator::Unequal),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl Operator {
    /// Returns true if a column that compares like this with the value fulfils the condition.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::Unequal => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
        }
    }

    fn typed(self) -> &'static str {
        OPERATORS.iter().find(|(_, operator)| *operator == self).map_or("=", |(typed, _)| typed)
    }
}

impl Comparison {
    /// The comparison as a text that is parsed as the same one.
    pub fn text(&self) -> String {
        format!("{}{}'{}'", self.column, self.operator.typed(), self.value.replace('\'', "''"))
    }

    /// Parses `where=`: comparisons with `and` between them. A value in single or double quotes may hold
    /// anything; the quote itself is doubled there.
    pub fn parse_all(text: &str) -> Result<Vec<Comparison>, ArgumentsError> {
        let why = "give a column, one of = != < <= > >=, and a value, as in 'price<=10 and item=tea'";
        let bad = || wrong("where", text, why);
        let mut all = Vec::new();
        let mut rest = text;
        loop {
            let at = rest.find(['<', '>', '=', '!']).ok_or_else(bad)?;
            let known = OPERATORS.into_iter().find(|(typed, _)| rest[at..].starts_with(typed));
            let (typed, operator) = known.ok_or_else(bad)?;
            let column = rest[..at].trim().to_owned();
            let behind = rest[at + typed.len()..].trim_start();
            let (value, left) = value_of(behind).ok_or_else(bad)?;
            all.push(Comparison { column, operator, value });
            let left = left.trim_start();
            if left.is_empty() {
                return Ok(all);
            }
            // `value_of` ends at the end, behind a quote, or before an `and`.
            rest = after_and(left).ok_or_else(bad)?;
        }
    }
}

/// The value at the front of a text, and what follows it.
fn value_of(text: &str) -> Option<(String, &str)> {
    if let Some(quote) = text.chars().next().filter(|first| matches!(first, '\'' | '"')) {
        let mut value = String::new();
        let mut rest = &text[1..];
        loop {
            let end = rest.find(quote)?;
            value.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            let Some(more) = rest.strip_prefix(quote) else { return Some((value, rest)) };
            value.push(quote);
            rest = more;
        }
    }
    let spaces = text.char_indices().filter(|(_, one)| one.is_whitespace()).map(|(at, _)| at);
    let end = spaces.into_iter().find(|&at| after_and(text[at..].trim_start()).is_some());
    let end = end.unwrap_or(text.len());
    Some((text[..end].trim().to_owned(), &text[end..]))
}

/// The text that follows the word `and` at the front of a text.
fn after_and(text: &str) -> Option<&str> {
    let word = text.get(..3)?;
    let rest = &text[3..];
    (word.eq_ignore_ascii_case("and") && rest.starts_with(char::is_whitespace)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let all = Comparison::parse_all(text).unwrap_or_else(|error| panic!("{error}"));
        let own: Vec<String> = all.iter().map(Comparison::text).collect();
        assert_eq!(own, expected, "{text}");
        let again = Comparison::parse_all(&own.join(" and ")).expect("its own text");
        assert_eq!(again, all, "{text}");
    }

    #[test]
    fn comparisons_are_told_apart_and_values_may_be_quoted() {
        check("price<=10", &["price<='10'"]);
        check(" a b != x y ", &["a b!='x y'"]);
        check("a=1 AND b>\"x and y\" and c='it''s'", &["a='1'", "b>'x and y'", "c='it''s'"]);
        check("a=", &["a=''"]);
        check("a=sand and b=1", &["a='sand'", "b='1'"]);
        check("a=candy", &["a='candy'"]);
        for bad in ["", "a", "a~1", "a='x", "a=1 and ", "a='x'y", "a=1 and b"] {
            assert!(Comparison::parse_all(bad).is_err(), "{bad}");
        }
    }
}
