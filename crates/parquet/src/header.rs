//! The headers of pages: Thrift's compact encoding, of which a header needs little.
//!
//! The crate parquet reads such headers too, but only inside its page reader, which takes the claimed size
//! of a page for true. Here sizes are looked at before anything is decoded.

/// Structures inside structures, at most.
const DEPTH_MAX: usize = 8;

/// A kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Holds the values of a dictionary.
    Dictionary,
    /// Holds values of rows.
    Data,
    /// Neither of these.
    Other,
}

/// A page's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the header itself.
    pub(crate) length: usize,
    /// The kind of the page.
    pub(crate) kind: Kind,
    /// Bytes of the page behind its header.
    pub(crate) compressed: u32,
    /// Bytes that it claims to have once it is decompressed.
    pub(crate) uncompressed: u32,
    /// Number of values, missing ones included: of a flat column that many rows.
    pub(crate) values: u32,
    /// Number of the encoding.
    pub(crate) encoding: i64,
    /// Bytes of levels in front of the values that are not compressed (pages of version 2).
    pub(crate) levels: u32,
    /// False if the values are not compressed, whatever the column's codec says.
    pub(crate) is_compressed: bool,
}

/// Reason for which bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// It goes on behind the bytes.
    Short,
    /// It is none.
    Bad,
}

struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field of a structure: its number and its type.
#[derive(Clone, Copy)]
struct Field {
    number: i64,
    kind: u8,
}

impl Header {
    /// Parses the header at the front of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        let mut thrift = Thrift { bytes, at: 0 };
        let mut header = Header {
            length: 0,
            kind: Kind::Other,
            compressed: u32::MAX,
            uncompressed: u32::MAX,
            values: 0,
            encoding: -1,
            levels: 0,
            is_compressed: true,
        };
        let mut last = 0;
        while let Some(field) = thrift.field(&mut last)? {
            match field.number {
                1 => {
                    header.kind = match thrift.integer(field)? {
                        0 | 3 => Kind::Data,
                        2 => Kind::Dictionary,
                        _ => Kind::Other,
                    };
                }
                2 => header.uncompressed = thrift.size(field)?,
                3 => header.compressed = thrift.size(field)?,
                5 | 7 => thrift.values(field, &mut header, 2)?,
                8 => thrift.values(field, &mut header, 4)?,
                _ => thrift.skip(field.kind, 0)?,
            }
        }
        header.length = thrift.at;
        // Both sizes are required.
        let is_whole = header.compressed <= i32::MAX.unsigned_abs() && header.uncompressed <= 1 << 31;
        if is_whole { Ok(header) } else { Err(HeaderError::Bad) }
    }

    /// Bytes of the header and the page.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.length).unwrap_or(u64::MAX) + u64::from(self.compressed)
    }

    /// Returns true if the values are numbers of entries of the dictionary.
    pub(crate) fn needs_dictionary(&self) -> bool {
        matches!(self.encoding, 2 | 8)
    }

    /// Returns true if a value may be far longer than what is stored of it.
    pub(crate) fn is_delta_bytes(&self) -> bool {
        self.encoding == 7
    }
}

impl Thrift<'_> {
    fn byte(&mut self) -> Result<u8, HeaderError> {
        let byte = *self.bytes.get(self.at).ok_or(HeaderError::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, HeaderError> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HeaderError::Bad)
    }

    fn signed(&mut self) -> Result<i64, HeaderError> {
        let number = self.number()?;
        let half = i64::try_from(number >> 1).map_err(|_| HeaderError::Bad)?;
        Ok(if number & 1 == 0 { half } else { -1 - half })
    }

    /// The next field of a structure whose last field had this number; `None` at its end.
    fn field(&mut self, last: &mut i64) -> Result<Option<Field>, HeaderError> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        let step = i64::from(byte >> 4);
        *last = if step == 0 { self.signed()? } else { last.saturating_add(step) };
        Ok(Some(Field { number: *last, kind: byte & 15 }))
    }

    fn integer(&mut self, field: Field) -> Result<i64, HeaderError> {
        if matches!(field.kind, 4..=6) { self.signed() } else { Err(HeaderError::Bad) }
    }

    fn size(&mut self, field: Field) -> Result<u32, HeaderError> {
        u32::try_from(self.integer(field)?).map_err(|_| HeaderError::Bad)
    }

    /// The part of a header that one kind of page has. `encoding`: number of the encoding's field.
    fn values(&mut self, field: Field, header: &mut Header, encoding: i64) -> Result<(), HeaderError> {
        if field.kind != 12 {
            return Err(HeaderError::Bad);
        }
        let mut last = 0;
        while let Some(field) = self.field(&mut last)? {
            match field.number {
                1 => header.values = self.size(field)?,
                number if number == encoding => header.encoding = self.integer(field)?,
                5 | 6 if encoding == 4 => {
                    header.levels = header.levels.checked_add(self.size(field)?).ok_or(HeaderError::Bad)?;
                }
                7 if encoding == 4 && field.kind == 2 => header.is_compressed = false,
                _ => self.skip(field.kind, 1)?,
            }
        }
        Ok(())
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), HeaderError> {
        if depth > DEPTH_MAX {
            return Err(HeaderError::Bad);
        }
        match kind {
            1 | 2 => Ok(()),
            3 => self.pass(1),
            4..=6 => self.number().map(drop),
            7 => self.pass(8),
            8 => {
                let bytes = self.number()?;
                self.pass(usize::try_from(bytes).map_err(|_| HeaderError::Bad)?)
            }
            9 | 10 => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.number()? } else { u64::from(byte >> 4) };
                for _ in 0..count {
                    // A yes or no in a list is a byte.
                    let kind = if matches!(byte & 15, 1 | 2) { 3 } else { byte & 15 };
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            12 => {
                let mut last = 0;
                while let Some(field) = self.field(&mut last)? {
                    self.skip(field.kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(HeaderError::Bad),
        }
    }

    fn pass(&mut self, bytes: usize) -> Result<(), HeaderError> {
        let end = self.at.checked_add(bytes).ok_or(HeaderError::Bad)?;
        if end > self.bytes.len() {
            return Err(HeaderError::Short);
        }
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of version 1: 100 values, plain, 80 bytes that were 800.
    const DATA: &[u8] = &[
        0x15, 0, 0x15, 0xc0, 0x0c, 0x15, 0xa0, 0x01, 0x2c, 0x15, 0xc8, 0x01, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0,
    ];

    #[test]
    fn a_header_is_read_and_one_that_is_cut_off_is_told_apart_from_a_bad_one() {
        let header = Header::parse(&[DATA, &[9; 80]].concat()).expect("a header");
        assert_eq!((header.kind, header.values, header.encoding), (Kind::Data, 100, 0));
        assert_eq!((header.compressed, header.uncompressed, header.bytes()), (80, 800, 100));
        for length in 0..DATA.len() {
            assert_eq!(Header::parse(&DATA[..length]), Err(HeaderError::Short), "{length}");
        }
        assert_eq!(Header::parse(&[0]), Err(HeaderError::Bad), "no sizes");
        assert_eq!(Header::parse(b"PAR1PAR1"), Err(HeaderError::Bad));
    }
}
