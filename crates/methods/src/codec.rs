//! The bytes of partial answers: numbers of variable length (LEB128) and strings with their lengths.

use crate::program::MethodError;

/// Appends numbers and strings.
#[derive(Debug, Default)]
pub(crate) struct Output(pub(crate) Vec<u8>);

/// Takes numbers and strings from the front.
#[derive(Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Output {
    pub(crate) fn number(&mut self, number: u64) {
        let mut left = number;
        while left >= 0x80 {
            self.0.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
            left >>= 7;
        }
        self.0.push(u8::try_from(left).expect("seven bits"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(u64::try_from(bytes.len()).expect("memory is shorter than 2^64 bytes"));
        self.0.extend_from_slice(bytes);
    }
}

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn number(&mut self) -> Result<u64, MethodError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(MethodError::Partial)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(MethodError::Partial)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], MethodError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(MethodError::Partial)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MethodError> {
        let length = usize::try_from(self.number()?).map_err(|_| MethodError::Partial)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_come_back_and_what_is_cut_off_is_refused() {
        let numbers = [0, 1, 127, 128, 300, u64::MAX - 1, u64::MAX];
        let mut out = Output::default();
        numbers.iter().for_each(|&number| out.number(number));
        out.bytes(b"ab");
        let mut input = Input(&out.0);
        numbers.iter().for_each(|&number| assert_eq!(input.number(), Ok(number)));
        assert_eq!(input.bytes(), Ok(&b"ab"[..]));
        assert!(input.is_empty());
        assert_eq!(Input(&[0x80]).number(), Err(MethodError::Partial));
        assert_eq!(Input(&[0xff; 11]).number(), Err(MethodError::Partial), "more than 64 bits");
        assert_eq!(Input(&[3, 1]).bytes(), Err(MethodError::Partial));
    }
}
