//! Axes, which map values to pixels and have marks.

/// A logarithmic axis with a mark at each power of two.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: i32,
    high: i32,
    /// Positions of the lower and the upper end, in pixels.
    ends: (f64, f64),
}

impl Axis {
    /// An axis from 1 to the power of two above all `values`, none of which is below 1.
    pub fn from_one(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        Axis { low: 0, ..Axis::over(values, ends) }
    }

    /// An axis from the power of two below all `values` to the one above, at least from 1/2 to 2.
    pub fn over(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        Axis::within(-1.0, 1.0, values, ends)
    }

    /// An axis from the power of two below all `values` to the one above.
    pub fn around(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        let axis = Axis::within(f64::INFINITY, f64::NEG_INFINITY, values, ends);
        Axis { high: axis.high.max(axis.low + 1), ..axis }
    }

    fn within(low: f64, high: f64, values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        let mut low = low;
        let mut high = high;
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value.log2().floor()), high.max(value.log2().ceil()));
        }
        // Powers are clamped to -20..=20: a ratio of 2^20 is about a million.
        let whole = |power: f64| (-20..=20).find(|&step| f64::from(step) >= power).unwrap_or(20);
        Axis { low: whole(low), high: whole(high), ends }
    }

    /// Position of a value, in pixels; a value outside the axis is put at its end.
    pub fn at(&self, value: f64) -> f64 {
        let power = value.max(f64::MIN_POSITIVE).log2().clamp(f64::from(self.low), f64::from(self.high));
        let share = (power - f64::from(self.low)) / f64::from(self.high - self.low);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// The marks with their labels; only every other one if the axis has more than 10.
    pub fn marks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let step = if self.high - self.low > 9 { 2 } else { 1 };
        (self.low..=self.high).filter(move |power| power % step == 0).map(|power| {
            let value = f64::from(power).exp2();
            let name = if power < 0 { format!("1/{:.0}", value.recip()) } else { format!("{value:.0}") };
            (self.at(value), name)
        })
    }
}

/// A linear axis from 0.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    step: f64,
    steps: u32,
    ends: (f64, f64),
}

impl Linear {
    /// An axis from 0 to at least `most`, in about `marks` steps that are round numbers.
    pub fn to(most: f64, marks: u32, ends: (f64, f64)) -> Linear {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let rough = most / f64::from(marks.max(1));
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * power);
        let step = step.into_iter().find(|&step| step >= rough * 0.999).unwrap_or(10.0 * power);
        let steps = (1..=1000).find(|&count| f64::from(count) * step >= most * 0.999).unwrap_or(1000);
        Linear { step, steps, ends }
    }

    /// Position of a value, in pixels; a value outside the axis is put at its end.
    pub fn at(&self, value: f64) -> f64 {
        let share = (value / (self.step * f64::from(self.steps))).clamp(0.0, 1.0);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// The marks with their labels.
    pub fn marks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        // A step has at most two significant digits.
        let decimals = (0..=18).find(|&more| self.step * 10_f64.powi(more) >= 9.99).unwrap_or(18);
        (0..=self.steps).map(move |number| {
            let value = f64::from(number) * self.step;
            let name = format!("{value:.0$}", usize::try_from(decimals).unwrap_or(0));
            let name = if name.contains('.') {
                name.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                name
            };
            (self.at(value), name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_spans_its_values() {
        let axis = Axis::over([0.3, 11.0].into_iter(), (100.0, 700.0));
        let marks: Vec<(f64, String)> = axis.marks().collect();
        let names: Vec<&str> = marks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["1/4", "1/2", "1", "2", "4", "8", "16"]);
        assert_eq!((axis.at(0.25), axis.at(1.0), axis.at(16.0)), (100.0, 300.0, 700.0));
        let around = Axis::around([300.0, 9000.0].into_iter(), (0.0, 60.0));
        assert_eq!(
            around.marks().map(|(x, _)| x).collect::<Vec<f64>>(),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
        );
        assert_eq!((axis.at(0.0), axis.at(99.0)), (100.0, 700.0), "what is outside stands at the end");
    }

    #[test]
    fn a_linear_axis_has_round_marks() {
        let axis = Linear::to(27.0, 6, (0.0, 300.0));
        let names: Vec<String> = axis.marks().map(|(_, name)| name).collect();
        assert_eq!(names, ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!((axis.at(15.0), axis.at(99.0)), (150.0, 300.0));
        assert_eq!(Linear::to(0.0, 5, (0.0, 1.0)).marks().count(), 6);
        let names = |most| Linear::to(most, 8, (0.0, 1.0)).marks().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(0.0175)[..4], ["0", "0.0025", "0.005", "0.0075"]);
        assert_eq!(names(1.5e-6)[1], "0.0000002");
        assert_eq!(names(160_000.0)[1], "20000");
    }
}
