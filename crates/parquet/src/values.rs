//! Arrays of values as bytes: the buffers that Arrow IPC would send, without the message around them.
//!
//! A page's part of an answer is often smaller than the description of an IPC message, and both sides know
//! the type. The form: 1 if a bitmap of the valid rows follows, else 0; the bitmap; then of texts their
//! lengths (LEB128) and bytes, of anything else the values as Arrow has them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::types::{BinaryType, Utf8Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayDataBuilder;
use arrow_schema::DataType;

/// Bytes of a value of this type, if all have the same number.
pub(crate) fn width(kind: &DataType) -> Option<usize> {
    match kind {
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        _ => kind.primitive_width(),
    }
}

/// Returns true if arrays of this type have a form.
pub(crate) fn is_known(kind: &DataType) -> bool {
    width(kind).is_some() || matches!(kind, DataType::Boolean | DataType::Utf8 | DataType::Binary)
}

/// The form of an array; `None` if its type has none.
pub(crate) fn encode(array: &dyn Array) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => out.push(0),
        Some(nulls) => {
            out.push(1);
            put_bits(&mut out, nulls.inner());
        }
    }
    match array.data_type() {
        DataType::Boolean => put_bits(&mut out, array.as_boolean().values()),
        DataType::Utf8 => put_bytes::<Utf8Type>(&mut out, array.as_bytes()),
        DataType::Binary => put_bytes::<BinaryType>(&mut out, array.as_bytes()),
        kind => {
            let width = width(kind)?;
            let data = array.to_data();
            let from = data.offset() * width;
            out.extend_from_slice(data.buffers()[0].get(from..from + data.len() * width)?);
        }
    }
    Some(out)
}

/// The array of `length` values of this type in this form; `None` if it is none.
pub(crate) fn decode(kind: &DataType, length: usize, bytes: &[u8]) -> Option<ArrayRef> {
    let (&has_nulls, mut input) = bytes.split_first()?;
    let nulls = match has_nulls {
        0 => None,
        1 => Some(NullBuffer::new(take_bits(&mut input, length)?)),
        _ => return None,
    };
    let data = match kind {
        DataType::Boolean => {
            let values = take_bits(&mut input, length)?;
            ArrayDataBuilder::new(kind.clone()).len(length).add_buffer(values.into_inner())
        }
        DataType::Utf8 => return take_bytes::<Utf8Type>(input, length, nulls),
        DataType::Binary => return take_bytes::<BinaryType>(input, length, nulls),
        _ => {
            let values = input.split_off(..length.checked_mul(width(kind)?)?)?;
            ArrayDataBuilder::new(kind.clone()).len(length).add_buffer(Buffer::from(values))
        }
    };
    if !input.is_empty() {
        return None;
    }
    Some(make_array(data.nulls(nulls).build().ok()?))
}

fn put_bits(out: &mut Vec<u8>, bits: &BooleanBuffer) {
    let from = out.len();
    out.resize(from + bits.len().div_ceil(8), 0);
    for bit in bits.set_indices() {
        out[from + bit / 8] |= 1 << (bit % 8);
    }
}

fn take_bits(input: &mut &[u8], length: usize) -> Option<BooleanBuffer> {
    let bytes = input.split_off(..length.div_ceil(8))?;
    Some(BooleanBuffer::new(Buffer::from(bytes), 0, length))
}

fn put_bytes<T: ByteArrayType<Offset = i32>>(out: &mut Vec<u8>, array: &GenericByteArray<T>) {
    let lengths = array.offsets().windows(2).map(|pair| pair[1].abs_diff(pair[0]));
    for length in lengths {
        let mut left = length;
        while left >= 128 {
            out.push(u8::try_from(left & 127).expect("seven bits") | 128);
            left >>= 7;
        }
        out.push(u8::try_from(left).expect("seven bits"));
    }
    let offsets = array.value_offsets();
    let at = |offset: Option<&i32>| offset.map_or(0, |&own| usize::try_from(own).unwrap_or(0));
    out.extend_from_slice(&array.value_data()[at(offsets.first())..at(offsets.last())]);
}

fn take_bytes<T: ByteArrayType<Offset = i32>>(
    bytes: &[u8],
    length: usize,
    nulls: Option<NullBuffer>,
) -> Option<ArrayRef> {
    let mut input = bytes;
    // Each length has a byte at least.
    let mut lengths = Vec::with_capacity(length.min(input.len()));
    for _ in 0..length {
        let mut own = 0_usize;
        let mut shift = 0;
        loop {
            let (&byte, rest) = input.split_first()?;
            input = rest;
            own |= usize::from(byte & 127) << shift;
            shift += 7;
            if byte & 128 == 0 {
                break;
            }
            if shift > 28 {
                return None;
            }
        }
        lengths.push(own);
    }
    let all = lengths.iter().try_fold(0_usize, |all, &own| all.checked_add(own))?;
    if all != input.len() || i32::try_from(all).is_err() {
        return None;
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let array = GenericByteArray::<T>::try_new(offsets, Buffer::from(input), nulls).ok()?;
    Some(Arc::new(array))
}

#[cfg(test)]
mod tests {
    use arrow_array::{BooleanArray, Decimal128Array, FixedSizeBinaryArray, Int64Array, StringArray};

    use super::*;

    fn check(array: &dyn Array) {
        for from in 0..array.len() {
            let part = array.slice(from, array.len() - from);
            let form = encode(&*part).expect("a form");
            let again = decode(part.data_type(), part.len(), &form).expect("its own");
            assert_eq!(&again, &part);
            assert!(decode(part.data_type(), part.len() + 8, &form).is_none());
            for end in 0..form.len() {
                assert!(decode(part.data_type(), part.len(), &form[..end]).is_none(), "{end}");
            }
        }
    }

    #[test]
    fn arrays_come_back_and_what_is_cut_off_is_refused() {
        check(&Int64Array::from(vec![Some(1), None, Some(-3)]));
        check(&BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]));
        let long = "x".repeat(300);
        check(&StringArray::from(vec![Some("a"), None, Some(""), Some(&long), Some("\u{e9}")]));
        check(&Decimal128Array::from(vec![1, 2]).with_precision_and_scale(9, 2).expect("a decimal"));
        check(&FixedSizeBinaryArray::try_from_iter([[1_u8; 3], [2; 3]].into_iter()).expect("good"));
        assert!(decode(&DataType::Utf8, 1, &[0, 1, 0xff]).is_none(), "no text");
    }
}
