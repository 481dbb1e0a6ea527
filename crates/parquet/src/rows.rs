//! Which rows are selected, in few bytes: what a drive answers, and what it is told.
//!
//! The form is ASCII, as arguments of methods are texts. After a letter come numbers of 6 bits a byte, the
//! least part first; bit 6 says that more follows. `a`: all rows. `n`: none. `r`: runs: twice the rows
//! between two runs, plus 1 if the run's length follows; else it has one row. `b`: six rows a byte. The
//! shorter one of `r` and `b` is taken.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left >= 64 {
        out.push(u8::try_from(left & 63).expect("six bits") | 64);
        left >>= 6;
    }
    out.push(u8::try_from(left).expect("six bits"));
}

/// Takes a number from the front.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(6) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let bits = u64::from(byte & 63);
        if byte > 127 || bits.checked_shl(shift)? >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// The form of a selection.
pub(crate) fn encode(rows: &BooleanBuffer) -> Vec<u8> {
    let selected = rows.count_set_bits();
    if selected == 0 || selected == rows.len() {
        return if selected == 0 { b"n".to_vec() } else { b"a".to_vec() };
    }
    let bitmap_bytes = 1 + rows.len().div_ceil(6);
    let mut runs = b"r".to_vec();
    let mut at = 0;
    for (from, to) in rows.set_slices() {
        let gap = wide(from - at) * 2;
        if to - from == 1 {
            put(&mut runs, gap);
        } else {
            put(&mut runs, gap + 1);
            put(&mut runs, wide(to - from));
        }
        at = to;
        if runs.len() > bitmap_bytes {
            return bitmap(rows);
        }
    }
    runs
}

fn bitmap(rows: &BooleanBuffer) -> Vec<u8> {
    let mut out = b"b".to_vec();
    out.resize(1 + rows.len().div_ceil(6), 0);
    for row in rows.set_indices() {
        out[1 + row / 6] |= 1 << (row % 6);
    }
    out
}

/// The selection among `length` rows of this form; `None` if it is none.
pub(crate) fn decode(bytes: &[u8], length: usize) -> Option<BooleanBuffer> {
    let (kind, mut input) = bytes.split_first()?;
    match kind {
        b'a' if input.is_empty() => Some(BooleanBuffer::new_set(length)),
        b'n' if input.is_empty() => Some(BooleanBuffer::new_unset(length)),
        b'b' if input.len() == length.div_ceil(6) && input.iter().all(|&byte| byte < 64) => {
            Some(BooleanBuffer::collect_bool(length, |row| input[row / 6] >> (row % 6) & 1 == 1))
        }
        b'r' => {
            let mut rows = BooleanBufferBuilder::new(length);
            while !input.is_empty() {
                let number = take(&mut input)?;
                let run = if number & 1 == 1 { take(&mut input)? } else { 1 };
                let gap = usize::try_from(number / 2).ok()?;
                let run = usize::try_from(run).ok()?;
                let left = length - rows.len();
                if gap.checked_add(run)? > left {
                    return None;
                }
                rows.append_n(gap, false);
                rows.append_n(run, true);
            }
            rows.append_n(length - rows.len(), false);
            Some(rows.finish())
        }
        _ => None,
    }
}

/// A count, as a number of 64 bits.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("memory is shorter than 2^64 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_come_back_and_are_short() {
        let check = |rows: BooleanBuffer, bytes_max: usize| {
            let form = encode(&rows);
            assert!(form.is_ascii() && form.len() <= bytes_max, "{} bytes", form.len());
            assert_eq!(decode(&form, rows.len()), Some(rows));
        };
        let of = |rows: usize, is: fn(usize) -> bool| BooleanBuffer::collect_bool(rows, is);
        check(of(1000, |_| true), 1);
        check(of(1000, |_| false), 1);
        check(of(10_000, |row| row % 100 == 7), 201);
        check(of(10_000, |row| row % 2 == 0), 1668);
        check(of(10_000, |row| (3000..7000).contains(&row)), 8);
        check(of(7, |row| row % 3 == 0), 3);
        check(BooleanBuffer::new_set(0), 1);
    }

    #[test]
    fn what_is_no_selection_is_refused() {
        for bad in [
            &b""[..],
            b"x",
            b"r\x7f",
            b"b",
            b"r\x04",
            b"aa",
            b"r\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f",
        ] {
            assert_eq!(decode(bad, 2), None, "{bad:?}");
        }
    }
}
