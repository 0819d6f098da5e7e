//! Close.

use std::os::fd::{IntoRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};

/// The ring form of close: it goes out with the turn's one enter instead of a system call of its own. From here on
/// the SQE is the descriptor's owner.
pub(crate) fn ring_form(fd: OwnedFd) -> squeue::Entry {
    opcode::Close::new(types::Fd(fd.into_raw_fd())).build()
}
