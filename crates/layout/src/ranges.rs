//! Ranges of a file's bytes with a value each, such as the mode of a lock.

/// Bytes from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub from: u64,
    /// The last byte, included; `u64::MAX` stands for the end of the file, wherever that is.
    pub to: u64,
}

impl Span {
    /// All bytes that a file may have.
    pub const ALL: Span = Span { from: 0, to: u64::MAX };

    /// Returns true if the two spans have a byte in common.
    pub fn meets(self, other: Span) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Disjoint ranges with a value each, in order. Adjacent ranges with the same value are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges<V> {
    list: Vec<(Span, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Ranges<V> {
        Ranges { list: Vec::new() }
    }
}

impl<V: Copy + PartialEq> Ranges<V> {
    /// Returns true if no byte has a value.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (Span, V)> + '_ {
        self.list.iter().copied()
    }

    /// The ranges that have a byte in common with `span`, not cut at its ends.
    pub fn meeting(&self, span: Span) -> impl Iterator<Item = (Span, V)> + '_ {
        let first = self.list.partition_point(|(one, _)| one.to < span.from);
        self.list[first..].iter().copied().take_while(move |(one, _)| one.from <= span.to)
    }

    /// Returns true if each byte of `span` has a value, and all of these values pass `is_fit`.
    pub fn cover(&self, span: Span, is_fit: impl Fn(V) -> bool) -> bool {
        let mut from = span.from;
        for (one, value) in self.meeting(span) {
            if one.from > from || !is_fit(value) {
                return false;
            }
            match one.to.checked_add(1).filter(|next| *next <= span.to) {
                Some(next) => from = next,
                None => return true,
            }
        }
        false
    }

    /// Gives all bytes of `span` a value, or removes their values.
    pub fn set(&mut self, span: Span, value: Option<V>) {
        let mut list = Vec::with_capacity(self.list.len() + 2);
        let before = span.from.checked_sub(1);
        let after = span.to.checked_add(1);
        let mut rest = Vec::new();
        for (one, its) in self.list.drain(..) {
            if let Some(to) = before.filter(|_| one.from < span.from) {
                list.push((Span { from: one.from, to: one.to.min(to) }, its));
            }
            if let Some(from) = after.filter(|_| one.to > span.to) {
                rest.push((Span { from: one.from.max(from), to: one.to }, its));
            }
        }
        list.extend(value.map(|value| (span, value)));
        list.extend(rest);
        for (one, its) in list {
            match self.list.last_mut() {
                Some((last, of)) if *of == its && last.to.checked_add(1) == Some(one.from) => {
                    last.to = one.to
                }
                _ => self.list.push((one, its)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(from: u64, to: u64) -> Span {
        Span { from, to }
    }

    #[test]
    fn the_last_byte_of_all_is_a_byte_too() {
        let mut ranges = Ranges::default();
        ranges.set(Span::ALL, Some('a'));
        ranges.set(span(u64::MAX, u64::MAX), None);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(span(0, u64::MAX - 1), 'a')]);
        ranges.set(span(0, 0), Some('b'));
        ranges.set(span(u64::MAX, u64::MAX), Some('a'));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(span(0, 0), 'b'), (span(1, u64::MAX), 'a')]);
        ranges.set(Span::ALL, None);
        assert!(ranges.is_empty());
    }

    proptest! {
        /// Compares the ranges with a table of one value per byte.
        #[test]
        fn each_byte_has_the_value_it_was_given_last(
            sets in prop::collection::vec((0_u64..24, 0_u64..24, prop::option::of(0_u8..2)), 0..24),
            asked in (0_u64..24, 0_u64..24),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = [None; 24];
            for (one, other, value) in sets {
                let span = span(one.min(other), one.max(other));
                ranges.set(span, value);
                (span.from..=span.to).for_each(|at| bytes[usize::try_from(at).expect("small")] = value);
            }
            let mut found = [None; 24];
            for (one, value) in ranges.iter() {
                for at in one.from..=one.to {
                    let at = usize::try_from(at).expect("small");
                    prop_assert!(found[at].replace(value).is_none(), "a byte has one value");
                }
            }
            prop_assert_eq!(found, bytes);
            let list: Vec<_> = ranges.iter().collect();
            prop_assert!(list.windows(2).all(|two| two[0].0.to < two[1].0.from
                && (two[0].0.to + 1 < two[1].0.from || two[0].1 != two[1].1)));
            let asked = span(asked.0.min(asked.1), asked.0.max(asked.1));
            let inside = &bytes[usize::try_from(asked.from).expect("small")..=usize::try_from(asked.to).expect("small")];
            prop_assert_eq!(ranges.cover(asked, |_| true), inside.iter().all(Option::is_some));
            for value in 0..2 {
                let is_any = ranges.meeting(asked).any(|(_, its)| its == value);
                prop_assert_eq!(is_any, inside.contains(&Some(value)));
                let is_fit = |its: u8| its == value;
                prop_assert_eq!(ranges.cover(asked, is_fit), inside.iter().all(|its| its.is_some_and(is_fit)));
            }
        }
    }
}
