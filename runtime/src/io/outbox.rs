//! [`Outbox`].

use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use super::{SendBuf, Socket};
use crate::reactor::op::send::SendOp;

/// What shall go out on a socket: the writing half of a stream.
///
/// A write leaves its bytes here and is done; at the end of the worker's turn everything that the socket's tasks
/// have written goes out in one send. Small writes are copied together, owned buffers ([`poll_send`](Self::poll_send))
/// go out from where they are.
///
/// At most 64 KiB wait here ([`Builder::send_high_water`](crate::Builder::send_high_water)), and one owned buffer
/// more; after that writes wait.
///
/// An error of the connection is reported by the next write, flush or shutdown, and by all after it.
///
/// Dropping an outbox loses nothing either: what is left goes out in the background, for at most 30 s
/// ([`Builder::linger`](crate::Builder::linger)), and only then the socket may close.
///
/// # Cancel safety
///
/// A write that is not ready has taken nothing; one that is has taken exactly what it says.
///
/// # Examples
///
/// ```
/// # use std::future::poll_fn;
/// # use std::io::Read;
/// use runtime::io::{Outbox, Socket};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let (mut peer, socket) = std::os::unix::net::UnixStream::pair()?;
/// let outbox = Outbox::new(Socket::new(socket)?);
/// assert_eq!(outbox.try_write(b"hello, ")?, 7);
/// poll_fn(|cx| outbox.poll_send(cx, &mut Some("world".into()))).await?;
/// poll_fn(|cx| outbox.poll_shutdown(cx)).await?;
///
/// let mut received = String::new();
/// peer.read_to_string(&mut received)?;
/// assert_eq!(received, "hello, world");
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct Outbox {
    op: SendOp,
}

impl Outbox {
    /// The outbox of a connected stream socket.
    ///
    /// A socket needs one only. Several share its bounds, its errors and its end: what is written to them goes out in the
    /// order of the writes.
    pub fn new(socket: Socket) -> Self {
        Self {
            op: SendOp::new(socket),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        self.op.socket()
    }

    /// Takes as many bytes of `buf` as there is room for.
    ///
    /// # Errors
    ///
    /// The connection's; [`BrokenPipe`](io::ErrorKind::BrokenPipe) after [`poll_shutdown`](Self::poll_shutdown).
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.op.poll_writable(cx))?;
        Poll::Ready(Ok(self.op.write(buf)))
    }

    /// Takes as many bytes of the buffers, in turn, as there is room for.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write).
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.op.poll_writable(cx))?;
        Poll::Ready(Ok(self.write_vectored(bufs)))
    }

    /// Takes a whole buffer out of `buf` and sends it without a copy. While it is not ready, `buf` keeps it.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write); `buf` keeps the buffer.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Option<SendBuf>,
    ) -> Poll<io::Result<()>> {
        ready!(self.op.poll_writable(cx))?;
        if let Some(buf) = buf.take() {
            self.op.send(buf);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes as many bytes of `buf` as there is room for.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, or as [`poll_write`](Self::poll_write).
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.check_writable()?;
        Ok(self.op.write(buf))
    }

    /// Takes as many bytes of the buffers, in turn, as there is room for.
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check_writable()?;
        Ok(self.write_vectored(bufs))
    }

    /// Ready when a write would take at least one byte, or fail.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write).
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.op.poll_writable(cx)
    }

    /// Ready when what was written is on its way: at the end of this turn, or as soon as the peer makes room, without
    /// any further call. Use [`poll_drain`](Self::poll_drain) to know that the kernel has all of it.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.op.poll_flush(cx)
    }

    /// Ready when the kernel has everything that was written.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.op.poll_drain(cx)
    }

    /// Waits until the kernel has everything that was written, then ends the write direction: the peer reads the
    /// end of the stream. Further writes fail; calling it again is fine. Once it was called the end comes, also if
    /// nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.op.poll_shutdown(cx)
    }

    /// Whether dropping this outbox ends the write direction (after the drain), though the socket may live on: the
    /// way of a half that was split off. Off at first.
    pub fn shutdown_on_drop(&self, shutdown: bool) {
        self.op.shutdown_on_drop(shutdown);
    }

    fn check_writable(&self) -> io::Result<()> {
        (self.op.check_writable()).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> usize {
        let mut taken = 0;
        for buf in bufs {
            let n = self.op.write(buf);
            taken += n;
            if n < buf.len() {
                break;
            }
        }
        taken
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.op.disown();
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("socket", self.socket())
            .field("queued", &self.op.queued())
            .finish()
    }
}
