//! The direct system calls of a simulation.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::SockAddr;

use super::World;
use super::network::{Network, borrow};
use super::sqe::Slices;
use crate::reactor::op::spares::Gather;
use crate::reactor::op::system::System;

/// The calls that are made without the ring, on the ring's network.
pub(super) struct Calls(pub(super) Rc<RefCell<World>>);

impl System for Calls {
    fn recv(&self, fd: RawFd, bytes: &mut [u8]) -> Option<i32> {
        let mut world = self.0.borrow_mut();
        if !world.network.is_end(fd) {
            return Some(-libc::ENOTCONN);
        }
        Some(match world.recv(fd, bytes.len())? {
            Ok(received) => {
                bytes[..received.len()].copy_from_slice(&received);
                i32::try_from(received.len()).unwrap_or(i32::MAX)
            }
            Err(errno) => errno,
        })
    }

    fn send(&self, fd: RawFd, bytes: &[u8]) -> Option<i32> {
        let mut world = self.0.borrow_mut();
        if !world.network.is_end(fd) {
            return Some(-libc::ENOTCONN);
        }
        world.send(fd, bytes.to_vec())
    }

    fn send_gathered(&self, fd: RawFd, gather: &Gather) -> Option<i32> {
        self.send(fd, &Slices::of(&gather.message).read())
    }

    fn accept(&self, fd: RawFd) -> Option<i32> {
        self.0.borrow_mut().accept(fd)
    }

    fn begin_connect(&self, socket: BorrowedFd<'_>, address: &SockAddr) -> Option<i32> {
        let mut world = self.0.borrow_mut();
        if world.chance(|faults| faults.refusals) {
            return Some(-libc::ECONNREFUSED);
        }
        let established = world.arrival();
        let begun = world.network.connect(socket, address, established);
        begun.err()
    }

    fn end_connect(&self, socket: BorrowedFd<'_>) -> Option<i32> {
        let world = self.0.borrow();
        world.network.connected(socket.as_raw_fd(), world.now.get())
    }

    fn shutdown(&self, socket: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        let arrival = world.arrival();
        world.network.shutdown(socket.as_raw_fd(), how, arrival)
    }

    fn is_readable(&self, fd: RawFd) -> bool {
        let world = self.0.borrow();
        let (events, _) = world.network.poll(fd, world.now.get());
        events & libc::POLLIN as u32 != 0
    }

    fn now(&self) -> Instant {
        self.0.borrow().now.get()
    }

    fn pause(&self, pause: Duration) {
        let mut world = self.0.borrow_mut();
        let at = world.now.get() + pause;
        world.advance_to(at);
    }
}

/// Connects the socket that an entry names.
pub(super) fn connect(
    network: &mut Network,
    fd: RawFd,
    address: &SockAddr,
    established: Instant,
) -> Result<(), i32> {
    network.connect(borrow(fd), address, established)
}
