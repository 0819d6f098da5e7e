//! [`AcceptStream`].

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::Socket;
use crate::reactor::op::accept::AcceptOp;

/// The connections of a listener, fed by one armed multishot accept.
///
/// The accept is armed at the first use and stays armed. Past 128 connections accepted ahead of the program (see
/// [`Builder::accept_backlog`](crate::Builder::accept_backlog)) it is stopped, and others wait in the kernel's own
/// backlog. Several tasks may wait for connections; each gets others.
///
/// When descriptors run out (EMFILE, ENFILE) or memory does, that is reported once; accepting goes on by itself, at
/// most 50 ms after some were freed. The connections wait meanwhile, none is lost.
///
/// Dropping the stream stops the accept and closes the connections that nobody took.
///
/// # Cancel safety
///
/// A connection is either returned or stays for the next call. Dropping a future or a stream adapter that waits for
/// one loses nothing.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use runtime::io::{AcceptStream, Socket};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let mut connections = AcceptStream::new(Socket::new(listener)?);
/// let _client = std::net::TcpStream::connect(address)?;
/// let connection = connections.next().await.transpose()?;
/// assert!(connection.is_some());
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct AcceptStream {
    op: Rc<AcceptOp>,
}

impl AcceptStream {
    /// The connections of `listener`, which must be listening.
    pub fn new(listener: Socket) -> Self {
        Self {
            op: AcceptOp::new(listener),
        }
    }

    /// The next connection, close-on-exec and in blocking mode.
    ///
    /// # Errors
    ///
    /// The kernel's. After one that concerns the listener itself (it was shut down, it does not listen) every call
    /// fails; after any other the next call may succeed.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        self.op.poll_accept(cx)
    }

    /// A connection that was accepted already.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none yet; otherwise as
    /// [`poll_accept`](Self::poll_accept).
    pub fn try_accept(&self) -> io::Result<OwnedFd> {
        (self.op.accept()).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// Stops accepting, and is ready when the kernel has. A later accept starts it again.
    pub fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.op.poll_stop(cx)
    }

    /// Takes all connections that were accepted and not handed out.
    pub fn take_accepted(&self) -> Vec<OwnedFd> {
        self.op.take_accepted().into()
    }

    /// The listener.
    pub fn socket(&self) -> &Socket {
        self.op.socket()
    }

    /// Stops accepting for good and gives the listener back. Connections that nobody took are closed.
    pub fn into_socket(self) -> Socket {
        self.socket().clone()
    }
}

impl Stream for AcceptStream {
    type Item = io::Result<OwnedFd>;

    /// Never ends by itself; see [`poll_accept`](Self::poll_accept) for its errors.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(cx).map(Some)
    }
}

impl Drop for AcceptStream {
    fn drop(&mut self) {
        self.op.disown();
    }
}

impl fmt::Debug for AcceptStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptStream")
            .field("socket", self.socket())
            .finish_non_exhaustive()
    }
}
