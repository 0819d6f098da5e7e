//! TCP: listeners, streams, their halves, and sockets that are neither yet.
//!
//! The parts that programs name often, [`TcpListener`], [`TcpStream`] and [`TcpSocket`], are also
//! at the root of the crate.
//!
//! # What a stream owns
//!
//! A [`TcpStream`] is an inbox and an outbox on one socket. The inbox holds what the kernel has
//! received and nobody has read; the outbox holds what was written and the kernel has not taken.
//! [`TcpStream::split`] lends the two out, [`TcpStream::into_split`] gives them away, and
//! [`TcpStream::into_std`] hands over the socket together with whatever is in them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime::io::{Outbox, SendBuf};

/// Implements `AsyncRead` by the field `inbox`, for the stream and for what shares its inbox.
macro_rules! async_read_from_inbox {
    ($type:ty) => {
        impl futures_io::AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.inbox.poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.inbox.poll_read_vectored(cx, bufs)
            }
        }
    };
}

/// Implements `AsyncWrite` by the field `outbox`, for the stream and for what shares its outbox.
macro_rules! async_write_to_outbox {
    ($type:ty) => {
        impl futures_io::AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.outbox.poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.outbox.poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.outbox.poll_flush(cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.outbox.poll_shutdown(cx)
            }
        }
    };
}

/// Implements what a half says about its socket.
macro_rules! half_of_a_socket {
    ($type:ty, $name:literal, $field:ident) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.$field.socket().as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.$field.socket().as_raw_fd()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                socket::debug($name, self, f)
            }
        }
    };
}

mod incoming;
mod listener;
mod options;
mod owned;
mod readiness;
mod socket;
mod split;
mod stream;

pub use incoming::Incoming;
pub use listener::TcpListener;
pub use owned::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use socket::TcpSocket;
pub use split::{ReadHalf, WriteHalf};
pub use stream::TcpStream;

/// Queues a buffer whole. Dropped before that, it takes the buffer with it.
///
/// A future by hand: an `async fn` would hold the buffer twice, and a connection waits in one.
struct Sending<'a> {
    outbox: &'a Outbox,
    buf: Option<SendBuf>,
}

impl<'a> Sending<'a> {
    fn new(outbox: &'a Outbox, buf: impl Into<SendBuf>) -> Self {
        Self {
            outbox,
            buf: Some(buf.into()),
        }
    }
}

impl Future for Sending<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outbox = self.outbox;
        outbox.poll_send(cx, &mut self.buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ambiguous, and so a compile error, for a type that is `Send`.
    trait AmbiguousIfSend<Marker> {
        fn check() {}
    }

    impl<T: ?Sized> AmbiguousIfSend<()> for T {}
    impl<T: ?Sized + Send> AmbiguousIfSend<u8> for T {}

    #[test]
    fn sockets_stay_on_their_worker() {
        <TcpListener as AmbiguousIfSend<_>>::check();
        <Incoming<'static> as AmbiguousIfSend<_>>::check();
        <TcpStream as AmbiguousIfSend<_>>::check();
        <ReadHalf<'static> as AmbiguousIfSend<_>>::check();
        <WriteHalf<'static> as AmbiguousIfSend<_>>::check();
        <OwnedReadHalf as AmbiguousIfSend<_>>::check();
        <OwnedWriteHalf as AmbiguousIfSend<_>>::check();
    }

    #[test]
    fn sockets_need_no_pinning() {
        fn unpin<T: Unpin>() {}
        unpin::<TcpListener>();
        unpin::<Incoming<'static>>();
        unpin::<TcpStream>();
        unpin::<ReadHalf<'static>>();
        unpin::<WriteHalf<'static>>();
        unpin::<OwnedReadHalf>();
        unpin::<OwnedWriteHalf>();
    }
}
