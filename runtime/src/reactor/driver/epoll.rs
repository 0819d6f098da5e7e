//! The epoll driver, for where io_uring is refused: it knows readiness only. Operations are done by their attempt
//! forms.
//!
//! Every descriptor is registered once, edge-triggered, in both directions. The kernel then tells of changes only,
//! so what it told is remembered until a try shows that it is over.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::squeue;
use polling::{Event, Events, PollMode, Poller};

use super::fifo::Fifo;
use super::{Cqe, Driver, DriverCounters, Park, Request, Wait};
use crate::reactor::op::{Interest, system};

pub(crate) struct Epoll {
    poller: Poller,
    events: Events,
    watched: HashMap<RawFd, Watched>,
    /// Completions for the next turn.
    due: Vec<Cqe>,
    counters: DriverCounters,
}

/// What is known of one descriptor.
#[derive(Default)]
struct Watched {
    read: Direction,
    write: Direction,
}

#[derive(Default)]
struct Direction {
    ready: bool,
    news: u32,
    /// The `user_data` of those who wait; usually one. None is zero, which makes an idle connection's share smaller.
    waiting: Fifo<NonZeroU64>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            events: Events::new(),
            watched: HashMap::new(),
            due: Vec::new(),
            counters: DriverCounters::default(),
        })
    }

    fn unregister(&self, fd: RawFd) {
        // SAFETY: the caller still owns the descriptor, which is open.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Err(error) = self.poller.delete(source) {
            tracing::debug!(fd, %error, "a descriptor was not watched any more");
        }
    }

    fn wait_for(&mut self, wait: Wait) {
        if !self.watched.contains_key(&wait.fd)
            && let Err(error) = self.watch(wait.fd)
        {
            // A regular file cannot be polled, as it is always ready.
            let result = match error.raw_os_error() {
                Some(libc::EPERM) => 0,
                errno => -errno.unwrap_or(libc::EIO),
            };
            return self.complete(wait.user_data, result);
        }
        let Some(watched) = self.watched.get_mut(&wait.fd) else {
            return;
        };
        let direction = watched.direction(wait.interest);
        match NonZeroU64::new(wait.user_data) {
            Some(user_data) if !direction.ready => direction.waiting.push_back(user_data),
            _ => self.complete(wait.user_data, 0),
        }
    }

    fn watch(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the descriptor is removed by `forget` or `close` before it is closed: sockets of this runtime are
        // closed by `close` only, and whatever else is watched calls `forget` when it is let go.
        let added =
            unsafe { (self.poller).add_with_mode(fd, Event::all(key_of(fd)), PollMode::Edge) };
        match added {
            // Somebody closed the number behind our back while a duplicate kept the old registration alive, and it
            // names this file again. Edge-triggered, it must be told to report what is ready already.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // SAFETY: the caller's descriptor is open.
                let source = unsafe { BorrowedFd::borrow_raw(fd) };
                self.poller
                    .modify_with_mode(source, Event::all(key_of(fd)), PollMode::Edge)?;
            }
            added => added?,
        }
        self.watched.insert(fd, Watched::default());
        Ok(())
    }

    fn cancel(&mut self, of: Wait, user_data: u64) {
        let watched = self.watched.get_mut(&of.fd);
        let found = watched
            .zip(NonZeroU64::new(of.user_data))
            .is_some_and(|(watched, key)| watched.direction(of.interest).waiting.remove(&key));
        if found {
            self.complete(of.user_data, -libc::ECANCELED);
        } else {
            // It was told already, and may be about to wait again.
            self.complete(user_data, -libc::ENOENT);
        }
    }

    fn close(&mut self, fd: OwnedFd) {
        let raw = fd.as_raw_fd();
        if let Some(mut watched) = self.watched.remove(&raw) {
            // Whoever watches the same number will not hear of it any more.
            let directions = [&mut watched.read, &mut watched.write];
            let waiting = directions.map(|direction| std::mem::take(&mut direction.waiting));
            for user_data in waiting.iter().flat_map(Fifo::iter) {
                self.complete(user_data.get(), -libc::ECANCELED);
            }
            self.unregister(raw);
        }
    }

    fn look(&mut self, park: Park) -> io::Result<()> {
        let limit = match park {
            Park::Sleep(limit) if self.due.is_empty() => limit.map(round_up),
            _ => Some(Duration::ZERO),
        };
        self.counters.enters += 1;
        self.events.clear();
        match self.poller.wait(&mut self.events, limit) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let (watched, due) = (&mut self.watched, &mut self.due);
        for event in self.events.iter() {
            // An event of a number that was let go since is nobody's.
            if let Some(watched) = watched.get_mut(&fd_of(event.key)) {
                for (direction, ready) in [
                    (&mut watched.read, event.readable),
                    (&mut watched.write, event.writable),
                ] {
                    if ready {
                        direction.ready = true;
                        direction.news = direction.news.wrapping_add(1);
                        direction.tell(due);
                    }
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, user_data: u64, result: i32) {
        self.due.push(Cqe {
            user_data,
            result,
            flags: 0,
        });
    }
}

impl Driver for Epoll {
    fn push_entry(&mut self, entry: &squeue::Entry) -> Option<u32> {
        // Never: the reactor asks an epoll driver for readiness only. Refused, rather than waited for.
        self.complete(entry.get_user_data(), -libc::EOPNOTSUPP);
        Some(self.pushed())
    }

    fn push(&mut self, request: Request) -> Result<(), Request> {
        match request {
            Request::Readiness(wait) => self.wait_for(wait),
            Request::Cancel { of, user_data } => self.cancel(of, user_data),
            Request::Close(fd) => self.close(fd),
            Request::Entry(entry) => {
                self.push_entry(&entry);
            }
        }
        Ok(())
    }

    fn turn(&mut self, park: Park, arrived: &mut Vec<Cqe>) -> io::Result<()> {
        let looked = self.look(park);
        arrived.append(&mut self.due);
        looked
    }

    /// By a system call, as nothing tells it without one.
    fn has_news(&mut self) -> bool {
        !self.due.is_empty() || system::is_readable(self.poller.as_raw_fd())
    }

    fn clear_ready(&mut self, fd: RawFd, interest: Interest) {
        if let Some(watched) = self.watched.get_mut(&fd) {
            watched.direction(interest).ready = false;
        }
    }

    fn news(&mut self, fd: RawFd, interest: Interest) -> u32 {
        let watched = self.watched.get_mut(&fd);
        watched.map_or(0, |watched| watched.direction(interest).news)
    }

    fn forget(&mut self, fd: RawFd) {
        // Others who wait for the same number still need it.
        let is_free = |watched: &mut Watched| {
            watched.read.waiting.is_empty() && watched.write.waiting.is_empty()
        };
        if self.watched.get_mut(&fd).is_some_and(is_free) {
            self.watched.remove(&fd);
            self.unregister(fd);
        }
    }

    fn counters(&self) -> DriverCounters {
        self.counters
    }
}

impl Watched {
    fn direction(&mut self, interest: Interest) -> &mut Direction {
        match interest {
            Interest::Readable => &mut self.read,
            Interest::Writable => &mut self.write,
        }
    }
}

impl Direction {
    /// Ends every wait.
    fn tell(&mut self, due: &mut Vec<Cqe>) {
        while let Some(user_data) = self.waiting.pop_front() {
            due.push(Cqe {
                user_data: user_data.get(),
                result: 0,
                flags: 0,
            });
        }
    }
}

/// A descriptor as the poller's key; descriptors are never negative.
fn key_of(fd: RawFd) -> usize {
    fd as usize
}

fn fd_of(key: usize) -> RawFd {
    key as RawFd
}

/// A kernel without `epoll_pwait2` counts in milliseconds; rounding down would spin until the deadline.
fn round_up(limit: Duration) -> Duration {
    limit.max(Duration::from_micros(1))
}
