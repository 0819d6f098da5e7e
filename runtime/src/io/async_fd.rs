//! [`AsyncFd`].

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::context;
use crate::reactor::op::Interest;
use crate::reactor::op::poll::{News, PollOp};

/// The readiness of any descriptor that can be polled: a pipe, a timerfd, a library's own socket.
///
/// Readiness is remembered until a try shows that it is over, so the pattern is: wait, try, and
/// [clear](ReadyGuard::clear_ready) it when the try would block. [`ReadyGuard::try_io`] does the last two. The
/// descriptor must be in nonblocking mode.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use runtime::io::AsyncFd;
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let (mut peer, stream) = UnixStream::pair()?;
/// stream.set_nonblocking(true)?;
/// let stream = AsyncFd::new(stream)?;
/// peer.write_all(b"ping")?;
///
/// let mut buf = [0; 16];
/// let n = loop {
///     let mut ready = stream.readable().await?;
///     match ready.try_io(|mut stream| stream.read(&mut buf)) {
///         Ok(read) => break read?,
///         Err(_would_block) => continue,
///     }
/// };
/// assert_eq!(&buf[..n], b"ping");
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct AsyncFd<T: AsFd> {
    read: Rc<PollOp>,
    write: Rc<PollOp>,
    /// Dropped after the two above have let go of the descriptor's number.
    inner: Option<T>,
}

impl<T: AsFd> AsyncFd<T> {
    /// Watches `inner` on the current worker, from the first wait on.
    ///
    /// # Errors
    ///
    /// Outside a runtime.
    pub fn new(inner: T) -> io::Result<Self> {
        let reactor = context::reactor()?;
        let fd = inner.as_fd().as_raw_fd();
        Ok(Self {
            read: PollOp::new(fd, Interest::Readable, Rc::clone(&reactor)),
            write: PollOp::new(fd, Interest::Writable, reactor),
            inner: Some(inner),
        })
    }

    /// What is watched.
    pub fn get_ref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("only `into_inner` takes it, and that takes all"),
        }
    }

    /// Stops watching and gives it back.
    pub fn into_inner(mut self) -> T {
        match self.inner.take() {
            Some(inner) => inner,
            None => unreachable!("only `into_inner` takes it, and that takes all"),
        }
    }

    /// Waits until reading would not block, or the other side has gone.
    ///
    /// # Cancel safety
    ///
    /// Readiness that came while nobody waited is remembered.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be polled.
    pub async fn readable(&self) -> io::Result<ReadyGuard<'_, T>> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Waits until writing would not block, or the other side has gone.
    ///
    /// # Cancel safety
    ///
    /// As [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be polled.
    pub async fn writable(&self) -> io::Result<ReadyGuard<'_, T>> {
        poll_fn(|cx| self.poll_write_ready(cx)).await
    }

    /// [`readable`](Self::readable), as a poll function.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be polled.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll(&self.read, cx)
    }

    /// [`writable`](Self::writable), as a poll function.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be polled.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll(&self.write, cx)
    }

    fn poll<'a>(
        &'a self,
        op: &'a Rc<PollOp>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReadyGuard<'a, T>>> {
        ready!(op.poll_ready(cx))?;
        Poll::Ready(Ok(ReadyGuard {
            watched: self,
            op,
            news: op.news(),
        }))
    }
}

impl<T: AsFd> Drop for AsyncFd<T> {
    fn drop(&mut self) {
        self.read.disown();
        self.write.disown();
        self.read.forget();
    }
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(self.get_ref()).finish()
    }
}

/// Readiness that was reported. It stays reported until it is [cleared](Self::clear_ready).
pub struct ReadyGuard<'a, T: AsFd> {
    watched: &'a AsyncFd<T>,
    op: &'a Rc<PollOp>,
    /// What the readiness was known from.
    news: News,
}

impl<'a, T: AsFd> ReadyGuard<'a, T> {
    /// A try has shown that the descriptor is not ready any more; the next wait waits for news. News that came after
    /// this guard are kept.
    pub fn clear_ready(&mut self) {
        self.op.clear_ready(self.news);
    }

    /// Tries, and clears the readiness if the try would block.
    ///
    /// # Errors
    ///
    /// [`TryIoError`] if `io` gave [`WouldBlock`](io::ErrorKind::WouldBlock): wait again. Every other result of
    /// `io` is inside the `Ok`.
    pub fn try_io<R>(
        &mut self,
        io: impl FnOnce(&'a T) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        match io(self.watched.get_ref()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear_ready();
                Err(TryIoError(()))
            }
            result => Ok(result),
        }
    }
}

impl<T: AsFd> fmt::Debug for ReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyGuard").finish_non_exhaustive()
    }
}

/// The descriptor was not ready after all. Wait for it again.
#[derive(Debug)]
pub struct TryIoError(());
