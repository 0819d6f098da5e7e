//! System: what the reactor asks of the operating system without a driver.

use std::io;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use socket2::{SockAddr, SockRef};

use super::attempted;
use super::spares::Gather;

/// The system calls of the attempt forms, the few others that are made directly, and the clock.
///
/// A seam: a simulated kernel has its own. Each call is one nonblocking try; `None` says that trying again later is the
/// answer, a negative result is an errno.
pub(crate) trait System {
    fn recv(&self, fd: RawFd, bytes: &mut [u8]) -> Option<i32>;
    fn send(&self, fd: RawFd, bytes: &[u8]) -> Option<i32>;
    fn send_gathered(&self, fd: RawFd, gather: &Gather) -> Option<i32>;
    fn accept(&self, fd: RawFd) -> Option<i32>;

    /// Begins a handshake. `None`: it goes on, and its end is readiness to write.
    fn begin_connect(&self, socket: BorrowedFd<'_>, address: &SockAddr) -> Option<i32>;

    /// The end of a handshake that was begun.
    fn end_connect(&self, socket: BorrowedFd<'_>) -> Option<i32>;

    fn shutdown(&self, socket: BorrowedFd<'_>, how: Shutdown) -> io::Result<()>;

    /// Whether a receive would find something: bytes, an end or an error. Takes none of it.
    fn is_readable(&self, fd: RawFd) -> bool;

    /// What the reactor's own deadlines are measured by.
    fn now(&self) -> Instant;

    /// Leaves a kernel alone that is short of memory.
    fn pause(&self, pause: Duration);
}

/// The system's monotonic clock, in nanoseconds: for what is measured in every turn. An `Instant` and its differences
/// cost three times as much.
pub(crate) fn monotonic() -> u64 {
    nanoseconds_of(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The clock of the CPU time of this thread, for any thread of the process to look at.
pub(crate) fn cpu_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: takes no pointer.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is this one, so it lives; the number outlives the call.
    let known = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) };
    (known == 0).then_some(clock)
}

/// What a clock shows. `None` if there is no such clock, or its thread is gone.
pub(crate) fn nanoseconds_of(clock: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one whole timespec for the kernel to fill; it outlives the call.
    let told = unsafe { libc::clock_gettime(clock, &raw mut now) };
    // None of these clocks is ever negative, and they last for 584 years.
    (told == 0).then(|| (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64)
}

/// Whether a descriptor is ready to be read, or has an end or an error to tell.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one `pollfd`, which lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// The real one.
pub(crate) struct Linux;

impl System for Linux {
    fn recv(&self, fd: RawFd, bytes: &mut [u8]) -> Option<i32> {
        let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the bytes are ours to write until the call returns.
        attempted(unsafe { libc::recv(fd, start, len, libc::MSG_DONTWAIT) })
    }

    fn send(&self, fd: RawFd, bytes: &[u8]) -> Option<i32> {
        // SAFETY: the bytes are borrowed until the call returns.
        attempted(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), SEND_FLAGS) })
    }

    fn send_gathered(&self, fd: RawFd, gather: &Gather) -> Option<i32> {
        // SAFETY: whoever fills a gather keeps what it points to until the send that it was filled for has ended.
        attempted(unsafe { libc::sendmsg(fd, &raw const gather.message, SEND_FLAGS) })
    }

    fn accept(&self, fd: RawFd) -> Option<i32> {
        let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no address is asked for, so no pointer is passed.
        attempted(unsafe { libc::accept4(fd, address, len, libc::SOCK_CLOEXEC) } as isize)
    }

    fn begin_connect(&self, socket: BorrowedFd<'_>, address: &SockAddr) -> Option<i32> {
        let socket = SockRef::from(&socket);
        let begun = socket
            .set_nonblocking(true)
            .and_then(|()| socket.connect(address));
        let begun = match begun {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => None,
            begun => Some(result(begun)),
        };
        match socket.set_nonblocking(false) {
            Ok(()) => begun,
            failed => Some(result(failed)),
        }
    }

    fn end_connect(&self, socket: BorrowedFd<'_>) -> Option<i32> {
        let socket = SockRef::from(&socket);
        match socket.take_error() {
            Ok(None) if socket.peer_addr().is_err() => None,
            Ok(None) => Some(0),
            Ok(Some(error)) | Err(error) => Some(result(Err(error))),
        }
    }

    fn shutdown(&self, socket: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
        SockRef::from(&socket).shutdown(how)
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        is_readable(fd)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// As in a CQE: zero, or a negative errno.
fn result(done: io::Result<()>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
