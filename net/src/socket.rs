//! Socket calls that the types of this crate have in common.
//!
//! Every fd of ours is in *blocking* mode. Ring operations do not care (the kernel attempts them
//! without blocking and then waits by itself), and `connect` and `accept` on older kernels report
//! EAGAIN to the ring instead of waiting when the fd is nonblocking. It also means that an fd
//! that leaves the runtime is what `std::net` expects.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use runtime::io::Socket;
use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

/// A new TCP socket: blocking, close-on-exec, no option set.
pub(crate) fn new_tcp(domain: Domain) -> io::Result<socket2::Socket> {
    socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
}

/// Puts a socket that was made elsewhere under the current worker, in blocking mode.
pub(crate) fn adopt(fd: impl Into<OwnedFd>) -> io::Result<Socket> {
    let fd = fd.into();
    SockRef::from(&fd).set_nonblocking(false)?;
    Socket::new(fd)
}

/// Takes a socket whose operations have ended back from the worker, in blocking mode.
pub(crate) fn release(socket: Socket) -> io::Result<OwnedFd> {
    let fd = socket
        .try_into_fd()
        .map_err(|_shared| io::Error::other("the socket is still in use elsewhere"))?;
    SockRef::from(&fd).set_nonblocking(false)?;
    Ok(fd)
}

pub(crate) fn local_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    to_std(SockRef::from(socket).local_addr()?)
}

pub(crate) fn peer_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    to_std(SockRef::from(socket).peer_addr()?)
}

/// The fields that every `Debug` of a socket shows; what cannot be asked is left out.
pub(crate) fn debug(
    name: &str,
    socket: &(impl AsFd + AsRawFd),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut fields = f.debug_struct(name);
    if let Ok(address) = local_addr(socket) {
        fields.field("local_addr", &address);
    }
    if let Ok(address) = peer_addr(socket) {
        fields.field("peer_addr", &address);
    }
    fields.field("fd", &socket.as_raw_fd()).finish()
}

fn to_std(address: SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an internet socket"))
}
