//! The buffers that the kernel receives into, and [`Lease`], the right to read one.
//!
//! A pool has address space for its largest size from the start; memory is touched only by what is received. It
//! hands out few buffers at first and more when they run short, so that a calm worker keeps a small, warm set.
//!
//! Each buffer is in exactly one of four places:
//!
//! ```text
//!   vacant ──provide──▶ provided (the kernel may fill it) ──CQE names it──▶ leased ──last lease dropped──▶ vacant
//!     │                                                                       ▲
//!     └───────────────── attempt: taken, filled by recv(2) ───────────────────┘          unborn ──grow──▶ vacant
//! ```
#![allow(unsafe_code)]

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use bytes::Bytes;

/// The receive buffers of one worker.
pub(crate) struct Pool {
    memory: Memory,
    buffer_size: usize,
    /// Leases per buffer.
    leases: Box<[Cell<u32>]>,
    vacant: RefCell<Vec<u16>>,
    provided: Cell<usize>,
    /// Buffers that were ever handed out; the rest is unborn.
    born: Cell<usize>,
    /// Buffers that wait in inboxes, unread.
    queued: Cell<usize>,
}

impl Pool {
    /// A pool of at most `count` buffers of `buffer_size` bytes each.
    ///
    /// # Errors
    ///
    /// When there is no address space for them, or more than [`MAX_BUFFER_SIZE`] and [`MAX_POOL_SIZE`] allow.
    pub(crate) fn new(count: u16, buffer_size: usize) -> io::Result<Rc<Self>> {
        let count = usize::from(count);
        let is_too_large = |size: usize| size as u64 > MAX_POOL_SIZE;
        if buffer_size > MAX_BUFFER_SIZE || is_too_large(count * buffer_size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let pool = Self {
            memory: Memory::map(count * buffer_size)?,
            buffer_size,
            leases: vec![Cell::new(0); count].into_boxed_slice(),
            vacant: RefCell::new(Vec::with_capacity(count)),
            provided: Cell::new(0),
            born: Cell::new(0),
            queued: Cell::new(0),
        };
        pool.bear(count.min(FIRST_BUFFERS));
        Ok(Rc::new(pool))
    }

    /// Most buffers that there can be.
    pub(crate) fn capacity(&self) -> usize {
        self.leases.len()
    }

    /// Buffers that exist now.
    pub(crate) fn born(&self) -> usize {
        self.born.get()
    }

    /// Buffers that nobody reads: vacant or provided.
    pub(crate) fn free(&self) -> usize {
        self.provided.get() + self.vacant.borrow().len()
    }

    /// Whether less than a quarter of the buffers is free.
    pub(crate) fn is_short(&self) -> bool {
        self.free() * 4 < self.born()
    }

    /// Buffers that wait in inboxes, unread.
    pub(crate) fn queued(&self) -> usize {
        self.queued.get()
    }

    /// Doubles the number of buffers, up to the capacity. Whether there are more now.
    pub(crate) fn grow(&self) -> bool {
        let more = self.born().min(self.capacity() - self.born());
        self.bear(more);
        more > 0
    }

    /// Calls `provide` with the id, address and size of every vacant buffer, the most recently used first.
    pub(crate) fn provide(&self, mut provide: impl FnMut(u16, NonNull<u8>, usize)) {
        let mut vacant = self.vacant.borrow_mut();
        self.provided.set(self.provided.get() + vacant.len());
        while let Some(id) = vacant.pop() {
            provide(id, self.address(id), self.buffer_size);
        }
    }

    /// The kernel says that it has filled `len` bytes of a provided buffer. `None` if it cannot have.
    #[inline]
    pub(crate) fn filled(self: &Rc<Self>, id: u16, len: usize) -> Option<Lease> {
        let leases = self.leases.get(usize::from(id))?;
        if leases.get() != 0 || len > self.buffer_size || self.provided.get() == 0 {
            return None;
        }
        self.provided.set(self.provided.get() - 1);
        Some(self.lease(id, len))
    }

    /// Lets `fill` write into a vacant buffer; it says how many bytes it wrote. `None` without a vacant buffer,
    /// or if `fill` gives none.
    pub(crate) fn fill(
        self: &Rc<Self>,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<Lease> {
        let id = self.vacant.borrow_mut().pop()?;
        // SAFETY: the buffer is `buffer_size` initialised bytes of `memory` (zeroed when mapped). It was vacant, so
        // neither the kernel nor a lease refers to it, and it is off the vacant list until `fill` returns.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.address(id).as_ptr(), self.buffer_size) };
        match fill(bytes) {
            Some(len) => Some(self.lease(id, len.min(self.buffer_size))),
            None => {
                self.vacant.borrow_mut().push(id);
                None
            }
        }
    }

    fn lease(self: &Rc<Self>, id: u16, len: usize) -> Lease {
        self.leases[usize::from(id)].set(1);
        Lease {
            pool: Rc::clone(self),
            // All of the pool is at most `MAX_POOL_SIZE` bytes.
            start: (usize::from(id) * self.buffer_size) as u32,
            len: len as u32,
        }
    }

    /// The buffer that a lease is of.
    #[inline]
    fn id(&self, start: u32) -> u16 {
        // There are as many as a `u16` can name.
        (start / self.buffer_size as u32) as u16
    }

    fn bear(&self, more: usize) {
        let first = self.born();
        let mut vacant = self.vacant.borrow_mut();
        // Ids fit: the capacity came from a `u16`. Pushed in reverse, so that the lowest is used first.
        vacant.extend((first..first + more).rev().map(|id| id as u16));
        self.born.set(first + more);
    }

    fn address(&self, id: u16) -> NonNull<u8> {
        // SAFETY: `id` is below the capacity, so the offset stays inside `memory`.
        unsafe { self.memory.start.add(usize::from(id) * self.buffer_size) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_size", &self.buffer_size)
            .field("born", &self.born())
            .field("free", &self.free())
            .finish_non_exhaustive()
    }
}

/// Received bytes, where the kernel has put them.
///
/// A lease derefs to `[u8]`. Dropping it (and all leases [split](Self::split_to) from it) returns the buffer to
/// its worker's pool, exactly once. It may outlive its socket and even its runtime.
///
/// A lease stays on its worker, as the pool belongs to that thread. To send bytes elsewhere, copy them:
/// `Vec::from(lease)` or `Bytes::from(lease)`.
///
/// Holding many leases starves nobody: when the pool runs short, other sockets receive into the heap. But each
/// holds a whole pool buffer (16 KiB by default), however few bytes it shows.
///
/// # Examples
///
/// ```
/// # use std::io::Write;
/// use futures::StreamExt;
/// # runtime::Builder::new().build()?.block_on(async {
/// # let (mut peer, socket) = std::os::unix::net::UnixStream::pair()?;
/// # let mut inbox = runtime::io::Inbox::new(runtime::io::Socket::new(socket)?);
/// # peer.write_all(b"hello")?;
/// if let Some(mut lease) = inbox.stream().next().await.transpose()? {
///     let head = lease.split_to(2);
///     assert_eq!((&head[..], &lease[..]), (&b"he"[..], &b"llo"[..]));
/// }
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct Lease {
    /// Two words in all, as sockets and futures have room for some. So bytes on the heap are a pool as well: one of a
    /// single buffer, for themselves.
    pool: Rc<Pool>,
    /// Where in the pool's memory the bytes begin: within one buffer, also if there are none.
    start: u32,
    /// How many of that buffer's bytes there are.
    len: u32,
}

const _: () = assert!(size_of::<io::Result<Lease>>() == 16);

impl Lease {
    /// Bytes that were copied out of the pool, or received without it.
    pub(crate) fn heap(bytes: Vec<u8>) -> Self {
        let memory = Memory::heap(bytes.into());
        let len = memory.len;
        let pool = Pool {
            buffer_size: len.max(1),
            memory,
            leases: [Cell::new(0)].into(),
            vacant: RefCell::default(),
            provided: Cell::new(0),
            born: Cell::new(1),
            queued: Cell::new(0),
        };
        Rc::new(pool).lease(0, len)
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.pool.memory.heap.is_none()
    }

    /// Notes that this lease waits unread in an inbox, or no longer does.
    #[inline]
    pub(crate) fn set_queued(&self, queued: bool) {
        let count = self.pool.queued.get();
        self.pool.queued.set(if queued {
            count + 1
        } else {
            count.saturating_sub(1)
        });
    }

    /// Takes the first `n` bytes away into a lease of their own. No byte is copied.
    ///
    /// # Panics
    ///
    /// If `n` is more than there are.
    #[track_caller]
    pub fn split_to(&mut self, n: usize) -> Lease {
        assert!(
            n <= self.len(),
            "Lease::split_to: {n} of {} bytes",
            self.len()
        );
        let leases = &self.pool.leases[usize::from(self.pool.id(self.start))];
        leases.set(leases.get() + 1);
        let head = Lease {
            pool: Rc::clone(&self.pool),
            start: self.start,
            len: n as u32,
        };
        self.advance(n);
        head
    }

    /// Forgets the first `n` bytes.
    ///
    /// # Panics
    ///
    /// If `n` is more than there are.
    #[track_caller]
    pub fn advance(&mut self, n: usize) {
        assert!(
            n <= self.len(),
            "Lease::advance: {n} of {} bytes",
            self.len()
        );
        self.len -= n as u32;
        if self.len > 0 {
            // Otherwise the end might be the beginning of the next buffer.
            self.start += n as u32;
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and `len` stay within one buffer, and so within the pool's memory.
        let start = unsafe { self.pool.memory.start.add(self.start as usize) };
        // SAFETY: the bytes are initialised (mapped as zeros, then written by the kernel, or the heap's), and nobody
        // writes them while a lease lives: only vacant buffers are provided or filled, and `leases` is above zero.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len as usize) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("len", &self.len())
            .field("pooled", &self.is_pooled())
            .finish()
    }
}

impl From<Lease> for Vec<u8> {
    fn from(lease: Lease) -> Self {
        lease.to_vec()
    }
}

impl From<Lease> for Bytes {
    /// Copies the bytes, unless they were on the heap already.
    fn from(lease: Lease) -> Self {
        match &lease.pool.memory.heap {
            Some(bytes) => bytes.slice_ref(&lease),
            None => Bytes::copy_from_slice(&lease),
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        let id = self.pool.id(self.start);
        let leases = &self.pool.leases[usize::from(id)];
        leases.set(leases.get() - 1);
        if leases.get() == 0 {
            self.pool.vacant.borrow_mut().push(id);
        }
    }
}

/// Pages from the kernel, zeroed, taken only when touched; or bytes on the heap, which nobody writes to any more.
struct Memory {
    start: NonNull<u8>,
    len: usize,
    heap: Option<Bytes>,
}

impl Memory {
    fn heap(bytes: Bytes) -> Self {
        Self {
            start: NonNull::from(&*bytes).cast(),
            len: bytes.len(),
            heap: Some(bytes),
        }
    }

    fn map(len: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // One received byte must cost a page, not a huge page. Only a hint: a kernel without them refuses it.
        // SAFETY: the range is the mapping made above.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self {
                start,
                len,
                heap: None,
            }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.heap.is_some() {
            return;
        }
        // SAFETY: the range was mapped by `map`; every lease holds the pool, and the reactor lets go of the pool
        // only when the kernel has finished with its buffers (or leaks it).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Buffers that exist from the start.
const FIRST_BUFFERS: usize = 64;

/// No receive is larger than this anyway.
pub(crate) const MAX_BUFFER_SIZE: usize = 1 << 30;

/// The place of a byte has 32 bits in a lease.
pub(crate) const MAX_POOL_SIZE: u64 = 4 << 30;
