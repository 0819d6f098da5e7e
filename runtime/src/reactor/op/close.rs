//! Close: the descriptor that ops share, and its end.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use crate::reactor::Reactor;

/// A descriptor that is closed when nothing uses it any more: no socket and no op in flight.
///
/// An armed op holds the *file*, not the number; closing the number under it would leave the op running (the peer
/// sees no FIN) and could hand the number to another file while an SQE that names it is still unsubmitted. Ops
/// hold an `Rc<Fd>`, so the close is ordered after the last of them by construction.
pub(crate) struct Fd {
    raw: RawFd,
    /// `None` only while `try_unwrap` or `drop` runs.
    owned: Option<OwnedFd>,
    reactor: Rc<Reactor>,
}

impl Fd {
    pub(crate) fn new(fd: OwnedFd, reactor: Rc<Reactor>) -> Rc<Self> {
        Rc::new(Self {
            raw: fd.as_raw_fd(),
            owned: Some(fd),
            reactor,
        })
    }

    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// The descriptor, if this is its last owner.
    pub(crate) fn try_unwrap(self: Rc<Self>) -> Result<OwnedFd, Rc<Self>> {
        let mut this = Rc::try_unwrap(self)?;
        match this.owned.take() {
            Some(fd) => {
                this.reactor.forget(this.raw);
                Ok(fd)
            }
            None => Err(Rc::new(this)),
        }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if let Some(fd) = self.owned.take() {
            self.reactor.close(fd);
        }
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.owned {
            Some(fd) => fd.as_fd(),
            None => unreachable!("a borrowed Fd is neither unwrapped nor dropped"),
        }
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.raw
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fd").field(&self.raw).finish()
    }
}

/// The ring form of close: it goes out with the turn's one enter instead of a system call of its own. From here on
/// the SQE is the descriptor's owner.
pub(crate) fn ring_form(fd: OwnedFd) -> squeue::Entry {
    opcode::Close::new(types::Fd(fd.into_raw_fd())).build()
}
