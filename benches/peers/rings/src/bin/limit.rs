//! The limit: a hand-written loop of Ringshot's design, without tasks, sockets, or anything that a user could want.
//!
//! One multishot accept, one multishot receive for each connection into large buffers that all connections share, and
//! one gathered send for each connection and turn, which leaves no completion if it goes out whole.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rings::{enter, push, ring, tag, untag};
use server::{Job, Mode};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    if job.mode != Mode::Echo {
        return Err(io::Error::other("this server only echoes"));
    }
    let listener = server::listener()?;
    let mut server = Server::new(listener.as_raw_fd())?;
    server::announce(listener.local_addr()?)?;
    server.run()
}

struct Server {
    ring: IoUring,
    listener: RawFd,
    buffers: Buffers,
    connections: Vec<Connection>,
    /// Numbers of `connections` that are not in use.
    vacant: Vec<usize>,
    /// Connections with something to send.
    dirty: Vec<usize>,
    /// Connections whose silent send is in this turn's submission.
    silent: Vec<usize>,
    /// Connections whose receive ended because no buffer was free.
    starved: Vec<usize>,
    completions: Vec<(u64, i32, u32)>,
    /// What the sends of a turn point to. The kernel has copied both when the enter returns. A buffer is in one send at
    /// most, so neither ever grows past its first capacity.
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::msghdr>,
}

#[derive(Default)]
struct Connection {
    fd: RawFd,
    /// What is still to be sent, in order.
    out: Vec<Chunk>,
    /// How many of these the send that is under way covers.
    sending: u16,
    /// How much of the first is sent already.
    skip: u16,
    state: State,
    /// Its receive has ended, and with it the connection, once all is sent.
    ended: bool,
    /// It is in `Server::dirty`.
    dirty: bool,
}

#[derive(Clone, Copy)]
struct Chunk {
    buffer: u16,
    length: u16,
}

/// The send of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ready,
    /// In this turn's submission, and done when that has returned, unless a completion says otherwise.
    Silent,
    /// It went short, or failed.
    Short(i32),
    /// Waits for room in the kernel, and will complete.
    Armed,
}

impl Server {
    fn new(listener: RawFd) -> io::Result<Self> {
        let ring = ring()?;
        Ok(Self {
            buffers: Buffers::register(&ring)?,
            ring,
            listener,
            connections: Vec::new(),
            vacant: Vec::new(),
            dirty: Vec::new(),
            silent: Vec::new(),
            starved: Vec::new(),
            completions: Vec::new(),
            vectors: Vec::with_capacity(usize::from(BUFFERS)),
            messages: Vec::with_capacity(usize::from(BUFFERS)),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.arm_accept()?;
        loop {
            self.flush()?;
            enter(&mut self.ring)?;
            // The kernel has copied what the sends pointed to. What is armed below is for the next enter.
            self.vectors.clear();
            self.messages.clear();
            let reaped = self.ring.completion();
            self.completions.clear();
            self.completions
                .extend(reaped.map(|entry| (entry.user_data(), entry.result(), entry.flags())));
            for index in 0..self.completions.len() {
                let (user_data, result, flags) = self.completions[index];
                self.dispatch(user_data, result, flags)?;
            }
            self.settle()?;
            self.buffers.publish();
            self.feed()?;
        }
    }

    // --- sending ---

    /// One silent send for each connection that has something to send.
    fn flush(&mut self) -> io::Result<()> {
        while let Some(number) = self.dirty.pop() {
            self.connections[number].dirty = false;
            self.connections[number].state = State::Silent;
            self.silent.push(number);
            let flags = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
            let entry = self.gather(number, flags).user_data(tag(SEND, number));
            // SAFETY: vectors and messages live until the enter returns, buffers until `settle`.
            unsafe { push(&mut self.ring, &entry.flags(squeue::Flags::SKIP_SUCCESS))? };
        }
        Ok(())
    }

    /// An armed send of everything that a connection has to send.
    fn arm_send(&mut self, number: usize) -> io::Result<()> {
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = self.gather(number, flags).user_data(tag(ARMED, number));
        self.connections[number].state = State::Armed;
        // SAFETY: vectors and messages live until the next enter has returned, buffers until the completion.
        unsafe { push(&mut self.ring, &entry) }
    }

    fn gather(&mut self, number: usize, flags: i32) -> squeue::Entry {
        let connection = &mut self.connections[number];
        connection.sending = connection.out.len() as u16;
        let first = self.vectors.len();
        let mut skip = usize::from(connection.skip);
        for chunk in &connection.out {
            self.vectors.push(libc::iovec {
                iov_base: self.buffers.address(chunk.buffer).wrapping_add(skip).cast(),
                iov_len: usize::from(chunk.length) - skip,
            });
            skip = 0;
        }
        let fd = Fd(connection.fd);
        if let [only] = self.vectors[first..] {
            let length = only.iov_len as u32;
            return opcode::Send::new(fd, only.iov_base.cast(), length)
                .flags(flags)
                .build();
        }
        // SAFETY: all zeros is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.vectors[first..].as_mut_ptr();
        message.msg_iovlen = self.vectors.len() - first;
        debug_assert!(self.messages.len() < self.messages.capacity());
        self.messages.push(message);
        let message = &raw const self.messages[self.messages.len() - 1];
        opcode::SendMsg::new(fd, message)
            .flags(flags as u32)
            .build()
    }

    /// After an enter: the silent sends that left no completion are done.
    fn settle(&mut self) -> io::Result<()> {
        while let Some(number) = self.silent.pop() {
            let connection = &mut self.connections[number];
            match std::mem::take(&mut connection.state) {
                State::Short(result) => self.continue_send(number, result)?,
                _ => {
                    for chunk in connection.out.drain(..usize::from(connection.sending)) {
                        self.buffers.give(chunk.buffer);
                    }
                    connection.skip = 0;
                    self.after_send(number)?;
                }
            }
        }
        Ok(())
    }

    /// A send has sent `result` bytes, which is not all, or failed.
    fn continue_send(&mut self, number: usize, result: i32) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let Ok(mut sent) = usize::try_from(result) else {
            return self.give_up(number);
        };
        let mut done = 0;
        for chunk in &connection.out {
            let left = usize::from(chunk.length) - usize::from(connection.skip);
            if sent < left {
                connection.skip += sent as u16;
                break;
            }
            sent -= left;
            connection.skip = 0;
            self.buffers.give(chunk.buffer);
            done += 1;
        }
        connection.out.drain(..done);
        if connection.out.is_empty() {
            return self.after_send(number);
        }
        self.arm_send(number)
    }

    /// The peer is gone: its receive ends too, and closes the connection.
    fn give_up(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        for chunk in connection.out.drain(..) {
            self.buffers.give(chunk.buffer);
        }
        connection.skip = 0;
        // SAFETY: plain system call on a descriptor that this connection owns.
        unsafe { libc::shutdown(connection.fd, libc::SHUT_RDWR) };
        self.after_send(number)
    }

    fn after_send(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        if !connection.out.is_empty() {
            self.mark_dirty(number);
        } else if connection.ended {
            self.close(number)?;
        }
        Ok(())
    }

    fn mark_dirty(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if !connection.dirty && connection.state == State::Ready {
            connection.dirty = true;
            self.dirty.push(number);
        }
    }

    // --- completions ---

    fn dispatch(&mut self, user_data: u64, result: i32, flags: u32) -> io::Result<()> {
        let (kind, number) = untag(user_data);
        match kind {
            ACCEPT => self.accepted(result, flags),
            RECEIVE => self.received(number, result, flags),
            SEND => {
                self.connections[number].state = State::Short(result);
                Ok(())
            }
            ARMED => {
                self.connections[number].state = State::Ready;
                self.continue_send(number, result)
            }
            // A failed close: nothing can be done.
            _ => Ok(()),
        }
    }

    fn accepted(&mut self, result: i32, flags: u32) -> io::Result<()> {
        if !cqueue::more(flags) {
            self.arm_accept()?;
        }
        match -result {
            libc::ECONNABORTED => return Ok(()),
            error if error > 0 => return Err(io::Error::from_raw_os_error(error)),
            _ => {}
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push(Connection::default());
            self.connections.len() - 1
        });
        self.connections[number] = Connection {
            fd: result,
            ..Connection::default()
        };
        self.arm_receive(number)
    }

    fn received(&mut self, number: usize, result: i32, flags: u32) -> io::Result<()> {
        let more = cqueue::more(flags);
        let connection = &mut self.connections[number];
        match (result, cqueue::buffer_select(flags)) {
            (1.., Some(buffer)) => {
                self.buffers.free -= 1;
                let length = result as u16;
                connection.out.push(Chunk { buffer, length });
                self.mark_dirty(number);
                if !more {
                    self.arm_receive(number)?;
                }
                return Ok(());
            }
            (_, Some(buffer)) => {
                self.buffers.free -= 1;
                self.buffers.give(buffer);
            }
            (_, None) => {}
        }
        if more {
            return Ok(());
        }
        if result == -libc::ENOBUFS {
            self.starved.push(number);
            return Ok(());
        }
        connection.ended = true;
        if connection.out.is_empty() {
            self.close(number)?;
        }
        Ok(())
    }

    /// Receives that ended for want of a buffer go on when there are some.
    fn feed(&mut self) -> io::Result<()> {
        while self.buffers.free > 0
            && let Some(number) = self.starved.pop()
        {
            self.arm_receive(number)?;
        }
        Ok(())
    }

    // --- other operations ---

    fn arm_accept(&mut self) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(Fd(self.listener))
            .flags(libc::SOCK_CLOEXEC)
            .build();
        // SAFETY: it points to nothing.
        unsafe { push(&mut self.ring, &entry.user_data(tag(ACCEPT, 0))) }
    }

    fn arm_receive(&mut self, number: usize) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(Fd(self.connections[number].fd), GROUP).build();
        // SAFETY: it points to nothing; the buffers of its group are never freed.
        unsafe { push(&mut self.ring, &entry.user_data(tag(RECEIVE, number))) }
    }

    fn close(&mut self, number: usize) -> io::Result<()> {
        let entry = opcode::Close::new(Fd(self.connections[number].fd)).build();
        self.vacant.push(number);
        let entry = entry
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(tag(CLOSE, number));
        // SAFETY: it points to nothing.
        unsafe { push(&mut self.ring, &entry) }
    }
}

/// Buffers that the kernel takes from a ring, shared with all connections.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: u16,
    /// In the ring, and not taken yet; as far as completions tell.
    free: i32,
}

impl Buffers {
    fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = allocate(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let mut buffers = Self {
            entries: entries.cast(),
            memory: allocate(usize::from(BUFFERS) * BUFFER)?,
            tail: 0,
            free: 0,
        };
        let address = entries.as_ptr() as u64;
        // SAFETY: the memory is never freed.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, BUFFERS, GROUP, 0)?
        };
        for buffer in 0..BUFFERS {
            buffers.give(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        self.memory
            .as_ptr()
            .wrapping_add(usize::from(buffer) * BUFFER)
    }

    fn give(&mut self, buffer: u16) {
        let address = self.address(buffer) as u64;
        let index = usize::from(self.tail % BUFFERS);
        // SAFETY: the index is in the ring, and the kernel reads an entry only after `publish`.
        let entry = unsafe { self.entries.add(index).as_mut() };
        entry.set_addr(address);
        entry.set_len(BUFFER as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
    }

    /// Lets the kernel see what was given.
    fn publish(&mut self) {
        // SAFETY: the entries are a registered ring's.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is aligned, lives as long as the ring, and the kernel reads it as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Pages that are never freed; the system gives them when they are touched.
fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, anywhere.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    match NonNull::new(memory.cast::<u8>()) {
        Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => Ok(memory),
        _ => Err(io::Error::last_os_error()),
    }
}

const BUFFERS: u16 = 256;
const BUFFER: usize = 16 << 10;
const GROUP: u16 = 0;

// What a completion is of.
const ACCEPT: u8 = 0;
const RECEIVE: u8 = 1;
const SEND: u8 = 2;
const ARMED: u8 = 3;
const CLOSE: u8 = 4;
