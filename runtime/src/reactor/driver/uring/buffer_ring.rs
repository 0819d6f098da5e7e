//! A ring of provided buffers (since 5.19): the kernel takes buffers from it as data arrives.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The shared memory of one buffer group. Only this side writes the tail, only the kernel moves the head.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    count: u16,
    /// Ours; what the kernel sees is the copy that `publish` stores.
    tail: u16,
    group: u16,
}

impl BufferRing {
    /// Makes and registers a ring with room for `count` buffers, rounded up to a power of two.
    pub(super) fn register(ring: &IoUring, group: u16, count: u16) -> io::Result<Self> {
        let count = count
            .max(1)
            .checked_next_power_of_two()
            .unwrap_or(MAX_ENTRIES);
        let count = count.min(MAX_ENTRIES);
        let buffers = Self {
            entries: map(Self::bytes(count))?.cast(),
            count,
            tail: 0,
            group,
        };
        let address = buffers.entries.as_ptr().addr() as u64;
        // SAFETY: the memory is `count` zeroed, page-aligned entries. It is unmapped only after `unregister`, or
        // by the drop below if the kernel has refused it.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, group, 0)
        }?;
        Ok(buffers)
    }

    /// Puts a buffer into the ring. The kernel sees it from the next `publish` on.
    ///
    /// The caller provides each buffer at most once at a time, and there are no more buffers than entries (the pool
    /// sees to both), so the entry written here is one that the kernel has already consumed.
    pub(super) fn provide(&mut self, id: u16, address: NonNull<u8>, len: usize) {
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: `index` is below `count`.
        let mut entry = unsafe { self.entries.add(index) };
        // SAFETY: the kernel reads entries between its head and the published tail only; this one is outside, and
        // nobody else writes entries.
        let entry = unsafe { entry.as_mut() };
        // Never the field `resv`: in entry 0 it is the tail itself.
        entry.set_addr(address.as_ptr().addr() as u64);
        entry.set_len(u32::try_from(len).unwrap_or(u32::MAX));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel all buffers provided so far, with one store.
    pub(super) fn publish(&mut self) {
        // SAFETY: `entries` is a registered ring, whose tail lies in its first entry.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is two aligned bytes of the mapping; the kernel loads it with acquire, so this release
        // store makes the entries visible before it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Takes the ring away from the kernel. No op that selects from it may be in flight.
    pub(super) fn unregister(self, ring: &IoUring) {
        if let Err(error) = ring.submitter().unregister_buf_ring(self.group) {
            // The kernel may still read the entries: they must not be unmapped.
            tracing::warn!(%error, "the buffer ring could not be unregistered; its memory is leaked");
            std::mem::forget(self);
        }
    }

    fn bytes(count: u16) -> usize {
        usize::from(count) * size_of::<BufRingEntry>()
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        let bytes = Self::bytes(self.count);
        // SAFETY: mapped by `map` with this size; not registered any more (see `register` and `unregister`).
        unsafe { libc::munmap(self.entries.as_ptr().cast(), bytes) };
    }
}

/// Zeroed pages; `dontfork`, as a child must not see or pin them.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The most that the kernel accepts.
const MAX_ENTRIES: u16 = 1 << 15;
