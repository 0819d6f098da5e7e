//! The readiness face of a stream: wait until it can go on, then try.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};

use super::TcpStream;

/// Readiness: wait until something can be done, then try to do it.
impl TcpStream {
    /// Waits for bytes and copies them to `buf`, without taking them from the stream.
    ///
    /// Returns how many bytes were copied, which is 0 at the end of the stream.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is taken.
    ///
    /// # Errors
    ///
    /// The kernel's error if the connection broke.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("GET /").await?;
    /// let mut first = [0; 1];
    /// stream.peek(&mut first).await?;
    /// assert_eq!(&first, b"G"); // still the next byte to be read
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.inbox.poll_peek(cx, buf)).await
    }

    /// Waits until a read returns at once: with bytes, the end of the stream, or an error.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is taken.
    ///
    /// # Errors
    ///
    /// If the socket cannot be waited for, because the runtime is shutting down for example.
    ///
    /// # Examples
    ///
    /// See [`try_read`](Self::try_read).
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.inbox.poll_readable(cx)).await
    }

    /// Reads what has arrived already.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing has; the kernel's error if the
    /// connection broke.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::ErrorKind;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("ping").await?;
    /// let mut buf = [0; 64];
    /// let read = loop {
    ///     stream.readable().await?;
    ///     match stream.try_read(&mut buf) {
    ///         Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
    ///         outcome => break outcome?,
    ///     }
    /// };
    /// assert_eq!(&buf[..read], b"ping");
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inbox.try_read(buf)
    }

    /// Reads what has arrived already, into several buffers in turn.
    ///
    /// # Errors
    ///
    /// As [`try_read`](Self::try_read).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::IoSliceMut;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("head").await?;
    /// stream.readable().await?;
    /// let (mut head, mut body) = ([0; 4], [0; 60]);
    /// let mut bufs = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)];
    /// assert_eq!(stream.try_read_vectored(&mut bufs)?, 4);
    /// assert_eq!(&head, b"head");
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.inbox.try_read_vectored(bufs)
    }

    /// Waits until a write is accepted at once, in part at least, or fails at once.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Errors
    ///
    /// The error of an earlier send.
    ///
    /// # Examples
    ///
    /// See [`try_write`](Self::try_write).
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.outbox.poll_writable(cx)).await
    }

    /// Accepts bytes into the outbox without waiting, and says how many.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the outbox is past its high-water mark; else
    /// as a `write`.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// stream.writable().await?;
    /// let accepted = stream.try_write(b"pong")?;
    /// assert_eq!(accepted, 4);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.outbox.try_write(buf)
    }

    /// Accepts bytes of several buffers into the outbox without waiting, and says how many.
    ///
    /// # Errors
    ///
    /// As [`try_write`](Self::try_write).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::IoSlice;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// let bufs = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    /// assert_eq!(stream.try_write_vectored(&bufs)?, 8);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.outbox.try_write_vectored(bufs)
    }
}
