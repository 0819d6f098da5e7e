//! [`Inbox`].

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};

use super::{Lease, RecvStream, Socket};
use crate::reactor::op::recv::{RecvOp, Status};

/// What has arrived on a socket: the reading half of a stream, fed by one armed multishot receive.
///
/// The receive is armed at the first read and stays armed. What arrives waits here, in buffers of the worker's
/// pool, and can be read in any way and in any mixture: copied ([`poll_read`](Self::poll_read)), borrowed
/// ([`poll_fill_buf`](Self::poll_fill_buf)), or taken without a copy ([`stream`](Self::stream)).
///
/// A reader that is slow does not grow the program: past 64 KiB unread
/// ([`Builder::recv_high_water`](crate::Builder::recv_high_water)) the receive is paused until they are read, and
/// TCP's window makes the peer wait. (Before Linux 6.17 a pause takes effect late: up to 66 buffers more may come.)
///
/// An error of the connection is reported once, after everything that arrived before it; then the stream has ended.
///
/// # Cancel safety
///
/// Bytes leave the inbox only when they are returned. Dropping a future that reads loses nothing.
///
/// # Examples
///
/// ```
/// # use std::future::poll_fn;
/// # use std::io::Write;
/// use runtime::io::{Inbox, Socket};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let (mut peer, socket) = std::os::unix::net::UnixStream::pair()?;
/// let inbox = Inbox::new(Socket::new(socket)?);
/// peer.write_all(b"hello")?;
///
/// let mut buf = [0; 3];
/// let n = poll_fn(|cx| inbox.poll_read(cx, &mut buf)).await?;
/// assert_eq!(&buf[..n], b"hel");
/// assert_eq!(inbox.try_read(&mut buf)?, 2);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct Inbox {
    op: RecvOp,
    /// The chunk that [`poll_fill_buf`](Self::poll_fill_buf) has lent; it is the oldest.
    current: Cell<Option<Lease>>,
}

impl Inbox {
    /// The inbox of a connected stream socket.
    ///
    /// A socket needs one only. Several share what arrives: each byte goes to one of them. Without any, nothing is
    /// received.
    pub fn new(socket: Socket) -> Self {
        Self {
            op: RecvOp::new(socket),
            current: Cell::new(None),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        self.op.socket()
    }

    /// Bytes that have arrived and were not read.
    pub fn unread(&self) -> usize {
        let current = self.current.take();
        let lent = current.as_ref().map_or(0, |lease| lease.len());
        self.current.set(current);
        lent + self.op.unread()
    }

    /// Copies what has arrived into `buf`, as much as fits; 0 at the end of the stream (or for an empty `buf`).
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_readable(cx))?;
        Poll::Ready(self.read(buf))
    }

    /// Like [`poll_read`](Self::poll_read), into several buffers in turn.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_readable(cx))?;
        Poll::Ready(self.read_vectored(bufs))
    }

    /// Lends the oldest bytes that have arrived; none at the end of the stream.
    ///
    /// They stay until [`consume`](Self::consume) takes them.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.current.get_mut().is_none() {
            match ready!(self.op.poll_status(cx)) {
                Status::Data => *self.current.get_mut() = self.op.pop(),
                Status::Ended => self.op.take_end()?,
            }
        }
        Poll::Ready(Ok(self.current.get_mut().as_deref().unwrap_or_default()))
    }

    /// Takes `n` of the bytes that [`poll_fill_buf`](Self::poll_fill_buf) has lent.
    ///
    /// # Panics
    ///
    /// If it has lent fewer.
    #[track_caller]
    pub fn consume(&mut self, n: usize) {
        let lent = self.current.get_mut();
        match lent {
            Some(lease) if n < lease.len() => lease.advance(n),
            Some(lease) if n == lease.len() => *lent = None,
            _ => assert!(n == 0, "Inbox::consume: {n} bytes were not lent"),
        }
    }

    /// Takes the oldest chunk that has arrived, without a copy; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_lease(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Lease>>> {
        if let Some(lease) = self.current.take() {
            return Poll::Ready(Some(Ok(lease)));
        }
        match ready!(self.op.poll_status(cx)) {
            Status::Data => Poll::Ready(self.op.pop().map(Ok)),
            Status::Ended => Poll::Ready(self.op.take_end().err().map(Err)),
        }
    }

    /// Copies what has arrived and leaves it there; 0 at the end of the stream (or for an empty `buf`).
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_readable(cx))?;
        if self.unread() == 0 {
            return Poll::Ready(self.op.take_end().map(|()| 0));
        }
        self.return_lent();
        Poll::Ready(Ok(self.op.peek(buf)))
    }

    /// Ready when a read would not have to wait: bytes, the end of the stream or an error are there.
    ///
    /// # Errors
    ///
    /// None; an error of the connection is for the read to report.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_lent() {
            return Poll::Ready(Ok(()));
        }
        self.op.poll_status(cx).map(|_| Ok(()))
    }

    /// Copies what has arrived into `buf`.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing has (the receive is armed by the first such call), or
    /// the connection's.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.check_readable()?;
        self.read(buf)
    }

    /// Like [`try_read`](Self::try_read), into several buffers in turn.
    ///
    /// # Errors
    ///
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        self.check_readable()?;
        self.read_vectored(bufs)
    }

    /// Stops receiving, and is ready when the kernel has. What has arrived stays; a later read starts it again.
    pub fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.op.poll_stop(cx)
    }

    /// Takes everything that has arrived. After [`poll_stop`](Self::poll_stop) nothing more is fetched.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.unread()];
        let mut copied = 0;
        while copied < bytes.len() {
            match self.copy(&mut bytes[copied..]) {
                0 => break,
                n => copied += n,
            }
        }
        bytes.truncate(copied);
        bytes
    }

    /// What arrives, as a stream of [`Lease`]s.
    pub fn stream(&mut self) -> RecvStream<'_> {
        RecvStream::new(self)
    }

    fn check_readable(&self) -> io::Result<()> {
        if self.has_lent() || self.op.status().is_some() {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Reads from an inbox that is readable.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.copy(buf) {
            0 => self.op.take_end().map(|()| 0),
            n => Ok(n),
        }
    }

    fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut copied = 0;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            let n = self.copy(buf);
            copied += n;
            if n < buf.len() {
                break;
            }
        }
        match copied {
            0 => self.op.take_end().map(|()| 0),
            n => Ok(n),
        }
    }

    /// Moves bytes: first those that were lent, then those that wait.
    fn copy(&self, buf: &mut [u8]) -> usize {
        let Some(mut lent) = self.current.take() else {
            return self.op.read(buf);
        };
        let n = lent.len().min(buf.len());
        buf[..n].copy_from_slice(&lent[..n]);
        if n < lent.len() {
            lent.advance(n);
            self.current.set(Some(lent));
            return n;
        }
        n + self.op.read(&mut buf[n..])
    }

    fn has_lent(&self) -> bool {
        let current = self.current.take();
        let has_lent = current.is_some();
        self.current.set(current);
        has_lent
    }

    fn return_lent(&self) {
        if let Some(lent) = self.current.take() {
            self.op.unpop(lent);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.op.disown();
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("socket", self.socket())
            .field("unread", &self.unread())
            .finish()
    }
}
