//! [`connect`].

use std::future::poll_fn;
use std::io;
use std::rc::Rc;

use socket2::SockAddr;

use super::Socket;
use crate::reactor::op::connect::ConnectOp;

/// Connects a socket that is not connected yet, in blocking mode, to `address`.
///
/// # Cancel safety
///
/// Dropping the future stops the attempt. The socket may be connected by then or not; drop it, too.
///
/// # Errors
///
/// The kernel's: refused, unreachable, timed out.
///
/// # Examples
///
/// ```
/// use runtime::io::{Socket, connect};
/// use socket2::{Domain, Type};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = Socket::new(socket2::Socket::new(Domain::IPV4, Type::STREAM, None)?)?;
/// connect(&socket, &listener.local_addr()?.into()).await?;
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub async fn connect(socket: &Socket, address: &SockAddr) -> io::Result<()> {
    let attempt = Attempt(ConnectOp::start(socket.clone(), address.clone()));
    poll_fn(|cx| attempt.0.poll(cx)).await
}

/// Stops the attempt when the future is dropped.
struct Attempt(Rc<ConnectOp>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.disown();
    }
}
