//! Gives up what a process that runs foreign code does not need: files, processes, system calls.
//!
//! What is left are reads and writes of what is open, memory, and the end of the process. Any other call ends
//! it at once. The list is by hand, as it is short.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space of the process: an instance's memory takes 4 GiB of addresses, of which few are backed.
const ADDRESSES: u64 = 16 << 30;
/// Memory that the process may write.
const DATA_BYTES: u64 = 512 << 20;
/// Seconds of processor time in the process's life. The parent ends it long before.
const SECONDS: u64 = 600;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// The system calls that are left. Descriptors cannot be made, so reads and writes are those of the socket.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Locks this process down, for good. On an error it may be locked in part.
pub fn lock_down() -> io::Result<()> {
    let bounds = [
        (Resource::As, ADDRESSES),
        (Resource::Data, DATA_BYTES),
        (Resource::Cpu, SECONDS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nofile, 0),
        (Resource::Nproc, 0),
    ];
    for (resource, most) in bounds {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    rustix::thread::set_no_new_privs(true)?;
    filter()
}

/// Has the kernel end the process at any call that is not of the list.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[expect(unsafe_code, reason = "the kernel takes a pointer to the filter")]
fn filter() -> io::Result<()> {
    /// Offsets of the call's number and of the architecture in what a filter looks at.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    let statement =
        |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k };
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let end = |how| statement(libc::BPF_RET | libc::BPF_K, how);
    // Goes on with the next statement if the value is `k`, else leaves it out.
    let equals = |k| libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) };
    let mut program = vec![load(ARCH), equals(ARCHITECTURE), load(NUMBER)];
    // Of another architecture: the number is not loaded, and what is there is no call of the list.
    for &call in CALLS {
        let number = u32::try_from(call).map_err(io::Error::other)?;
        program.extend([equals(number), end(libc::SECCOMP_RET_ALLOW)]);
    }
    program.push(end(libc::SECCOMP_RET_KILL_PROCESS));
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `program`, which lives until the call returns; the kernel copies both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} could not be locked down"))),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn filter() -> io::Result<()> {
    Err(io::Error::other("modules do not run on this kind of processor: its system calls are not filtered"))
}
