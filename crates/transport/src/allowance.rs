//! What a peer may send before it has proved who it is.
//!
//! Its connections are bounded by `slots`, its time by `Limits::proof`, the memory of one frame by
//! `STRANGER_BODY_BYTES_MAX`. This bounds the frames, each of which costs the check of a proof, and the
//! bytes. Honest peers send one frame, or as many as a client has in flight when its capabilities are out of
//! date.

/// Maximum number of frames of a connection before its peer is authenticated.
const FRAMES_MAX: u32 = 512;
/// Maximum number of bytes of a connection before its peer is authenticated: more than a client has in
/// flight.
const BYTES_MAX: u64 = 128 << 20;

/// The rest of a connection's allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    frames: u32,
    bytes: u64,
}

/// The bound that an unauthenticated peer has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    Frames(u32),
    Bytes(u64),
}

impl Allowance {
    pub(crate) fn new() -> Allowance {
        Allowance { frames: FRAMES_MAX, bytes: BYTES_MAX }
    }

    /// Takes a frame of this many bytes, its header among them, off the allowance.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Spent> {
        self.frames = self.frames.checked_sub(1).ok_or(Spent::Frames(FRAMES_MAX))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Spent::Bytes(BYTES_MAX))?;
        Ok(())
    }
}

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spent::Frames(most) => write!(f, "more than {most} frames"),
            Spent::Bytes(most) => write!(f, "more than {most} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_bytes_are_both_bounded() {
        let mut many = Allowance::new();
        for _ in 0..FRAMES_MAX {
            assert_eq!(many.take(64), Ok(()));
        }
        assert_eq!(many.take(64), Err(Spent::Frames(FRAMES_MAX)));
        let mut large = Allowance::new();
        assert_eq!(large.take(BYTES_MAX - 1), Ok(()));
        assert_eq!(large.take(2), Err(Spent::Bytes(BYTES_MAX)));
        assert_eq!(large.take(1), Ok(()), "that one still fits");
        assert_eq!(Allowance::new().take(u64::MAX), Err(Spent::Bytes(BYTES_MAX)));
    }
}
