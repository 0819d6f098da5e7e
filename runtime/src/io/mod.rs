//! Building blocks over any descriptor: what `net` is made of, and what your own protocols can be made of.
//!
//! The types here are the readiness face of the completion engine. An armed kernel operation belongs to the socket
//! and goes on whoever waits for it; futures only look at what has arrived ([`Inbox`], [`AcceptStream`]) or leave
//! what shall go out ([`Outbox`]). So dropping a future loses no byte, no connection and no buffer.
//!
//! None of these types is `Send`: a socket stays on the worker that it was made on.

mod accept_stream;
mod async_fd;
mod connect;
mod inbox;
mod outbox;
mod recv_stream;

pub use self::{
    accept_stream::AcceptStream,
    async_fd::{AsyncFd, ReadyGuard, TryIoError},
    connect::connect,
    inbox::Inbox,
    outbox::Outbox,
    recv_stream::RecvStream,
};
pub use crate::reactor::pool::Lease;
pub use crate::reactor::send_buf::SendBuf;
pub use crate::reactor::socket::Socket;
