//! What a stream can be asked and told about its socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;

use super::TcpStream;
use crate::socket;

/// Addresses and options.
impl TcpStream {
    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// What `getpeername` reports: [`NotConnected`](io::ErrorKind::NotConnected) after a reset.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        socket::peer_addr(self)
    }

    /// The local address of the connection.
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// assert_ne!(stream.local_addr()?.port(), 0);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket::local_addr(self)
    }

    /// The value of `TCP_NODELAY`; see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn nodelay(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_nodelay()
    }

    /// Sets `TCP_NODELAY`: small writes are sent at once, even while earlier data waits for its
    /// acknowledgement. Off by default; an accepted stream inherits it from its listener.
    ///
    /// # Errors
    ///
    /// What `setsockopt` reports.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// stream.set_nodelay(true)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_nodelay(nodelay)
    }

    /// The value of `SO_LINGER`; see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    /// Sets `SO_LINGER`, in whole seconds: what closing the socket does to bytes that the *kernel*
    /// has not sent.
    ///
    /// `None`, the default, sends them in the background. `Some(Duration::ZERO)` throws them away
    /// and resets the connection. Other values make the close itself wait, which a runtime has
    /// little use for. Bytes that are still in the stream's outbox go to the kernel first in any
    /// case; that wait is bounded by the runtime's own linger.
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
    /// # runtime::Builder::new().build()?.block_on(async {
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// stream.set_linger(Some(Duration::ZERO))?;
    /// assert_eq!(stream.linger()?, Some(Duration::ZERO));
    /// drop(stream); // the peer sees a reset
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self).set_linger(linger)
    }

    /// The value of `IP_TTL`; see [`set_ttl`](Self::set_ttl).
    ///
    /// # Errors
    ///
    /// What `getsockopt` reports.
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
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// stream.set_ttl(100)?;
    /// assert_eq!(stream.ttl()?, 100);
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
    /// # let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = net::TcpStream::connect(listener.local_addr()?).await?;
    /// assert!(stream.take_error()?.is_none());
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(self).take_error()
    }
}
