//! What has arrived on a socket and was not read yet.

use std::collections::VecDeque;
use std::mem;

use crate::reactor::pool::{Lease, Pool};

/// Chunks that wait for a reader, in order. Most sockets never hold more than one, so the first one lives inside: an
/// idle connection then owns nothing on the heap.
#[derive(Default)]
pub(super) struct Unread {
    /// The oldest; `None` only if nothing is unread.
    first: Option<Lease>,
    /// Boxed, as most sockets never have any.
    more: Option<Box<More>>,
    /// Bytes of all.
    bytes: usize,
}

/// What came after the first chunk.
#[derive(Default)]
struct More {
    rest: VecDeque<Lease>,
    /// Small chunks that came after the rest, copied together.
    spill: Vec<u8>,
}

impl Unread {
    /// Bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Keeps a chunk, which has at least one byte.
    #[inline(always)]
    pub(super) fn push(&mut self, lease: Lease, pool: &Pool) {
        self.bytes += lease.len();
        if self.first.is_none() {
            lease.set_queued(true);
            self.first = Some(lease);
        } else {
            self.push_behind(lease, pool);
        }
    }

    /// A reader that lags behind must not hold a whole pool buffer for each few bytes.
    fn push_behind(&mut self, lease: Lease, pool: &Pool) {
        let more = self.more.get_or_insert_default();
        let small = lease.len() <= SMALL_CHUNK;
        let lags = small && 1 + more.rest.len() >= LAG || lease.is_pooled() && pool.is_short();
        if lags || small && !more.spill.is_empty() {
            more.spill.extend_from_slice(&lease);
            if more.spill.len() >= SPILL {
                more.seal();
            }
            return;
        }
        more.seal();
        lease.set_queued(true);
        more.rest.push_back(lease);
    }

    /// Puts back what was taken.
    pub(super) fn unpop(&mut self, lease: Lease) {
        if lease.is_empty() {
            return;
        }
        self.bytes += lease.len();
        lease.set_queued(true);
        if let Some(second) = self.first.replace(lease) {
            let more = self.more.get_or_insert_default();
            more.rest.push_front(second);
        }
    }

    /// Takes the oldest chunk.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Lease> {
        let lease = self.first.take()?;
        lease.set_queued(false);
        self.bytes -= lease.len();
        if let Some(more) = &mut self.more {
            self.first = more.next();
        }
        Some(lease)
    }

    /// Moves bytes to `buf`, as many as fit.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < buf.len() {
            let Some(first) = &mut self.first else {
                break;
            };
            let n = first.len().min(buf.len() - copied);
            buf[copied..copied + n].copy_from_slice(&first[..n]);
            copied += n;
            if n == first.len() {
                self.pop();
            } else {
                first.advance(n);
                self.bytes -= n;
            }
        }
        copied
    }

    /// Copies bytes to `buf`, as many as fit.
    pub(super) fn peek(&self, buf: &mut [u8]) -> usize {
        let more = self.more.iter();
        let rest = more.clone().flat_map(|more| &more.rest);
        let spill = more.map(|more| more.spill.as_slice());
        let chunks = (self.first.iter().chain(rest).map(|lease| &**lease)).chain(spill);
        let mut copied = 0;
        for chunk in chunks {
            let n = chunk.len().min(buf.len() - copied);
            buf[copied..copied + n].copy_from_slice(&chunk[..n]);
            copied += n;
        }
        copied
    }

    /// Copies what is in pool buffers to the heap, so that they return.
    pub(super) fn copy_out(&mut self) {
        let rest = self.more.iter_mut().flat_map(|more| &mut more.rest);
        for lease in self.first.iter_mut().chain(rest) {
            if lease.is_pooled() {
                lease.set_queued(false);
                *lease = Lease::heap(lease.to_vec());
            }
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl More {
    /// Takes the oldest chunk.
    fn next(&mut self) -> Option<Lease> {
        if self.rest.is_empty() {
            self.seal();
        }
        self.rest.pop_front()
    }

    /// Moves the spill to the end of the rest.
    fn seal(&mut self) {
        if !self.spill.is_empty() {
            let spill = Lease::heap(mem::take(&mut self.spill));
            self.rest.push_back(spill);
        }
    }
}

/// Unread chunks after which small ones are copied together.
const LAG: usize = 4;

/// A chunk that is cheap to copy.
const SMALL_CHUNK: usize = 4096;

/// How much is copied together.
const SPILL: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_read() {
        let pool = Pool::new(4, 64).unwrap();
        let mut unread = Unread::default();
        let mut model = VecDeque::new();
        let mut next = 0_u8;
        for step in 0..20_000_u32 {
            let dice = step.wrapping_mul(2_654_435_761) >> 16;
            match dice % 8 {
                // More comes in than goes out, until much is unread, and then the other way round.
                0..=3 if unread.len() < 60_000 => {
                    let len = if dice & 8 == 0 { 1 + dice % 90 } else { 5000 };
                    let chunk: Vec<u8> = (0..len)
                        .map(|_| {
                            next = next.wrapping_add(1);
                            next
                        })
                        .collect();
                    model.extend(&chunk);
                    let pooled = pool.fill(|buffer| {
                        buffer.get_mut(..chunk.len())?.copy_from_slice(&chunk);
                        Some(chunk.len())
                    });
                    unread.push(pooled.unwrap_or_else(|| Lease::heap(chunk)), &pool);
                }
                0..=4 => {
                    let chunk = unread.pop();
                    let chunk = chunk.as_deref().unwrap_or_default();
                    assert!(chunk.iter().copied().eq(model.drain(..chunk.len())));
                }
                5 => {
                    let mut buf = vec![0; dice as usize % 3000];
                    let n = unread.read(&mut buf);
                    assert_eq!(n, buf.len().min(model.len()));
                    assert!(buf[..n].iter().copied().eq(model.drain(..n)));
                }
                6 => {
                    let mut buf = vec![0; dice as usize % 30_000];
                    let n = unread.peek(&mut buf);
                    assert_eq!(n, buf.len().min(model.len()));
                    assert!(buf[..n].iter().eq(model.iter().take(n)));
                }
                _ => {
                    if dice & 16 == 0 {
                        unread.copy_out();
                        assert_eq!(pool.queued(), 0);
                    } else if let Some(lease) = unread.pop() {
                        unread.unpop(lease);
                    }
                }
            }
            assert_eq!(unread.len(), model.len());
            assert_eq!(unread.is_empty(), model.is_empty());
        }
        drop(unread);
        assert_eq!((pool.queued(), pool.free()), (0, 4));
    }
}
