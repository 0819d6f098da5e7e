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
    /// `None` once it has ended.
    inbox: Option<&'a Inbox>,
}

impl<'a> RecvStream<'a> {
    pub(super) fn new(inbox: &'a Inbox) -> Self {
        Self { inbox: Some(inbox) }
    }
}

impl Stream for RecvStream<'_> {
    type Item = io::Result<Lease>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(inbox) = self.inbox else {
            return Poll::Ready(None);
        };
        let next = std::task::ready!(inbox.poll_lease(cx));
        if !matches!(next, Some(Ok(_))) {
            self.inbox = None;
        }
        Poll::Ready(next)
    }
}

impl FusedStream for RecvStream<'_> {
    fn is_terminated(&self) -> bool {
        self.inbox.is_none()
    }
}
