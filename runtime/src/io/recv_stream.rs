//! [`RecvStream`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};

use super::{Inbox, Lease};

/// What arrives on a socket, chunk by chunk, in the kernel's own buffers.
///
/// Ends at the end of the stream, or after an error. Made by [`Inbox::stream`]. It keeps nothing of its own: it may
/// be dropped and made again at any time, and mixed with every other way of reading.
///
/// # Cancel safety
///
/// A chunk is either yielded or stays in the inbox. Dropping `next()` or the stream itself loses nothing.
///
/// # Examples
///
/// See [`Lease`].
#[derive(Debug)]
pub struct RecvStream<'a> {
    inbox: &'a Inbox,
    ended: bool,
}

impl<'a> RecvStream<'a> {
    pub(super) fn new(inbox: &'a Inbox) -> Self {
        Self {
            inbox,
            ended: false,
        }
    }
}

impl Stream for RecvStream<'_> {
    type Item = io::Result<Lease>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = std::task::ready!(self.inbox.poll_lease(cx));
        self.ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

impl FusedStream for RecvStream<'_> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
