//! Has the kernel ask for a name before it next uses it, without taking the name away: a program whose
//! working directory it is still has one. `fuser` has no call for that (FUSE_NOTIFY_INVAL_ENTRY with
//! FUSE_EXPIRE_ONLY, Linux 6.2; earlier kernels take the name away).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use fuser::INodeNo;

/// Number of the message "a name is not valid any more".
const INVAL_ENTRY: u32 = 3;
/// Flag of the message: the name is only to be asked for again.
const EXPIRE_ONLY: u32 = 1;
/// Number of bytes before the name: length, message, a request number of zero, directory, length of the name,
/// flags.
const HEAD_BYTES: usize = 32;

/// Sender of expiry messages to the kernel.
pub(crate) struct Expiry {
    device: OwnedFd,
}

impl Expiry {
    /// Sends by a mount's own device.
    pub(crate) fn new(device: impl AsFd) -> io::Result<Expiry> {
        Ok(Expiry { device: device.as_fd().try_clone_to_owned()? })
    }

    /// Tells the kernel to expire a name. The call may have to wait for requests that are under way in the
    /// directory.
    pub(crate) fn expire(&self, directory: INodeNo, name: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.device, &message(directory, name)) {
            // The kernel does not know the name.
            Err(rustix::io::Errno::NOENT) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

fn message(directory: INodeNo, name: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_ne_bytes();
    [
        &length(HEAD_BYTES + name.len() + 1)[..],
        &INVAL_ENTRY.to_ne_bytes(),
        &0u64.to_ne_bytes(),
        &directory.0.to_ne_bytes(),
        &length(name.len()),
        &EXPIRE_ONLY.to_ne_bytes(),
        name,
        &[0],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_as_the_kernel_has_it() {
        let message = message(INodeNo(0x42), b"abc");
        let number = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(message.len(), HEAD_BYTES + 4);
        assert_eq!([0, 4, 8, 16, 24, 28].map(number), [36, 3, 0, 0x42, 3, 1]);
        assert_eq!(&message[32..], b"abc\0");
    }
}
