//! Not a server of anything: a ring that does nothing, as often as it is told. What an enter costs.
//!
//! Variants: how many no-ops go into each enter, and `by-descriptor` if the ring is not to be registered.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode};
use rings::{push, ring};
use server::{DONE, Job};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let (batch, way) = job.variant.split_once(' ').unwrap_or((&job.variant, ""));
    let batch: u32 = batch.parse().map_err(io::Error::other)?;
    // The kernel counts references to a file only where other threads could close it.
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::MAX)
        }
    });
    let mut ring = ring()?;
    let enter = if way == "by-descriptor" {
        Enter {
            fd: ring.as_raw_fd(),
            flags: GETEVENTS,
        }
    } else {
        Enter {
            fd: register(&ring)?,
            flags: GETEVENTS | REGISTERED_RING,
        }
    };

    let listener = TcpListener::bind(server::any_port())?;
    server::announce(listener.local_addr()?)?;
    let (mut orders, _) = listener.accept()?;
    let mut order = [0; 8];
    loop {
        orders.read_exact(&mut order)?;
        let mut left = u64::from_le_bytes(order);
        while left > 0 {
            let count = batch.min(left.try_into().unwrap_or(u32::MAX));
            do_nothing(&mut ring, &enter, count)?;
            left -= u64::from(count);
        }
        orders.write_all(&[DONE])?;
    }
}

/// One enter.
fn do_nothing(ring: &mut IoUring, enter: &Enter, count: u32) -> io::Result<()> {
    let entry = opcode::Nop::new().build();
    for _ in 0..count {
        // SAFETY: it points to nothing.
        unsafe { push(ring, &entry)? };
    }
    enter.call(count)?;
    let done = ring.completion().count();
    if done == count as usize {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "{done} of {count} no-ops have completed"
        )))
    }
}

struct Enter {
    fd: i32,
    flags: u32,
}

impl Enter {
    fn call(&self, count: u32) -> io::Result<()> {
        let null = std::ptr::null::<libc::sigset_t>();
        // SAFETY: it passes no memory but that of the ring, which is alive.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd,
                count,
                count,
                self.flags,
                null,
                0,
            )
        };
        if taken == i64::from(count) {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// The index of the ring among those of this thread.
fn register(ring: &IoUring) -> io::Result<i32> {
    let mut update = Update {
        offset: u32::MAX,
        reserved: 0,
        data: ring.as_raw_fd() as u64,
    };
    // SAFETY: the kernel reads and writes one `Update`, which lives until the call returns.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
    match registered {
        1 => Ok(update.offset as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

// linux/io_uring.h
const GETEVENTS: u32 = 1 << 0;
const REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
