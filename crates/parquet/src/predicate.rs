//! Comparisons of a column with values of its own type.
//!
//! A row whose value is missing fulfils no comparison. Floating point numbers compare as IEEE 754 says: one
//! that is not a number fulfils only `!=`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, Scalar, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType, TimeUnit};
use braid_methods::{Comparison, Operator};

/// Comparisons of one column, all of which must hold.
#[derive(Debug, Clone)]
pub struct Predicate {
    terms: Vec<Term>,
}

#[derive(Debug, Clone)]
struct Term {
    operator: Operator,
    /// One value of the column's type.
    value: ArrayRef,
}

impl Predicate {
    /// Comparisons of a column of this type. The error says why a value cannot be compared with it.
    pub fn new(comparisons: &[&Comparison], kind: &DataType) -> Result<Predicate, String> {
        let term = |own: &&Comparison| {
            Ok::<Term, String>(Term { operator: own.operator, value: literal(&own.value, kind)? })
        };
        Ok(Predicate { terms: comparisons.iter().map(term).collect::<Result<_, _>>()? })
    }

    /// The rows for which all comparisons hold.
    pub(crate) fn rows(&self, array: &dyn Array) -> Result<BooleanBuffer, ArrowError> {
        let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() else {
            let mut rows = BooleanBuffer::new_set(array.len());
            for term in &self.terms {
                let own = compared(array, term.operator, &term.value)?;
                rows = &rows & &holding(&own);
            }
            return Ok(rows);
        };
        let entries = self.rows(dictionary.values())?;
        let keys = dictionary.keys();
        Ok(BooleanBuffer::collect_bool(keys.len(), |row| {
            let key = usize::try_from(keys.value(row)).unwrap_or(usize::MAX);
            keys.is_valid(row) && key < entries.len() && entries.value(key)
        }))
    }

    /// Of parts of the column with these least and greatest values, where null is not known: those in which
    /// the comparisons may hold for some row.
    pub(crate) fn parts(&self, least: &ArrayRef, most: &ArrayRef) -> Result<BooleanBuffer, ArrowError> {
        let mut parts = BooleanBuffer::new_set(least.len());
        for term in &self.terms {
            let may = |bound: &ArrayRef, operator| {
                let own = compared(bound, operator, &term.value)?;
                // What is not a number says nothing.
                let unknown = known(bound)?;
                let holds = holding(&own);
                Ok::<BooleanBuffer, ArrowError>(&holds | &!&unknown)
            };
            let own = match term.operator {
                Operator::Unequal => continue,
                Operator::Equal => &may(least, Operator::AtMost)? & &may(most, Operator::AtLeast)?,
                Operator::Less | Operator::AtMost => may(least, term.operator)?,
                Operator::Greater | Operator::AtLeast => may(most, term.operator)?,
            };
            parts = &parts & &own;
        }
        Ok(parts)
    }
}

/// The rows for which it is known, and true.
fn holding(rows: &BooleanArray) -> BooleanBuffer {
    match rows.nulls() {
        None => rows.values().clone(),
        Some(nulls) => rows.values() & nulls.inner(),
    }
}

/// The values that are there, and numbers if they are to be.
fn known(array: &ArrayRef) -> Result<BooleanBuffer, ArrowError> {
    if array.data_type().is_floating() {
        let numbers = cast(array, &DataType::Float64)?;
        let numbers = numbers.as_primitive::<Float64Type>();
        return Ok(BooleanBuffer::collect_bool(numbers.len(), |row| {
            numbers.is_valid(row) && !numbers.value(row).is_nan()
        }));
    }
    Ok(array.nulls().map_or_else(|| BooleanBuffer::new_set(array.len()), |nulls| nulls.inner().clone()))
}

fn compared(array: &dyn Array, operator: Operator, value: &ArrayRef) -> Result<BooleanArray, ArrowError> {
    if array.data_type().is_floating() {
        let numbers = cast(array, &DataType::Float64)?;
        let value = cast(value, &DataType::Float64)?.as_primitive::<Float64Type>().value(0);
        let holds = |own: f64| {
            own.partial_cmp(&value).map_or(operator == Operator::Unequal, |order| operator.holds(order))
        };
        return Ok(BooleanArray::from_unary(numbers.as_primitive::<Float64Type>(), holds));
    }
    let value = Scalar::new(Arc::clone(value));
    let array: &dyn Array = array;
    match operator {
        Operator::Equal => cmp::eq(&array, &value),
        Operator::Unequal => cmp::neq(&array, &value),
        Operator::Less => cmp::lt(&array, &value),
        Operator::AtMost => cmp::lt_eq(&array, &value),
        Operator::Greater => cmp::gt(&array, &value),
        Operator::AtLeast => cmp::gt_eq(&array, &value),
    }
}

/// A value of this type, from its text. A text that is finer than the type is refused, as it would compare
/// as another value.
fn literal(text: &str, kind: &DataType) -> Result<ArrayRef, String> {
    let bad = |_| format!("{text:?} is no value of its type, {kind}");
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let own: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let exact = |finest: &[DataType]| {
        let fine = finest.iter().find_map(|finer| cast_with_options(&own, finer, &strict).ok());
        let fine = fine.ok_or_else(|| bad(()))?;
        let value = cast_with_options(&fine, kind, &strict).map_err(|_| bad(()))?;
        let again = cast_with_options(&value, fine.data_type(), &strict).map_err(|_| bad(()))?;
        if again == fine { Ok(value) } else { Err(format!("{text:?} is finer than its type, {kind}")) }
    };
    match kind {
        DataType::Utf8 => Ok(own),
        DataType::Binary => Ok(Arc::new(BinaryArray::from(vec![text.as_bytes()]))),
        DataType::Timestamp(_, zone) => {
            use TimeUnit::{Microsecond, Millisecond, Nanosecond};
            // Names of zones are not known here: a text without one is taken for UTC.
            let of = |unit| DataType::Timestamp(unit, zone.as_ref().map(|_| "+00:00".into()));
            exact(&[of(Nanosecond), of(Microsecond), of(Millisecond)])
        }
        DataType::Time32(_) | DataType::Time64(_) => exact(&[DataType::Time64(TimeUnit::Nanosecond)]),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let (_, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let is_plain = digits.chars().all(|one| one.is_ascii_digit() || one == '.') && *scale >= 0;
            let finest = usize::try_from(*scale).unwrap_or(0);
            if !is_plain || fraction.trim_end_matches('0').len() > finest {
                return Err(format!(
                    "{text:?} is no number of at most {scale} decimals, as is its type, {kind}"
                ));
            }
            cast_with_options(&own, kind, &strict).map_err(|_| bad(()))
        }
        DataType::Boolean | DataType::Date32 | DataType::Date64 => {
            cast_with_options(&own, kind, &strict).map_err(|_| bad(()))
        }
        number if number.is_integer() => cast_with_options(&own, kind, &strict).map_err(|_| bad(())),
        number if number.is_floating() => {
            let value = cast_with_options(&own, kind, &strict).map_err(|_| bad(()))?;
            let is_known = known(&value).map_err(|_| bad(()))?.value(0);
            if is_known { Ok(value) } else { Err(bad(())) }
        }
        _ => Err(format!("values of its type, {kind}, are not compared")),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, Int32Array, TimestampMillisecondArray};

    use super::*;

    fn selected(condition: &str, array: &dyn Array) -> Vec<usize> {
        let all = Comparison::parse_all(condition).expect("a condition");
        let all: Vec<&Comparison> = all.iter().collect();
        let predicate = Predicate::new(&all, array.data_type()).expect("it fits the type");
        predicate.rows(array).expect("it can be compared").set_indices().collect()
    }

    #[test]
    fn missing_values_fulfil_nothing_and_what_is_no_number_differs() {
        let array = Int32Array::from(vec![Some(1), None, Some(3)]);
        assert_eq!(selected("a!=1", &array), [2]);
        assert_eq!(selected("a>=1 and a<3", &array), [0]);
        let array = Float32Array::from(vec![0.5, f32::NAN, -0.0]);
        assert_eq!(selected("a>0.1", &array), [0]);
        assert_eq!(selected("a!=0.5", &array), [1, 2]);
        assert_eq!(selected("a=0", &array), [2]);
    }

    #[test]
    fn values_that_do_not_fit_the_type_are_named() {
        let refused = |value: &str, kind: DataType| {
            let own =
                Comparison { column: "a".to_owned(), operator: Operator::Less, value: value.to_owned() };
            Predicate::new(&[&own], &kind).expect_err("it does not fit")
        };
        assert!(refused("ten", DataType::Int32).contains("\"ten\" is no value of its type, Int32"));
        refused("1.5", DataType::Int64);
        refused("NaN", DataType::Float64);
        refused("1.555", DataType::Decimal128(9, 2));
        refused("12:00:00.5", DataType::Time32(TimeUnit::Second));
        refused("2024-01-01T00:00:00.0001", DataType::Timestamp(TimeUnit::Millisecond, None));
        refused("x", DataType::FixedSizeBinary(1));
        let times = TimestampMillisecondArray::from(vec![0, 1_704_067_200_000]);
        assert_eq!(selected("a>=2024-01-01", &times), [1]);
    }
}
