//! Fields of datagrams: little-endian and of fixed width.

/// Takes fields from the front of bytes; `None` where they end too early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The number of bytes as a u64.
pub(crate) fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("sizes have at most 64 bits")
}

/// The number as a length in memory; greater ones than memory has are the greatest.
pub(crate) fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The lower 32 bits.
pub(crate) fn low(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).expect("32 bits")
}

/// The number for calculations with fractions.
#[expect(clippy::cast_precision_loss, reason = "windows and times are known with fewer digits")]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}

/// The nearest whole number, from 0 to 10^18.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
pub(crate) fn whole(number: f64) -> u64 {
    if number.is_nan() { 0 } else { number.round().clamp(0.0, 1e18) as u64 }
}
