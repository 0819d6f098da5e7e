//! The two directions of a stream, given away.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime::io::{Inbox, Outbox, RecvStream, SendBuf};

use super::{Sending, TcpStream};
use crate::socket;

/// The reading half of a [`TcpStream`], given away by [`TcpStream::into_split`].
///
/// Dropping it loses what has arrived and was not read. The connection stays open for the write
/// half.
///
/// # Examples
///
/// See [`TcpStream::into_split`].
pub struct OwnedReadHalf {
    inbox: Inbox,
}

/// The writing half of a [`TcpStream`], given away by [`TcpStream::into_split`].
///
/// Dropping it shuts the writing side down, in the background, once the kernel has every byte of
/// the outbox; [`forget`](Self::forget) does not.
///
/// # Examples
///
/// See [`TcpStream::into_split`].
pub struct OwnedWriteHalf {
    outbox: Outbox,
}

/// Two halves that are not of one stream; the error of [`OwnedReadHalf::reunite`].
///
/// It holds both halves, unchanged.
///
/// # Examples
///
/// See [`OwnedReadHalf::reunite`].
#[derive(Debug)]
pub struct ReuniteError(
    /// The reading half.
    pub OwnedReadHalf,
    /// The writing half.
    pub OwnedWriteHalf,
);

impl OwnedReadHalf {
    /// Puts the two halves of one stream together again.
    ///
    /// # Errors
    ///
    /// [`ReuniteError`], with both halves in it, if they are of different streams.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let address = listener.local_addr()?;
    /// let (rx, tx) = net::TcpStream::connect(address).await?.into_split();
    /// let (other_rx, other_tx) = net::TcpStream::connect(address).await?.into_split();
    ///
    /// let net::tcp::ReuniteError(rx, other_tx) = rx.reunite(other_tx).expect_err("two streams");
    /// let stream = rx.reunite(tx).expect("one stream");
    /// # drop((stream, other_rx, other_tx));
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn reunite(self, write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        // Both halves are alive, so their numbers are equal only if their sockets are.
        if self.as_raw_fd() != write.as_raw_fd() {
            return Err(ReuniteError(self, write));
        }
        write.outbox.shutdown_on_drop(false);
        Ok(TcpStream {
            inbox: self.inbox,
            outbox: write.outbox,
        })
    }

    /// What arrives, as a stream of the buffers that the kernel wrote it to.
    ///
    /// As [`TcpStream::recv_stream`].
    ///
    /// # Cancel safety
    ///
    /// Safe: bytes that were not taken as an item stay in the inbox, for the next read of any kind.
    ///
    /// # Errors
    ///
    /// An item is the kernel's error if the connection broke.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("hello").await?;
    /// # peer.shutdown(std::net::Shutdown::Write).await?;
    /// let (mut rx, tx) = stream.into_split();
    /// let echo = runtime::spawn(async move {
    ///     let mut chunks = rx.recv_stream();
    ///     while let Some(chunk) = chunks.next().await {
    ///         tx.send(chunk?).await?;
    ///     }
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// echo.await.expect("the task does not panic")?;
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn recv_stream(&mut self) -> RecvStream<'_> {
        self.inbox.stream()
    }

    /// Waits for bytes and copies them to `buf`, without taking them from the stream.
    ///
    /// As [`TcpStream::peek`], and with its cancel safety, errors and example.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.inbox.poll_peek(cx, buf)).await
    }

    /// Waits until a read returns at once: with bytes, the end of the stream, or an error.
    ///
    /// As [`TcpStream::readable`], and with its cancel safety, errors and example.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.inbox.poll_readable(cx)).await
    }

    /// Reads what has arrived already.
    ///
    /// As [`TcpStream::try_read`], and with its errors and example.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inbox.try_read(buf)
    }

    /// Reads what has arrived already, into several buffers in turn.
    ///
    /// As [`TcpStream::try_read_vectored`], and with its errors and example.
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.inbox.try_read_vectored(bufs)
    }

    /// The address of the peer, as [`TcpStream::peer_addr`].
    ///
    /// # Errors
    ///
    /// What `getpeername` reports.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
    }

    /// The local address of the connection, as [`TcpStream::local_addr`].
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }
}

impl OwnedWriteHalf {
    /// The one way to make the pair, so that what dropping a half means is said beside it.
    pub(super) fn split_off(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
        let TcpStream { inbox, outbox } = stream;
        // The read half may keep the socket open for long; the peer must see FIN without waiting
        // for it.
        outbox.shutdown_on_drop(true);
        (OwnedReadHalf { inbox }, OwnedWriteHalf { outbox })
    }

    /// Puts the two halves of one stream together again.
    ///
    /// As [`OwnedReadHalf::reunite`], and with its example.
    ///
    /// # Errors
    ///
    /// [`ReuniteError`], with both halves in it, if they are of different streams.
    pub fn reunite(self, read: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        read.reunite(self)
    }

    /// Drops the half without shutting the writing side down.
    ///
    /// What is in the outbox is still sent in the background. The peer sees the end of the stream
    /// when the read half is dropped too.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::AsyncReadExt;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut peer, _) = listener.accept().await?;
    /// let (rx, tx) = stream.into_split();
    /// tx.send("the only message").await?;
    /// tx.forget();
    /// # let mut message = [0; 16];
    /// # peer.read_exact(&mut message).await?;
    /// drop(rx); // the peer sees the end of the stream now
    /// # assert_eq!(peer.read(&mut message).await?, 0);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn forget(self) {
        self.outbox.shutdown_on_drop(false);
    }

    /// Queues a whole buffer for sending, without copying it.
    ///
    /// As [`TcpStream::send`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the buffer is queued whole or, if the future is dropped before that, not at all.
    ///
    /// # Errors
    ///
    /// The error of an earlier send, or `BrokenPipe` after the write side was shut down.
    ///
    /// # Examples
    ///
    /// See [`OwnedReadHalf::recv_stream`].
    pub fn send(&self, buf: impl Into<SendBuf>) -> impl Future<Output = io::Result<()>> {
        Sending::new(&self.outbox, buf)
    }

    /// Waits until a write is accepted at once, in part at least, or fails at once.
    ///
    /// As [`TcpStream::writable`], and with its cancel safety, errors and example.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.outbox.poll_writable(cx)).await
    }

    /// Accepts bytes into the outbox without waiting, and says how many.
    ///
    /// As [`TcpStream::try_write`], and with its errors and example.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.outbox.try_write(buf)
    }

    /// Accepts bytes of several buffers into the outbox without waiting, and says how many.
    ///
    /// As [`TcpStream::try_write_vectored`], and with its errors and example.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outbox.try_write_vectored(bufs)
    }

    /// The address of the peer, as [`TcpStream::peer_addr`].
    ///
    /// # Errors
    ///
    /// What `getpeername` reports.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
    }

    /// The local address of the connection, as [`TcpStream::local_addr`].
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of different streams")
    }
}

impl Error for ReuniteError {}

async_read_from_inbox!(OwnedReadHalf);
async_write_to_outbox!(OwnedWriteHalf);
half_of_a_socket!(OwnedReadHalf, "OwnedReadHalf", inbox);
half_of_a_socket!(OwnedWriteHalf, "OwnedWriteHalf", outbox);

impl futures_io::AsyncBufRead for OwnedReadHalf {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().inbox.poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().inbox.consume(amount);
    }
}
