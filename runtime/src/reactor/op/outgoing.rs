//! What a socket has to send, and the send that is under way with the first of it.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::Key;
use super::spares::{CHUNK, Gather, MAX_GATHER, Spares};
use super::system::System;
use crate::reactor::send_buf::SendBuf;

/// Bytes that are not handed to the kernel yet. Kept by the worker while a socket has none, so that an idle connection
/// does not pay for it.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Small writes, copied together: the first of what is to be sent. It keeps its memory.
    head: Vec<u8>,
    /// What comes after the head.
    queue: VecDeque<Chunk>,
    /// How much of the head, or of the first chunk if there is no head, is gone.
    offset: usize,
    /// Bytes of all, those in flight included.
    queued: usize,
    flight: Option<Flight>,
    /// What the flight needs if it is of more than one piece.
    gather: Option<Box<Gather>>,
    /// The op that tells of room in a socket that was full.
    pub(super) room: Option<Key>,
}

/// A send that the kernel has, or will have with the next enter. It refers to the head and to the first chunks, which
/// must not change.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    /// Its name in the reactor, unless it is silent.
    pub(super) key: Key,
    pub(super) kind: Kind,
    /// How many chunks.
    chunks: u8,
    pub(super) bytes: usize,
}

/// See the table of [`send`](super::send).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Silent,
    Prompt,
    Armed,
}

/// A piece of the queue. The bytes of each are on the heap, in the pool or static: they stay where they are when the
/// chunk itself moves.
enum Chunk {
    /// Copied from small writes, into a buffer of the worker's.
    Copied(Vec<u8>),
    Owned(SendBuf),
}

impl Outgoing {
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    #[inline]
    pub(super) fn flight(&self) -> Option<&Flight> {
        self.flight.as_ref()
    }

    /// Whether one send takes all of it.
    #[inline]
    pub(super) fn fits_one_send(&self) -> bool {
        self.queue.len() < MAX_GATHER
    }

    /// Whether it takes no more memory than is worth keeping for the next socket.
    pub(super) fn is_small(&self) -> bool {
        self.queue.capacity() <= MAX_GATHER
    }

    /// Copies bytes to the end.
    #[inline(always)]
    pub(super) fn append(&mut self, mut bytes: &[u8], spares: &Spares) {
        self.queued += bytes.len();
        // What is in flight is the kernel's to read: it is never appended to.
        if self.queue.is_empty() && self.flight.is_none() {
            if self.head.capacity() == 0 {
                self.head.reserve_exact(CHUNK);
            }
            bytes = fill(&mut self.head, bytes);
        }
        if !bytes.is_empty() {
            self.append_chunks(bytes, spares);
        }
    }

    fn append_chunks(&mut self, mut bytes: &[u8], spares: &Spares) {
        let in_flight = (self.flight.as_ref()).map_or(0, |flight| flight.chunks.into());
        if self.queue.len() > in_flight
            && let Some(Chunk::Copied(last)) = self.queue.back_mut()
        {
            bytes = fill(last, bytes);
        }
        while !bytes.is_empty() {
            let mut chunk = spares.take_buffer();
            bytes = fill(&mut chunk, bytes);
            self.queue.push_back(Chunk::Copied(chunk));
        }
    }

    /// Puts a buffer to the end.
    pub(super) fn push(&mut self, buf: SendBuf) {
        self.queued += buf.len();
        self.queue.push_back(Chunk::Owned(buf));
    }

    /// A send starts, with as much as fits in one. The entry is to be submitted, or the attempt made.
    #[inline(always)]
    pub(super) fn take_off(&mut self, kind: Kind, spares: &Spares) {
        let (chunks, bytes) = if self.queue.is_empty() {
            (0, self.queued)
        } else if self.head.is_empty() && self.queue.len() == 1 {
            (1, self.queued)
        } else {
            self.gather(spares)
        };
        self.flight = Some(Flight {
            key: Key::NONE,
            kind,
            chunks,
            bytes,
        });
    }

    /// Notes by which name the reactor knows the send.
    #[inline]
    pub(super) fn name_flight(&mut self, key: Key) {
        if let Some(flight) = &mut self.flight {
            flight.key = key;
        }
    }

    /// The send is over.
    #[inline(always)]
    pub(super) fn land(&mut self, spares: &Spares) -> Option<Flight> {
        if let Some(gather) = self.gather.take() {
            spares.put_gather(gather);
        }
        self.flight.take()
    }

    /// Takes `sent` bytes off the front. Returns the owned buffers that are done, if there are any.
    #[inline(always)]
    pub(super) fn consume(&mut self, sent: usize, spares: &Spares) -> Option<Vec<SendBuf>> {
        self.queued = self.queued.saturating_sub(sent);
        if self.queued == 0 && self.queue.is_empty() {
            self.head.clear();
            self.offset = 0;
            return None;
        }
        self.consume_chunks(sent, spares)
    }

    fn consume_chunks(&mut self, mut sent: usize, spares: &Spares) -> Option<Vec<SendBuf>> {
        let mut done = None;
        while let Some(first) = self.first() {
            if sent < first.len() {
                self.offset += sent;
                break;
            }
            sent -= first.len();
            self.offset = 0;
            if !self.head.is_empty() {
                self.head.clear();
                continue;
            }
            match self.queue.pop_front() {
                Some(Chunk::Copied(buffer)) => spares.put_buffer(buffer),
                Some(Chunk::Owned(buffer)) => {
                    done.get_or_insert_with(|| spares.take_done()).push(buffer);
                }
                None => break,
            }
        }
        done
    }

    /// The SQE of the send that has started. It points to bytes of the head and of chunks, which stay where they are
    /// until the flight lands (they are only removed by `consume`, which follows, and never appended to), and to the
    /// flight's own `Gather`, boxed and untouched until then.
    #[inline(always)]
    pub(super) fn ring_form(&self, fd: RawFd) -> squeue::Entry {
        let Some(flight) = &self.flight else {
            return opcode::Nop::new().build(); // never: a flight has just begun
        };
        let flags = flight.kind.flags();
        match (&self.gather, self.first()) {
            (Some(gather), _) => gather_form(fd, gather, flags),
            (None, Some(bytes)) => send_form(fd, bytes, flags),
            (None, None) => opcode::Nop::new().build(),
        }
        .flags(flight.kind.entry_flags())
    }

    /// The same as one system call. `None`: would block.
    pub(super) fn attempt(&self, fd: RawFd, system: &dyn System) -> Option<i32> {
        match &self.gather {
            Some(gather) => system.send_gathered(fd, gather),
            None => system.send(fd, self.first()?),
        }
    }

    /// What is left of the head, or of the first chunk.
    #[inline]
    fn first(&self) -> Option<&[u8]> {
        if !self.head.is_empty() {
            return Some(&self.head[self.offset..]);
        }
        (self.queue.front()).map(|chunk| &chunk.bytes()[self.offset..])
    }

    /// Describes as much as fits in one send.
    fn gather(&mut self, spares: &Spares) -> (u8, usize) {
        let head = usize::from(!self.head.is_empty());
        let chunks = self.queue.len().min(MAX_GATHER - head);
        // The first of all may be gone in part.
        let rest = self.queue.iter().skip(1 - head).map(Chunk::bytes);
        let slices = self.first().into_iter().chain(rest).take(head + chunks);
        let bytes = slices.clone().map(<[u8]>::len).sum();
        let mut gather = spares.take_gather();
        gather.fill(slices);
        self.gather = Some(gather);
        // At most `MAX_GATHER`.
        (chunks as u8, bytes)
    }
}

impl Chunk {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Owned(bytes) => bytes.as_ref(),
        }
    }
}

impl Kind {
    fn flags(self) -> i32 {
        match self {
            // With WAITALL a short send counts as failed, so that it is not silent.
            Self::Silent => libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT,
            // Never with WAITALL: kernels before 6.1 (and Debian's 5.10, which has the ring of 5.15) then answer a
            // short send with EAGAIN, as if nothing had gone out. The self-test of silent sends looks for that.
            Self::Prompt => libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            // Without DONTWAIT the kernel waits for room, and with WAITALL until the last byte found some (5.19;
            // older ones end short, and the rest is sent again).
            Self::Armed => libc::MSG_NOSIGNAL | libc::MSG_WAITALL,
        }
    }

    fn entry_flags(self) -> squeue::Flags {
        match self {
            Self::Silent => squeue::Flags::SKIP_SUCCESS,
            Self::Prompt | Self::Armed => squeue::Flags::empty(),
        }
    }
}

/// A silent send of one slice, as the self-test tries it.
pub(crate) fn silent_form(fd: RawFd, bytes: &'static [u8]) -> squeue::Entry {
    send_form(fd, bytes, Kind::Silent.flags()).flags(Kind::Silent.entry_flags())
}

#[inline]
fn send_form(fd: RawFd, bytes: &[u8], flags: i32) -> squeue::Entry {
    // A send takes at most 2 GiB at once anyway, and reports how much it took.
    let len = u32::try_from(bytes.len()).unwrap_or(MAX_SEND);
    opcode::Send::new(types::Fd(fd), bytes.as_ptr(), len)
        .flags(flags)
        .build()
}

fn gather_form(fd: RawFd, gather: &Gather, flags: i32) -> squeue::Entry {
    opcode::SendMsg::new(types::Fd(fd), &raw const gather.message)
        .flags(flags as u32)
        .build()
}

/// Copies as much as fits without growing. Returns the rest.
#[inline]
fn fill<'a>(buffer: &mut Vec<u8>, bytes: &'a [u8]) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(bytes.len().min(buffer.capacity() - buffer.len()));
    buffer.extend_from_slice(taken);
    rest
}

/// What one SEND takes at most; it reports how much it took.
const MAX_SEND: u32 = 1 << 30;
