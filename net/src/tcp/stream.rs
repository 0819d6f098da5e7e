use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime::io::{Inbox, Outbox, RecvStream, SendBuf, Socket};

use super::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, Sending, TcpSocket, WriteHalf};
use crate::addr::{self, ToSocketAddrs};
use crate::socket;

/// A TCP connection.
///
/// # Reading
///
/// The kernel fills the stream's inbox by itself, from the first read on. What is there can be
/// taken in any of these ways, and they can be mixed at any time without losing or reordering a
/// byte: `read` into a borrowed buffer (`futures::AsyncReadExt`), `fill_buf` and `consume`
/// (`futures::AsyncBufReadExt`), [`recv_stream`](Self::recv_stream) for the kernel's own buffers,
/// and [`try_read`](Self::try_read) after [`readable`](Self::readable). The end of the stream is
/// `Ok(0)`, or `None`. An inbox that nobody reads is bounded, and then the peer has to wait.
///
/// # Writing
///
/// `write` (`futures::AsyncWriteExt`) accepts bytes into the stream's outbox, which goes to the
/// kernel at the end of the turn, all writes of the turn together; [`send`](Self::send) queues a
/// buffer without copying it. The outbox is bounded: past its high-water mark (64 KiB unless the
/// runtime was told otherwise) writers wait. An error of the connection is reported by the next
/// write, flush or shutdown.
///
/// What was written leaves without a `flush`, which is therefore no promise about the peer or the
/// kernel. `close` and [`shutdown`](Self::shutdown) are: they wait until the kernel has every byte
/// and then send FIN.
///
/// Dropping a stream with bytes in its outbox sends them in the background, for as long as the
/// runtime's linger allows (30 s by default), and then FIN.
///
/// Reading and writing also work through `&TcpStream`, as with `std`, and several tasks may wait.
/// Each byte goes to one reader. Each `write` is in one piece as far as it was accepted, which
/// `write_all` of two tasks is not; [`send`](Self::send) always is.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # let server = std::thread::spawn(move || {
/// #     use std::io::Write;
/// #     listener.accept()?.0.write_all(b"220 ready\r\n")
/// # });
/// let mut stream = net::TcpStream::connect(address).await?;
/// stream.write_all(b"QUIT\r\n").await?;
/// let mut reply = [0; 11];
/// stream.read_exact(&mut reply).await?;
/// assert_eq!(&reply, b"220 ready\r\n");
/// # server.join().expect("the server does not panic")?;
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct TcpStream {
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
}

impl TcpStream {
    /// Connects to `addr`.
    ///
    /// If `addr` means several addresses they are tried in order, one at a time, and the first
    /// that answers is the stream's. There is no time limit but the kernel's own; wrap the call in
    /// [`runtime::time::timeout`] for one. [`TcpSocket`] is for options.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future gives the attempt up and closes the socket.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, for example
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused); the resolver's error if `addr` is a
    /// name without an address; [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no
    /// address to try. Fails outside a runtime.
    ///
    /// # Panics
    ///
    /// Outside a runtime, if `addr` is a name that has to be resolved.
    ///
    /// # Examples
    ///
    /// ```
    /// use runtime::time::timeout;
    /// use std::time::Duration;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let address = listener.local_addr()?;
    /// let connect = net::TcpStream::connect(address);
    /// let stream = timeout(Duration::from_secs(5), connect).await??;
    /// assert_eq!(stream.peer_addr()?, address);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        addr::first_success(addr, async |addr| {
            TcpSocket::for_address(addr)?.connect(addr).await
        })
        .await
    }

    pub(super) fn new(socket: Socket) -> Self {
        TcpStream {
            inbox: Inbox::new(socket.clone()),
            outbox: Outbox::new(socket),
        }
    }

    /// What arrives, as a stream of the buffers that the kernel wrote it to.
    ///
    /// Each item is a lease on one such buffer, which goes back to the worker's pool when it is
    /// dropped. Items are as large as the kernel made them. The stream ends (`None`) with the
    /// connection's read side.
    ///
    /// # Cancel safety
    ///
    /// Safe: bytes that were not taken as an item stay in the inbox, for the next read of any kind.
    ///
    /// # Errors
    ///
    /// An item is the kernel's error, for example
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset), if the connection broke.
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
    /// # drop(peer);
    /// let mut received = Vec::new();
    /// let mut chunks = stream.recv_stream();
    /// while let Some(chunk) = chunks.next().await {
    ///     received.extend_from_slice(&chunk?);
    /// }
    /// assert_eq!(received, b"hello");
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn recv_stream(&mut self) -> RecvStream<'_> {
        self.inbox.stream()
    }

    /// Queues a whole buffer for sending, without copying it.
    ///
    /// Takes what owns its bytes: `Vec<u8>`, `Bytes`, `String`, `Box<[u8]>`, a lease of
    /// [`recv_stream`](Self::recv_stream), or something `'static`. Waits while the outbox is past
    /// its high-water mark, then takes the buffer whole, however large it is.
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
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// stream.send("HTTP/1.1 200 OK\r\n\r\n").await?;
    /// stream.send(vec![b'x'; 1000]).await?;
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn send(&self, buf: impl Into<SendBuf>) -> impl Future<Output = io::Result<()>> {
        Sending::new(&self.outbox, buf)
    }

    /// Shuts down the reading side, the writing side, or both.
    ///
    /// The writing side is shut down once the kernel has every byte of the outbox; the peer then
    /// sees the end of the stream. Later writes fail. The reading side is shut down at once: a
    /// read that waits, and every later one, sees what has arrived and then the end of the stream.
    /// [`Both`](Shutdown::Both) does first the one, then the other, and the second even if the
    /// first fails.
    ///
    /// # Cancel safety
    ///
    /// Safe: once it was polled, the outbox goes on sending what it has, and the FIN follows, also if
    /// the wait for that is dropped; later writes fail already. Of [`Both`](Shutdown::Both) the
    /// reading side is left open then.
    ///
    /// # Errors
    ///
    /// The error of an earlier send, or what `shutdown` reports:
    /// [`NotConnected`](io::ErrorKind::NotConnected) if the connection is gone already.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::AsyncReadExt;
    /// use std::net::Shutdown;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut peer, _) = listener.accept().await?;
    /// stream.send("the last words").await?;
    /// stream.shutdown(Shutdown::Write).await?;
    ///
    /// let mut received = String::new();
    /// peer.read_to_string(&mut received).await?;
    /// assert_eq!(received, "the last words");
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let shut_read = || self.inbox.socket().shutdown(Shutdown::Read);
        let shut_write = || poll_fn(|cx| self.outbox.poll_shutdown(cx));
        match how {
            Shutdown::Read => shut_read(),
            Shutdown::Write => shut_write().await,
            Shutdown::Both => shut_write().await.and(shut_read()),
        }
    }

    /// Lends out the two directions, for use side by side in one task.
    ///
    /// With `futures::AsyncReadExt` in scope, `stream.split()` on a stream that is held by value
    /// means that trait's method, which knows less than these halves. Write
    /// `TcpStream::split(&mut stream)` there.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::{AsyncReadExt, AsyncWriteExt};
    /// use net::TcpStream;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let mut stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("question").await?;
    /// let (mut rx, mut tx) = TcpStream::split(&mut stream);
    /// let mut question = [0; 8];
    /// futures::try_join!(rx.read_exact(&mut question), tx.write_all(b"answer"))?;
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (
            ReadHalf {
                inbox: &mut self.inbox,
            },
            WriteHalf {
                outbox: &self.outbox,
            },
        )
    }

    /// Gives the two directions away, for use in two tasks of this worker.
    ///
    /// The halves are as cheap as the stream: they share the socket and nothing else. Dropping the
    /// write half shuts the writing side down; the socket is closed once both are gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut peer, _) = listener.accept().await?;
    /// let (mut rx, mut tx) = stream.into_split();
    /// let writer = runtime::spawn(async move { tx.write_all(b"ping").await });
    /// # let mut ping = [0; 4];
    /// # peer.read_exact(&mut ping).await?;
    /// # drop(peer);
    /// let mut received = Vec::new();
    /// rx.read_to_end(&mut received).await?;
    /// writer.await.expect("the writer does not panic")?;
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedWriteHalf::split_off(self)
    }

    /// Brings a stream of `std` to the current worker.
    ///
    /// Unlike tokio's, this sets *blocking* mode, for every owner of the same open file: ring
    /// operations never block the worker and do not need the other mode.
    ///
    /// # Errors
    ///
    /// What the system reports when the mode is set. Fails outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let connected_early = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let stream = net::TcpStream::from_std(connected_early)?;
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        Ok(TcpStream::new(socket::adopt(stream)?))
    }

    /// Gives the stream to `std`, with the bytes that have arrived and were not read.
    ///
    /// Waits until the kernel has every byte of the outbox. The socket is handed over in blocking
    /// mode; what it receives from now on it keeps.
    ///
    /// # Cancel safety
    ///
    /// Not safe: the future owns the stream, and dropping it drops the stream and what it had read.
    ///
    /// # Errors
    ///
    /// The error of an earlier send, and what the system reports when the mode is set. The stream
    /// is closed then.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// # peer.send("hello").await?;
    /// stream.readable().await?;
    /// let (stream, unread) = stream.into_std().await?;
    /// assert_eq!(unread, b"hello");
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn into_std(self) -> io::Result<(std::net::TcpStream, Vec<u8>)> {
        let TcpStream { mut inbox, outbox } = self;
        poll_fn(|cx| inbox.poll_stop(cx)).await;
        poll_fn(|cx| outbox.poll_drain(cx)).await?;
        let unread = inbox.take_unread();
        let socket = inbox.socket().clone();
        drop((inbox, outbox));
        Ok((socket::release(socket)?.into(), unread))
    }
}

async_read_from_inbox!(TcpStream);
async_read_from_inbox!(&TcpStream);
async_write_to_outbox!(TcpStream);
async_write_to_outbox!(&TcpStream);

impl futures_io::AsyncBufRead for TcpStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().inbox.poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().inbox.consume(amount);
    }
}

impl TryFrom<std::net::TcpStream> for TcpStream {
    type Error = io::Error;

    /// As [`TcpStream::from_std`].
    fn try_from(stream: std::net::TcpStream) -> io::Result<Self> {
        TcpStream::from_std(stream)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.socket().as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.inbox.socket().as_raw_fd()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        socket::debug("TcpStream", self, f)
    }
}
