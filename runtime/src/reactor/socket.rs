//! [`Socket`]: the descriptor that a stream's halves and its operations share.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::Reactor;
use crate::context;

/// A shared owner of one descriptor, on one worker.
///
/// The descriptor is closed, with the worker's next turn, when the last clone is gone *and* the kernel has finished
/// every operation on it. So an operation never outlives the number it was given, and a number is never given to
/// another file while an operation still names it.
///
/// # Examples
///
/// ```
/// use std::os::fd::AsRawFd;
/// use runtime::io::Socket;
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let (a, _b) = std::os::unix::net::UnixStream::pair()?;
/// let number = a.as_raw_fd();
/// let socket = Socket::new(a)?;
/// assert_eq!(socket.as_raw_fd(), number);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Socket(Rc<Fd>);

impl Socket {
    /// Adopts a descriptor on the current worker.
    ///
    /// It should be in blocking mode, in which older kernels wait for a listener or a connection as they should;
    /// operations of the ring never block the thread.
    ///
    /// # Errors
    ///
    /// Outside a runtime.
    pub fn new(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let fd = fd.into();
        Ok(Self(Rc::new(Fd {
            raw: fd.as_raw_fd(),
            owned: Some(fd),
            reactor: context::reactor()?,
        })))
    }

    /// Takes the descriptor back, if this is its only owner: no clone and no operation in flight uses it.
    ///
    /// # Errors
    ///
    /// The socket itself, if something else still uses it.
    pub fn try_into_fd(self) -> Result<OwnedFd, Self> {
        let mut fd = Rc::try_unwrap(self.0).map_err(Self)?;
        match fd.owned.take() {
            Some(owned) => {
                fd.reactor.forget(fd.raw);
                Ok(owned)
            }
            None => Err(Self(Rc::new(fd))),
        }
    }

    /// Ends one direction, or both, at once. Bytes that wait in an outbox are not waited for.
    ///
    /// # Errors
    ///
    /// What `shutdown` reports: [`NotConnected`](io::ErrorKind::NotConnected) if the connection is gone already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.reactor().system().shutdown(self.as_fd(), how)
    }

    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.0.reactor
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0.owned {
            Some(fd) => fd.as_fd(),
            None => unreachable!("a socket that is borrowed was neither unwrapped nor dropped"),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.raw
    }
}

/// A descriptor that is closed when nothing uses it any more: no socket and no op in flight.
///
/// An armed op holds the *file*, not the number; closing the number under it would leave the op running (the peer
/// sees no FIN) and could hand the number to another file while an SQE that names it is still unsubmitted. Ops
/// hold a `Socket`, so the close is ordered after the last of them by construction.
struct Fd {
    raw: RawFd,
    /// `None` only while `try_into_fd` or `drop` runs.
    owned: Option<OwnedFd>,
    reactor: Rc<Reactor>,
}

impl Drop for Fd {
    fn drop(&mut self) {
        if let Some(fd) = self.owned.take() {
            self.reactor.close(fd);
        }
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}
