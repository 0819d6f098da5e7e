//! [`Home`]: the process that something was made in, so that a child forked from it knows that it is not its own.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process in which this value was made.
///
/// A forked child has a copy of the runtime's memory, and shares with its parent what that memory names: the ring or
/// the epoll instance, and the sockets. If both used them, each would take the other's completions and undo its
/// registrations.
///
/// Looking costs one load and no system call. Each process has a number of its own, in a page that the kernel gives
/// to a child as zeros (`MADV_WIPEONFORK`, since 4.14). Where there is no such page, a child is not recognised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    page: &'static AtomicU64,
    number: u64,
}

impl Home {
    pub(crate) fn here() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let page = page();
        // A child goes on counting where its parent was, so it has none of the numbers of those before it.
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = match page.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            Err(number) => number,
        };
        Self { page, number }
    }

    /// Whether this is still the same process.
    pub(crate) fn is_here(&self) -> bool {
        self.page.load(Ordering::Relaxed) == self.number
    }
}

/// The page with the number of this process; zero if it has none yet.
fn page() -> &'static AtomicU64 {
    static PAGE: OnceLock<&AtomicU64> = OnceLock::new();
    static WITHOUT_PAGE: AtomicU64 = AtomicU64::new(0);
    PAGE.get_or_init(|| {
        map_wiped_on_fork().unwrap_or_else(|error| {
            tracing::debug!(%error, "forked children will not be recognised");
            &WITHOUT_PAGE
        })
    })
}

fn map_wiped_on_fork() -> std::io::Result<&'static AtomicU64> {
    let bytes = size_of::<AtomicU64>();
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above.
    if unsafe { libc::madvise(start, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let error = std::io::Error::last_os_error();
        // SAFETY: the same range, which nobody has seen.
        unsafe { libc::munmap(start, bytes) };
        return Err(error);
    }
    match NonNull::new(start.cast::<AtomicU64>()) {
        // SAFETY: a zeroed, aligned page that stays mapped for good. It is written through this atomic only, and by
        // a fork before the child runs.
        Some(page) => Ok(unsafe { page.as_ref() }),
        None => Err(std::io::ErrorKind::OutOfMemory.into()),
    }
}
