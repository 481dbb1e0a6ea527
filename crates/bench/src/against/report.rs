//! The rows of one run.

use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;
pub use crate::stripes::Goal;

/// All rows of one run, with its conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Place, time and machine.
    #[serde(flatten)]
    pub ran: Conditions,
    pub rows: Vec<Row>,
    /// Rows that could not be measured here, with the reasons.
    pub left_out: Vec<LeftOut>,
}

/// A row that was not measured.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// The unit of a row's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    BytesPerSecond,
    OperationsPerSecond,
    /// Instructions of the processor for one request.
    Instructions,
    /// A part of one.
    Share,
    /// Processor time for bytes.
    CpuSecondsPerGib,
}

/// One sample of a side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    pub value: f64,
    /// Processor seconds of all its processes for each GiB; `None`: not counted.
    pub cpu: Option<f64>,
}

impl Taken {
    /// A value whose processor time was not counted.
    pub fn of(value: f64) -> Taken {
        Taken { value, cpu: None }
    }

    /// The rate of `bytes` bytes, for which all processes took `cpu_us` microseconds.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
    pub fn rate(bytes: u64, seconds: f64, cpu_us: f64) -> Taken {
        let gib = (bytes as f64 / f64::from(1 << 30)).max(1e-12);
        Taken { value: bytes as f64 / seconds.max(1e-9), cpu: Some(cpu_us / 1e6 / gib) }
    }

    /// The same sample, of which only this part counts.
    pub fn part(self, part: f64) -> Taken {
        Taken { value: self.value * part, cpu: self.cpu.map(|cpu| cpu / part) }
    }

    /// So many samples like this at once: a byte takes as much processor time as in one.
    pub fn times(self, count: u16) -> Taken {
        Taken { value: self.value * f64::from(count), ..self }
    }
}

/// The measure that a goal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// First value over second.
    Ratio,
    /// The first side's value.
    Value,
    /// The first side's processor seconds for each GiB.
    Cpu,
}

/// A goal of a row.
pub type Asked = (Of, Goal);

/// The description of a row, before it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Experiment or part that it belongs to, such as `E4`.
    pub group: &'static str,
    pub name: String,
    pub unit: Unit,
    pub first: &'static str,
    /// The other side; `None`: it has none.
    pub second: Option<&'static str>,
    pub goals: Vec<Asked>,
    /// The finding of the paper, for people.
    pub paper: Option<&'static str>,
}

impl Question {
    /// A rate against another.
    pub fn rates(group: &'static str, name: impl Into<String>, sides: [&'static str; 2]) -> Question {
        let [first, second] = sides;
        Question {
            group,
            name: name.into(),
            unit: Unit::BytesPerSecond,
            first,
            second: Some(second),
            goals: Vec::new(),
            paper: None,
        }
    }

    /// A value of its own.
    pub fn value(group: &'static str, name: impl Into<String>, unit: Unit, first: &'static str) -> Question {
        Question { unit, second: None, ..Question::rates(group, name, [first, ""]) }
    }

    /// The same row with this goal besides.
    pub fn goal(mut self, of: Of, goal: Goal) -> Question {
        self.goals.push((of, goal));
        self
    }

    /// The same row with what the paper found.
    pub fn paper(self, paper: &'static str) -> Question {
        Question { paper: Some(paper), ..self }
    }

    /// Group and name.
    pub fn title(&self) -> String {
        format!("{} {}", self.group, self.name)
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub group: &'static str,
    pub name: String,
    pub unit: Unit,
    /// First value over second, pair by pair; absent if there is no second side.
    pub ratio: Option<Spread>,
    pub first: Side,
    pub second: Option<Side>,
    pub goals: Vec<Judged>,
    /// The finding of the paper, for people.
    pub paper: Option<&'static str>,
}

/// One side of a row.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Name of what was measured.
    pub name: &'static str,
    pub value: Spread,
    /// Median of the processor seconds for each GiB.
    pub cpu_seconds_per_gib: Option<f64>,
}

/// A goal, and whether it is met.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judged {
    pub of: Of,
    pub goal: Goal,
    pub met: bool,
}

impl Report {
    /// Begins a report of a run in `directory`, without rows.
    pub fn begin(experiment: &'static str, directory: &Path, quick: bool) -> Result<Report, Error> {
        let ran = Conditions::begin(experiment, directory, quick)?;
        Ok(Report { ran, rows: Vec::new(), left_out: Vec::new() })
    }
}

impl Side {
    fn of(name: &'static str, samples: &[Taken]) -> Side {
        let values: Vec<f64> = samples.iter().map(|taken| taken.value).collect();
        let cpu: Option<Vec<f64>> = samples.iter().map(|taken| taken.cpu).collect();
        let cpu_seconds_per_gib = cpu.filter(|cpu| !cpu.is_empty()).map(|cpu| stats::median(&cpu));
        Side { name, value: stats::spread(&values), cpu_seconds_per_gib }
    }
}

impl Row {
    /// The row of a question with one side.
    pub fn alone(question: &Question, samples: &[Taken]) -> Row {
        Row::with(question, Side::of(question.first, samples), None, None)
    }

    /// The row of a question, from its pairs of samples.
    pub fn of(question: &Question, pairs: &[(Taken, Taken)]) -> Row {
        let ratio = |(first, second): &(Taken, Taken)| first.value / second.value.max(1e-9);
        let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        let (first, second): (Vec<Taken>, Vec<Taken>) = pairs.iter().copied().unzip();
        let second = question.second.map(|name| Side::of(name, &second));
        Row::with(question, Side::of(question.first, &first), second, Some(stats::spread(&ratios)))
    }

    fn with(question: &Question, first: Side, second: Option<Side>, ratio: Option<Spread>) -> Row {
        let judge = |(of, goal): &Asked| {
            let value = match of {
                Of::Ratio => ratio.map(|ratio| ratio.median),
                Of::Value => Some(first.value.median),
                Of::Cpu => first.cpu_seconds_per_gib,
            };
            Some(Judged { of: *of, goal: *goal, met: goal.is_met(value?) })
        };
        let goals = question.goals.iter().filter_map(judge).collect();
        let Question { group, ref name, unit, paper, .. } = *question;
        Row { group, name: name.clone(), unit, ratio, first, second, goals, paper }
    }

    /// True if all goals are met; `None` without one.
    pub fn is_met(&self) -> Option<bool> {
        (!self.goals.is_empty()).then(|| self.goals.iter().all(|goal| goal.met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_of_its_pairs_and_judged_by_each_goal() {
        let question = Question::rates("local", "read", ["braid", "plain"])
            .goal(Of::Ratio, Goal::AtLeast(0.9))
            .goal(Of::Cpu, Goal::AtMost(0.4))
            .goal(Of::Value, Goal::AtLeast(100.0));
        let taken = |value, cpu| Taken { value, cpu: Some(cpu) };
        let pairs = [
            (taken(90.0, 0.5), taken(100.0, 0.3)),
            (taken(190.0, 0.7), taken(200.0, 0.3)),
            (taken(60.0, 0.2), Taken::of(100.0)),
        ];
        let row = Row::of(&question, &pairs);
        assert_eq!(row.ratio.map(|ratio| (ratio.median, ratio.min, ratio.max)), Some((0.9, 0.6, 0.95)));
        assert_eq!(row.goals.iter().map(|goal| goal.met).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((row.first.cpu_seconds_per_gib, row.is_met()), (Some(0.5), Some(false)));
        assert_eq!(row.second.and_then(|side| side.cpu_seconds_per_gib), None, "one sample has none");
        let alone =
            Row::alone(&Question::value("bound", "copy", Unit::BytesPerSecond, "cold"), &[taken(5.0, 1.0)]);
        assert!(alone.ratio.is_none() && alone.second.is_none() && alone.is_met().is_none());
    }

    #[test]
    fn rates_count_the_bytes_and_all_processes() {
        let taken = Taken::rate(1 << 30, 2.0, 500_000.0);
        assert_eq!((taken.value, taken.cpu), (f64::from(1 << 29), Some(0.5)));
        assert_eq!(taken.part(0.5), Taken { value: f64::from(1 << 28), cpu: Some(1.0) });
        let four = Taken { value: f64::from(1u32 << 31), cpu: Some(0.5) };
        assert_eq!(taken.times(4), four, "each of them takes as much time for a byte");
    }
}
