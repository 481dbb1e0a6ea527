//! Time in which at least one of several was active: each moment counts once.

/// Spans that are kept apart. Older ones are summed up.
const SPANS_MAX: usize = 16;

/// Sum of spans of time that may overlap, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Active {
    /// The latest spans, apart from each other and in order.
    spans: Vec<Span>,
    /// Milliseconds of the spans before these.
    before_ms: u64,
    /// End of the spans before these. What is told of a time before it is not counted again.
    before_until: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: u64,
    until: u64,
}

impl Active {
    /// Adds a span of time. One that lies long before the others may be left out.
    pub(crate) fn add(&mut self, from: u64, until: u64) {
        let mut new = Span { from: from.max(self.before_until), until };
        if new.from >= new.until {
            return;
        }
        // What touches it becomes a part of it.
        self.spans.retain(|span| {
            let is_apart = span.until < new.from || new.until < span.from;
            if !is_apart {
                new = Span { from: span.from.min(new.from), until: span.until.max(new.until) };
            }
            is_apart
        });
        let place = self.spans.partition_point(|span| span.from < new.from);
        self.spans.insert(place, new);
        if self.spans.len() > SPANS_MAX {
            let oldest = self.spans.remove(0);
            self.before_ms += oldest.until - oldest.from;
            self.before_until = oldest.until;
        }
    }

    /// Milliseconds of all spans.
    pub(crate) fn ms(&self) -> u64 {
        self.before_ms + self.spans.iter().map(|span| span.until - span.from).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once() {
        let mut active = Active::default();
        for (from, until, ms) in
            [(10, 20, 10), (12, 18, 10), (30, 40, 20), (15, 25, 25), (5, 45, 40), (50, 50, 40), (45, 50, 45)]
        {
            active.add(from, until);
            assert_eq!(active.ms(), ms, "{from} to {until}");
        }
        assert_eq!(active.spans, [Span { from: 5, until: 50 }]);
    }

    #[test]
    fn old_spans_are_summed_up() {
        let mut active = Active::default();
        for number in 1..=1000 {
            active.add(number * 10, number * 10 + 4);
        }
        assert_eq!((active.ms(), active.spans.len()), (4000, SPANS_MAX));
        active.add(10, 10_004);
        assert_eq!(active.spans.len(), 1);
        assert_eq!(active.ms(), 984 * 4 + (10_004 - 9844), "what was summed up is not counted again");
    }
}
