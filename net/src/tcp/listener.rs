use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use runtime::io::{AcceptStream, Socket};
use socket2::SockRef;

use super::{Incoming, TcpSocket, TcpStream};
use crate::addr::{self, ToSocketAddrs};
use crate::socket;

/// A TCP socket that listens for connections.
///
/// The listener accepts on its own: one armed operation takes connections from the kernel as they
/// come, and [`accept`](Self::accept) and [`incoming`](Self::incoming) hand them out. It takes only
/// so many ahead of the program (the runtime's `accept_backlog`); the rest wait in the kernel's
/// queue, as usual. Several tasks may wait at once; each connection goes to one of them.
///
/// Dropping the listener closes it and the connections that nobody took.
///
/// # Options of the accepted streams
///
/// Linux lets an accepted socket inherit the options of its listener: `TCP_NODELAY`,
/// `SO_KEEPALIVE`, `SO_LINGER` and the buffer sizes among them. Set them once, by
/// [`TcpSocket`] before it listens, instead of with a system call for each connection.
///
/// # Examples
///
/// ```
/// use futures::{AsyncReadExt, AsyncWriteExt};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = net::TcpStream::connect(listener.local_addr()?).await?;
///
/// let (mut stream, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
/// stream.write_all(b"welcome").await?;
///
/// let mut greeting = [0; 7];
/// client.read_exact(&mut greeting).await?;
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct TcpListener {
    accepts: AcceptStream,
}

impl TcpListener {
    /// Binds a listener to `addr`, with `SO_REUSEADDR` and a kernel backlog of 1024.
    ///
    /// If `addr` means several addresses they are tried in order, and the first that can be bound
    /// is the listener's. Port 0 asks the system for a free port; see
    /// [`local_addr`](Self::local_addr). The kernel caps the backlog at
    /// `/proc/sys/net/core/somaxconn`. [`TcpSocket`] is for other options.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is bound unless the future returns it.
    ///
    /// # Errors
    ///
    /// The error of the last address that was tried, for example
    /// [`AddrInUse`](io::ErrorKind::AddrInUse); the resolver's error if `addr` is a name without an
    /// address; [`InvalidInput`](io::ErrorKind::InvalidInput) if there is no address to try. Fails
    /// outside a runtime.
    ///
    /// # Panics
    ///
    /// Outside a runtime, if `addr` is a name that has to be resolved.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        addr::first_success(addr, async |addr| {
            let socket = TcpSocket::for_address(addr)?;
            socket.set_reuseaddr(true)?;
            socket.bind(addr)?;
            socket.listen(DEFAULT_BACKLOG)
        })
        .await
    }

    /// Accepts a connection and says who the peer is.
    ///
    /// A peer that has reset its connection before it was looked at has no address any more; such
    /// connections are closed and skipped, so they do not end an accept loop.
    ///
    /// # Cancel safety
    ///
    /// Safe: a connection that arrives while nobody waits stays with the listener.
    ///
    /// # Errors
    ///
    /// What the kernel reports, for example too many open files (EMFILE). The listener stays
    /// usable: it waits for the shortage to pass, and does not spin on it.
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) (EINVAL) means that the socket no longer
    /// listens.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let client = net::TcpStream::connect(listener.local_addr()?).await?;
    /// let (stream, peer) = listener.accept().await?;
    /// assert_eq!(peer, client.local_addr()?);
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The poll form of [`accept`](Self::accept).
    ///
    /// When it is pending, the task of `cx` is woken once a connection can be accepted.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let _client = net::TcpStream::connect(listener.local_addr()?).await?;
    /// let (stream, _peer) = std::future::poll_fn(|cx| listener.poll_accept(cx)).await?;
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            let fd = ready!(self.accepts.poll_accept(cx))?;
            // One address buffer would be shared by all completions of the armed accept, and a
            // later connection would overwrite an earlier one's address. So ask the socket.
            match socket::peer_addr(&fd) {
                Ok(peer) => return Poll::Ready(Ok((TcpStream::new(Socket::new(fd)?), peer))),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => drop(fd),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The connections as a stream, without the question who the peer is.
    ///
    /// Several such streams and calls of [`accept`](Self::accept) can be used side by side.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let _client = net::TcpStream::connect(listener.local_addr()?).await?;
    /// let stream = listener.incoming().next().await.expect("the stream has no end")?;
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(self)
    }

    pub(super) fn poll_stream(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let fd = ready!(self.accepts.poll_accept(cx))?;
        Poll::Ready(Socket::new(fd).map(TcpStream::new))
    }

    /// The address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// println!("listening on {}", listener.local_addr()?);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self.accepts.socket())
    }

    /// The value of `IP_TTL`, which accepted streams inherit; see [`set_ttl`](Self::set_ttl).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// assert!(listener.ttl()? > 0);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(self).ttl_v4()
    }

    /// Sets `IP_TTL`: how many hops an IPv4 packet of this socket may take, from 1 to 255.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports, for example
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a value out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// listener.set_ttl(100)?;
    /// assert_eq!(listener.ttl()?, 100);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(self).set_ttl_v4(ttl)
    }

    /// Takes the pending error of the socket (`SO_ERROR`), if there is one, and clears it.
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// assert!(listener.take_error()?.is_none());
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(self).take_error()
    }

    /// Brings a listener of `std` to the current worker.
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
    /// let bound_early = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let listener = net::TcpListener::from_std(bound_early)?;
    /// # drop(listener);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener::new(socket::adopt(listener)?))
    }

    /// Gives the listener to `std`, with the connections that were accepted and that nobody took.
    ///
    /// Accepting stops first, so connections that come later wait in the kernel's queue for the
    /// listener's next owner. All sockets are handed over in blocking mode.
    ///
    /// # Cancel safety
    ///
    /// Not safe: the future owns the listener, and dropping it drops the listener.
    ///
    /// # Errors
    ///
    /// What the system reports when the mode is set.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let (listener, accepted) = listener.into_std().await?;
    /// assert!(accepted.is_empty());
    /// # drop(listener);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn into_std(self) -> io::Result<(std::net::TcpListener, Vec<std::net::TcpStream>)> {
        poll_fn(|cx| self.accepts.poll_stop(cx)).await;
        let accepted = self.accepts.take_accepted();
        let socket = self.accepts.socket().clone();
        drop(self.accepts);
        let listener = socket::release(socket)?;
        let accepted = accepted.into_iter().map(Into::into).collect();
        Ok((listener.into(), accepted))
    }

    pub(super) fn new(socket: Socket) -> Self {
        TcpListener {
            accepts: AcceptStream::new(socket),
        }
    }
}

impl TryFrom<std::net::TcpListener> for TcpListener {
    type Error = io::Error;

    /// As [`TcpListener::from_std`].
    fn try_from(listener: std::net::TcpListener) -> io::Result<Self> {
        TcpListener::from_std(listener)
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.accepts.socket().as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.accepts.socket().as_raw_fd()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        socket::debug("TcpListener", self, f)
    }
}

/// What tokio asks for; `std` asks for 128, which a burst of connections overflows.
const DEFAULT_BACKLOG: u32 = 1024;
