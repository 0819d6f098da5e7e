//! The io_uring driver: one ring, its registered descriptor, its provided buffers, and the one `enter` of a turn.
//!
//! The crate `io-uring` maps the rings and builds entries. The `enter` call is our own: it uses the registered
//! descriptor, and decides itself when completions are asked for (`GETEVENTS`), which a ring with deferred task
//! work never shows otherwise.
#![allow(unsafe_code)]

mod buffer_ring;
mod setup;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use io_uring::{IoUring, squeue};

use self::buffer_ring::BufferRing;
pub(crate) use self::setup::{Sizes, TaskWork};
use super::{Cqe, Driver, DriverCounters, Park, Request};
use crate::reactor::probe::Disabled;

/// The buffer group that multishot receives draw from.
pub(crate) const GROUP: u16 = 0;

pub(crate) struct Uring {
    ring: IoUring,
    /// The ring's index among the thread's registered rings, or its descriptor.
    enter_fd: RawFd,
    /// The flags of every enter.
    enter_flags: u32,
    /// The flags of an enter that may sleep.
    sleep_flags: u32,
    /// Whether the ring's descriptor is registered, or why not.
    registered: io::Result<()>,
    /// A sleep can be given a limit (since 5.11).
    pub(crate) ext_arg: bool,
    /// An entry can ask for no completion when it succeeds (since 5.17).
    pub(crate) skip_success: bool,
    task_work: TaskWork,
    buffers: Option<BufferRing>,
    pushed: u32,
    consumed: u32,
    counters: DriverCounters,
}

impl Uring {
    /// Makes a ring for the calling thread, which must be the one that uses it.
    ///
    /// # Errors
    ///
    /// The kernel's, after every step down that could have helped was tried.
    pub(crate) fn new(sizes: Sizes, disabled: &Disabled) -> io::Result<Self> {
        let (ring, task_work) = setup::build(sizes, disabled)?;
        let fd = ring.as_raw_fd();
        let registered = if disabled.contains("ring_fd") {
            Err(io::ErrorKind::Unsupported.into())
        } else {
            register_ring_fd(fd)
        };
        let no_iowait = ring.params().is_feature_no_iowait();
        Ok(Self {
            enter_fd: *registered.as_ref().unwrap_or(&fd),
            enter_flags: if registered.is_ok() {
                ENTER_REGISTERED_RING
            } else {
                0
            },
            // Since 6.15; without it a sleeping worker is accounted as waiting for a disk.
            sleep_flags: if no_iowait { ENTER_NO_IOWAIT } else { 0 },
            registered: registered.map(drop),
            ext_arg: ring.params().is_feature_ext_arg() && !disabled.contains("ext_arg"),
            skip_success: ring.params().is_feature_skip_cqe_on_success()
                && !disabled.contains("skip_success"),
            task_work,
            ring,
            buffers: None,
            pushed: 0,
            consumed: 0,
            counters: DriverCounters::default(),
        })
    }

    /// Registers a ring of at most `entries` provided buffers, for [`GROUP`].
    pub(crate) fn register_buffers(&mut self, entries: u16) -> io::Result<()> {
        let buffers = BufferRing::register(&self.ring, GROUP, entries)?;
        self.buffers = Some(buffers);
        Ok(())
    }

    pub(crate) fn ring(&self) -> &IoUring {
        &self.ring
    }

    pub(crate) fn task_work(&self) -> TaskWork {
        self.task_work
    }

    /// Whether the ring's descriptor is registered, or why not.
    pub(crate) fn registered(&self) -> &io::Result<()> {
        &self.registered
    }

    /// Entries that the kernel has not taken yet.
    fn pending(&mut self) -> u32 {
        // The queue's size fits in 32 bits: the kernel gave it so.
        self.ring.submission().len() as u32
    }

    fn reap(&mut self, arrived: &mut Vec<Cqe>) {
        if self.ring.submission().cq_overflow() {
            self.counters.overflows += 1;
        }
        arrived.extend(self.ring.completion().map(|cqe| Cqe {
            user_data: cqe.user_data(),
            result: cqe.result(),
            flags: cqe.flags(),
        }));
    }

    /// A sleep with a limit, for kernels (5.10) whose enter has none: the ring's descriptor is polled instead.
    fn sleep_outside(&mut self, pending: u32, limit: Duration) -> io::Result<()> {
        if pending > 0 {
            self.enter(pending, 0, ENTER_GETEVENTS, None)?;
        }
        if !self.ring.completion().is_empty() || self.pending() > 0 {
            return Ok(());
        }
        let mut poll = libc::pollfd {
            fd: self.ring.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up: waking before the deadline would mean to spin until it.
        let milliseconds = limit.as_nanos().div_ceil(1_000_000);
        let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
        // SAFETY: one `pollfd`, which lives until the call returns. A failure (EINTR) is as good as a time-out.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        self.enter(0, 0, ENTER_GETEVENTS, None)
    }

    /// The one `io_uring_enter`. Being interrupted or timed out is no error.
    fn enter(
        &mut self,
        submit: u32,
        want: u32,
        flags: u32,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        self.counters.enters += 1;
        let timespec = limit.map(Timespec::from);
        let wait = timespec.as_ref().map(EnterArgument::new);
        let mut flags = self.enter_flags | flags;
        if want > 0 {
            flags |= self.sleep_flags;
        }
        let (argument, size) = match &wait {
            Some(wait) => {
                flags |= ENTER_EXT_ARG;
                (ptr::from_ref(wait), size_of::<EnterArgument>())
            }
            None => (ptr::null(), 0),
        };
        // SAFETY: the descriptor is this ring's; `argument` is null or points to an `EnterArgument`, which like the
        // timespec that it names lives until the call returns.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                want,
                flags,
                argument,
                size,
            )
        };
        if let Ok(taken) = u32::try_from(taken) {
            self.consumed = self.consumed.wrapping_add(taken);
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }
}

impl Driver for Uring {
    fn push_entry(&mut self, entry: &squeue::Entry) -> Option<u32> {
        // SAFETY: what the entry points to outlives the op: its slot keeps the op alive until the final
        // completion, and the contract of `Op` says that the op owns it.
        unsafe { self.ring.submission().push(entry) }.ok()?;
        self.pushed = self.pushed.wrapping_add(1);
        Some(self.pushed)
    }

    fn push(&mut self, request: Request) -> Result<(), Request> {
        if self.ring.submission().is_full() {
            return Err(request);
        }
        self.push_entry(&request.into_entry(self.skip_success));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        let pending = self.pending();
        self.enter(pending, 0, 0, None)
    }

    fn turn(&mut self, park: Park, arrived: &mut Vec<Cqe>) -> io::Result<()> {
        let pending = self.pending();
        let sleeps = match park {
            Park::Sleep(limit) if self.ring.completion().is_empty() => Some(limit),
            _ => None,
        };
        let entered = match sleeps {
            Some(Some(limit)) if !self.ext_arg => self.sleep_outside(pending, limit),
            Some(limit) => self.enter(pending, 1, ENTER_GETEVENTS, limit),
            None if pending > 0 || self.has_more() => self.enter(pending, 0, ENTER_GETEVENTS, None),
            None => Ok(()),
        };
        self.reap(arrived);
        entered
    }

    /// Whether the kernel says that another enter would bring completions.
    fn has_more(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn has_news(&mut self) -> bool {
        // Two loads: the kernel has raised its flag, or (without deferred task work) written a completion.
        self.has_more() || !self.ring.completion().is_empty()
    }

    fn pushed(&self) -> u32 {
        self.pushed
    }

    fn consumed(&self) -> u32 {
        self.consumed
    }

    fn is_overflowing(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    fn provide(&mut self, id: u16, address: NonNull<u8>, len: usize) {
        if let Some(buffers) = &mut self.buffers {
            buffers.provide(id, address, len);
        }
    }

    fn publish(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            buffers.publish();
        }
    }

    fn counters(&self) -> DriverCounters {
        self.counters
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            buffers.unregister(&self.ring);
        }
        if self.registered.is_ok() {
            unregister_ring_fd(self.ring.as_raw_fd(), self.enter_fd);
        }
    }
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

impl From<Duration> for Timespec {
    fn from(duration: Duration) -> Self {
        Self {
            // The kernel refuses what does not fit; 292 billion years are long enough.
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: i64::from(duration.subsec_nanos()),
        }
    }
}

/// `struct io_uring_getevents_arg`, since 5.11.
#[repr(C)]
struct EnterArgument {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_microseconds: u32,
    timespec: u64,
}

impl EnterArgument {
    fn new(timespec: &Timespec) -> Self {
        Self {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_microseconds: 0,
            timespec: ptr::from_ref(timespec).addr() as u64,
        }
    }
}

/// `struct io_uring_rsrc_update`, as registering a ring's descriptor wants it.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// Registers the ring's own descriptor with the thread (since 5.18; 16 a thread), which spares every enter the
/// look-up of the file. Returns its index.
fn register_ring_fd(fd: RawFd) -> io::Result<RawFd> {
    let mut update = RingUpdate {
        offset: u32::MAX, // any free index
        reserved: 0,
        data: fd as u64,
    };
    // SAFETY: the kernel reads and writes one `RingUpdate`, which lives until the call returns.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            REGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
    match registered {
        1 => RawFd::try_from(update.offset).map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unregister_ring_fd(fd: RawFd, index: RawFd) {
    let mut update = RingUpdate {
        offset: index as u32,
        reserved: 0,
        data: 0,
    };
    // SAFETY: as in `register_ring_fd`. A failure leaves the index taken until the thread ends, nothing worse.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            UNREGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
}

// linux/io_uring.h
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
