//! What both hand-written ring loops share.

use std::io;

use io_uring::{IoUring, squeue};

/// A ring with the flags that a loop on one thread wants.
pub fn ring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(4 * ENTRIES)
        .build(ENTRIES)
}

/// What a completion belongs to: a kind of operation, and the number of a connection.
pub fn tag(kind: u8, number: usize) -> u64 {
    (number as u64) << 8 | u64::from(kind)
}

/// The kind and the number of a completion.
pub fn untag(user_data: u64) -> (u8, usize) {
    (user_data as u8, (user_data >> 8) as usize)
}

/// Queues an operation, and makes room for it first if there is none.
///
/// # Safety
///
/// What the operation points to must live for as long as the kernel needs it.
pub unsafe fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: by contract.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
    }
    Ok(())
}

/// Submits everything, and waits for at least one completion.
pub fn enter(ring: &mut IoUring) -> io::Result<()> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) if ring.submission().is_empty() => return Ok(()),
            Ok(_) => {}
            // Interrupted, or the completion queue wants to be emptied first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

const ENTRIES: u32 = 4096;
