//! The two directions of a stream, lent out.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime::io::{Inbox, Outbox, RecvStream, SendBuf};

use super::Sending;
#[cfg(doc)]
use super::TcpStream;
use crate::socket;

/// The reading half of a [`TcpStream`], lent out by [`TcpStream::split`].
///
/// It reads in all the ways that the stream does.
///
/// # Examples
///
/// See [`TcpStream::split`].
pub struct ReadHalf<'a> {
    pub(super) inbox: &'a mut Inbox,
}

/// The writing half of a [`TcpStream`], lent out by [`TcpStream::split`].
///
/// It writes in all the ways that the stream does. Dropping it changes nothing; `close`
/// (`futures::AsyncWriteExt`) shuts the writing side down.
///
/// # Examples
///
/// See [`TcpStream::split`].
pub struct WriteHalf<'a> {
    pub(super) outbox: &'a Outbox,
}

impl ReadHalf<'_> {
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
    /// # let mut stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("hello").await?;
    /// # peer.shutdown(std::net::Shutdown::Write).await?;
    /// let (mut rx, tx) = stream.split();
    /// let mut chunks = rx.recv_stream();
    /// while let Some(chunk) = chunks.next().await {
    ///     tx.send(chunk?).await?; // an echo without a copy
    /// }
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

impl WriteHalf<'_> {
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
    /// See [`ReadHalf::recv_stream`].
    pub fn send(&self, buf: impl Into<SendBuf>) -> impl Future<Output = io::Result<()>> {
        Sending::new(self.outbox, buf)
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

async_read_from_inbox!(ReadHalf<'_>);
async_write_to_outbox!(WriteHalf<'_>);
half_of_a_socket!(ReadHalf<'_>, "ReadHalf", inbox);
half_of_a_socket!(WriteHalf<'_>, "WriteHalf", outbox);

impl futures_io::AsyncBufRead for ReadHalf<'_> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().inbox.poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().inbox.consume(amount);
    }
}
