//! [`Socket`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::context;
use crate::reactor::op::close::Fd;

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
pub struct Socket(pub(super) Rc<Fd>);

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
        Ok(Self(Fd::new(fd.into(), context::reactor()?)))
    }

    /// Takes the descriptor back, if this is its only owner: no clone and no operation in flight uses it.
    ///
    /// # Errors
    ///
    /// The socket itself, if something else still uses it.
    pub fn try_into_fd(self) -> Result<OwnedFd, Self> {
        Fd::try_unwrap(self.0).map_err(Self)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
