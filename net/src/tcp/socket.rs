use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use runtime::io::Socket;
use socket2::{Domain, SockAddr};

use super::{TcpListener, TcpStream};
use crate::socket;

/// A TCP socket that is neither a listener nor a stream yet, to set options on.
///
/// [`TcpListener::bind`] and [`TcpStream::connect`] are enough for most programs. This type is for
/// options that must be set before `listen` or `connect`. It has those that are asked for often;
/// it is an [`AsFd`], so `socket2::SockRef::from(&socket)` has the rest.
///
/// What is set before [`listen`](Self::listen) is, on Linux, inherited by every accepted stream:
/// `TCP_NODELAY`, `SO_KEEPALIVE`, `SO_LINGER` and the buffer sizes, at no cost per connection.
///
/// A new socket has no option set. It belongs to no worker until it listens or connects.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let socket = net::TcpSocket::new_v4()?;
/// socket.set_reuseaddr(true)?;
/// socket.set_nodelay(true)?;
/// socket.bind("127.0.0.1:0".parse().expect("an address"))?;
/// let listener = socket.listen(4096)?;
///
/// let _client = net::TcpStream::connect(listener.local_addr()?).await?;
/// let (stream, _peer) = listener.accept().await?;
/// assert!(stream.nodelay()?);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct TcpSocket {
    inner: socket2::Socket,
}

impl TcpSocket {
    /// A new IPv4 socket.
    ///
    /// # Errors
    ///
    /// What `socket` reports, for example too many open files (EMFILE).
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// # drop(socket);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn new_v4() -> io::Result<TcpSocket> {
        let inner = socket::new_tcp(Domain::IPV4)?;
        Ok(TcpSocket { inner })
    }

    /// A new IPv6 socket.
    ///
    /// # Errors
    ///
    /// What `socket` reports, for example that the system has no IPv6 (EAFNOSUPPORT).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let socket = net::TcpSocket::new_v6()?; // an error where IPv6 is off
    /// # drop(socket);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn new_v6() -> io::Result<TcpSocket> {
        let inner = socket::new_tcp(Domain::IPV6)?;
        Ok(TcpSocket { inner })
    }

    pub(super) fn for_address(addr: SocketAddr) -> io::Result<TcpSocket> {
        match addr {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }
    }

    /// Takes a socket that was made elsewhere and is not connected yet.
    ///
    /// The type says stream because `std` has no type for a bare socket; a stream that is
    /// connected already belongs in [`TcpStream::from_std`]. The socket is put in blocking mode
    /// when it listens or connects.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::os::fd::OwnedFd;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let address = listener.local_addr()?;
    /// let made_elsewhere: OwnedFd = net::TcpSocket::new_v4()?.into();
    /// let socket = net::TcpSocket::from_std_stream(made_elsewhere.into());
    /// let stream = socket.connect(address).await?;
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn from_std_stream(stream: std::net::TcpStream) -> TcpSocket {
        TcpSocket {
            inner: stream.into(),
        }
    }

    /// Binds the socket to a local address. Port 0 asks the system for a free one.
    ///
    /// # Errors
    ///
    /// What `bind` reports, for example [`AddrInUse`](io::ErrorKind::AddrInUse).
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.bind("127.0.0.1:0".parse().expect("an address"))?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.inner.bind(&SockAddr::from(addr))
    }

    /// Makes the socket a listener of the current worker.
    ///
    /// `backlog` is how many connections may wait in the kernel; the kernel caps it at
    /// `/proc/sys/net/core/somaxconn`. A socket that was not bound gets a free port on all
    /// addresses.
    ///
    /// # Errors
    ///
    /// What `listen` reports. Fails outside a runtime.
    ///
    /// # Examples
    ///
    /// See [`TcpSocket`].
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.inner
            .listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::new(socket::adopt(self.inner)?))
    }

    /// Connects the socket to `addr` and makes it a stream of the current worker.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future gives the attempt up and closes the socket.
    ///
    /// # Errors
    ///
    /// What `connect` reports, for example
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused). Fails outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_recv_buffer_size(1 << 20)?;
    /// let stream = socket.connect(listener.local_addr()?).await?;
    /// # drop(stream);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        let socket: Socket = socket::adopt(self.inner)?;
        runtime::io::connect(&socket, &SockAddr::from(addr)).await?;
        Ok(TcpStream::new(socket))
    }

    /// The address that the socket is bound to; port 0 before [`bind`](Self::bind).
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// assert_eq!(socket.local_addr()?.port(), 0);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
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
    /// let socket = net::TcpSocket::new_v4()?;
    /// assert!(socket.take_error()?.is_none());
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }
}

/// Options. Each setter fails with what `setsockopt` reports, and each getter with what
/// `getsockopt` reports.
impl TcpSocket {
    /// Sets `SO_REUSEADDR`: a listener may bind while old connections of the port linger.
    ///
    /// [`TcpListener::bind`] sets it by itself.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_reuseaddr(true)?;
    /// assert!(socket.reuseaddr()?);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_reuseaddr(&self, reuseaddr: bool) -> io::Result<()> {
        self.inner.set_reuse_address(reuseaddr)
    }

    /// The value of `SO_REUSEADDR`; see [`set_reuseaddr`](Self::set_reuseaddr).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.inner.reuse_address()
    }

    /// Sets `SO_REUSEPORT`: several listeners, one per worker for example, share a port, and the
    /// kernel spreads the connections over them.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let first = net::TcpSocket::new_v4()?;
    /// first.set_reuseport(true)?;
    /// assert!(first.reuseport()?);
    /// first.bind("127.0.0.1:0".parse().expect("an address"))?;
    ///
    /// let second = net::TcpSocket::new_v4()?;
    /// second.set_reuseport(true)?;
    /// second.bind(first.local_addr()?)?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_reuseport(&self, reuseport: bool) -> io::Result<()> {
        self.inner.set_reuse_port(reuseport)
    }

    /// The value of `SO_REUSEPORT`; see [`set_reuseport`](Self::set_reuseport).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.inner.reuse_port()
    }

    /// Sets `SO_SNDBUF`, in bytes: how much the kernel holds of what the peer has not
    /// acknowledged. Turns the kernel's own tuning of it off.
    ///
    /// The kernel doubles the value, for its bookkeeping, and caps it at
    /// `/proc/sys/net/core/wmem_max`.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_send_buffer_size(64 * 1024)?;
    /// assert!(socket.send_buffer_size()? >= 64 * 1024);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.inner.set_send_buffer_size(bytes as usize)
    }

    /// The value of `SO_SNDBUF` in bytes, as the kernel doubled it; see
    /// [`set_send_buffer_size`](Self::set_send_buffer_size).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        saturating_u32(self.inner.send_buffer_size())
    }

    /// Sets `SO_RCVBUF`, in bytes: how much the kernel holds of what was not read, and so the TCP
    /// window. Turns the kernel's own tuning of it off.
    ///
    /// The kernel doubles the value, for its bookkeeping, and caps it at
    /// `/proc/sys/net/core/rmem_max`.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_recv_buffer_size(64 * 1024)?;
    /// assert!(socket.recv_buffer_size()? >= 64 * 1024);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.inner.set_recv_buffer_size(bytes as usize)
    }

    /// The value of `SO_RCVBUF` in bytes, as the kernel doubled it; see
    /// [`set_recv_buffer_size`](Self::set_recv_buffer_size).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        saturating_u32(self.inner.recv_buffer_size())
    }

    /// Sets `TCP_NODELAY`: small writes are sent at once, even while earlier data waits for its
    /// acknowledgement.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_nodelay(true)?;
    /// assert!(socket.nodelay()?);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.set_tcp_nodelay(nodelay)
    }

    /// The value of `TCP_NODELAY`; see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.tcp_nodelay()
    }

    /// Sets `SO_KEEPALIVE`: the kernel probes an idle peer, after two hours unless told otherwise
    /// (`TCP_KEEPIDLE`, by `socket2::SockRef`).
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_keepalive(true)?;
    /// assert!(socket.keepalive()?);
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.inner.set_keepalive(keepalive)
    }

    /// The value of `SO_KEEPALIVE`; see [`set_keepalive`](Self::set_keepalive).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.inner.keepalive()
    }

    /// Sets `SO_LINGER`, in whole seconds; see [`TcpStream::set_linger`].
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let socket = net::TcpSocket::new_v4()?;
    /// socket.set_linger(Some(Duration::ZERO))?;
    /// assert_eq!(socket.linger()?, Some(Duration::ZERO));
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(linger)
    }

    /// The value of `SO_LINGER`; see [`TcpStream::set_linger`].
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.inner.linger()
    }
}

impl From<TcpSocket> for OwnedFd {
    fn from(socket: TcpSocket) -> OwnedFd {
        socket.inner.into()
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        socket::debug("TcpSocket", self, f)
    }
}

/// The kernel keeps buffer sizes in a C int, so nothing is lost here.
fn saturating_u32(size: io::Result<usize>) -> io::Result<u32> {
    Ok(u32::try_from(size?).unwrap_or(u32::MAX))
}
