//! [`Socket`]: a descriptor, and what is under way on it, shared by a stream's halves and its operations.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::Reactor;
use super::op::recv::RecvSide;
use super::op::send::SendSide;
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
#[derive(Clone)]
pub struct Socket(Rc<Endpoint>);

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
        Ok(Self(Rc::new(Endpoint {
            fd: Some(fd.into()),
            reactor: context::reactor()?,
            listed: Cell::new(0),
            recv: RecvSide::default(),
            send: SendSide::default(),
        })))
    }

    /// Takes the descriptor back, if this is its only owner: no clone and no operation in flight uses it.
    ///
    /// # Errors
    ///
    /// The socket itself, if something else still uses it.
    pub fn try_into_fd(self) -> Result<OwnedFd, Self> {
        let mut endpoint = Rc::try_unwrap(self.0).map_err(Self)?;
        match endpoint.fd.take() {
            Some(fd) => {
                endpoint.reactor.forget(fd.as_raw_fd());
                Ok(fd)
            }
            None => Err(Self(Rc::new(endpoint))),
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

    pub(crate) fn endpoint(&self) -> &Rc<Endpoint> {
        &self.0
    }

    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.0.reactor
    }
}

impl From<Rc<Endpoint>> for Socket {
    fn from(endpoint: Rc<Endpoint>) -> Self {
        Self(endpoint)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("a socket that is borrowed was neither unwrapped nor dropped"),
        }
    }
}

impl AsRawFd for Socket {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.as_raw_fd()).finish()
    }
}

/// A descriptor that is closed when nothing uses it any more (no socket and no op in flight), and both directions of
/// its connection. They are here, in one piece of memory, as an idle connection is little else.
///
/// An armed op holds the *file*, not the number; closing the number under it would leave the op running (the peer
/// sees no FIN) and could hand the number to another file while an SQE that names it is still unsubmitted. Ops
/// hold a `Socket`, so the close is ordered after the last of them by construction.
pub(crate) struct Endpoint {
    /// `None` only while `try_into_fd` or `drop` runs.
    fd: Option<OwnedFd>,
    reactor: Rc<Reactor>,
    /// The place in the reactor's list of inboxes, while there is one.
    pub(super) listed: Cell<u32>,
    pub(crate) recv: RecvSide,
    pub(crate) send: SendSide,
}

impl Endpoint {
    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }
}

impl AsRawFd for Endpoint {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, OwnedFd::as_raw_fd)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.reactor.close(fd);
        }
    }
}

/// With its two counts and what malloc adds that is 176 bytes for each connection, however idle.
const _: () = assert!(size_of::<Endpoint>() <= 152);
