use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::{TcpListener, TcpStream};

/// The connections of a [`TcpListener`] as a stream; made by [`TcpListener::incoming`].
///
/// It asks nothing about the peer: that is one system call less per connection than
/// [`TcpListener::accept`], and [`TcpStream::peer_addr`] can still ask later.
///
/// An error item is about one connection or about a shortage that passes (too many open files, no
/// memory), and the next item is a connection again; the listener waits for the shortage to end
/// and does not spin on it. The stream ends (`None`) only after the listening socket itself was
/// shut down, which is reported first, once, as
/// [`InvalidInput`](io::ErrorKind::InvalidInput).
///
/// Dropping it loses no connection: what was not taken stays with the listener.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let listener = net::TcpListener::bind("127.0.0.1:0").await?;
/// let client = net::TcpStream::connect(listener.local_addr()?).await?;
///
/// let mut incoming = listener.incoming();
/// while let Some(stream) = incoming.next().await {
///     let stream = stream?;
///     assert_eq!(stream.peer_addr()?, client.local_addr()?);
/// #   break;
/// }
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[must_use = "a stream does nothing unless it is polled"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    ended: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(listener: &'a TcpListener) -> Self {
        Incoming {
            listener,
            ended: false,
        }
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.listener.poll_stream(cx));
        // EINVAL says that the socket no longer listens. It would come back at every poll, and a
        // loop that skips errors would never get past it.
        self.ended = matches!(&item, Err(error) if error.kind() == io::ErrorKind::InvalidInput);
        Poll::Ready(Some(item))
    }
}

impl FusedStream for Incoming<'_> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("listener", self.listener)
            .field("ended", &self.ended)
            .finish()
    }
}
