//! A plain hand-written ring loop: one receive or one send for each connection at a time, each into or from a buffer of
//! its own. What io_uring costs without a runtime and without multishot.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rings::{enter, push, ring, tag, untag};
use server::{BUFFER, Job, Mode, PACKET, PERIOD};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let listener = server::listener()?;
    let mut server = Server {
        ring: ring()?,
        listener: listener.as_raw_fd(),
        mode: job.mode,
        connections: Vec::new(),
        vacant: Vec::new(),
    };
    server::announce(listener.local_addr()?)?;
    server.run()
}

struct Server {
    ring: IoUring,
    listener: RawFd,
    mode: Mode,
    connections: Vec<Connection>,
    vacant: Vec<usize>,
}

struct Connection {
    fd: RawFd,
    /// The kernel may use it while the connection's only operation is under way.
    buffer: Box<[u8]>,
    /// What is to be sent: of `buffer`, or in the pattern.
    start: usize,
    end: usize,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        self.accept()?;
        let mut completions = Vec::new();
        loop {
            enter(&mut self.ring)?;
            completions.clear();
            completions.extend(
                self.ring
                    .completion()
                    .map(|entry| (entry.user_data(), entry.result())),
            );
            for &(user_data, result) in &completions {
                match untag(user_data) {
                    (ACCEPT, _) => self.accepted(result)?,
                    (RECEIVE, number) => self.received(number, result)?,
                    (_, number) => self.sent(number, result)?,
                }
            }
        }
    }

    fn accepted(&mut self, result: i32) -> io::Result<()> {
        self.accept()?;
        match -result {
            libc::ECONNABORTED => return Ok(()),
            error if error > 0 => return Err(io::Error::from_raw_os_error(error)),
            _ => {}
        }
        let connection = Connection {
            fd: result,
            buffer: vec![0; if self.mode == Mode::Echo { BUFFER } else { 0 }].into(),
            start: 0,
            end: PACKET,
        };
        let number = match self.vacant.pop() {
            Some(number) => {
                self.connections[number] = connection;
                number
            }
            None => {
                self.connections.push(connection);
                self.connections.len() - 1
            }
        };
        match self.mode {
            Mode::Echo => self.receive(number),
            Mode::Packets => self.send(number),
        }
    }

    fn received(&mut self, number: usize, result: i32) -> io::Result<()> {
        if result <= 0 {
            return self.close(number);
        }
        let connection = &mut self.connections[number];
        (connection.start, connection.end) = (0, result as usize);
        self.send(number)
    }

    fn sent(&mut self, number: usize, result: i32) -> io::Result<()> {
        if result <= 0 {
            return self.close(number);
        }
        let connection = &mut self.connections[number];
        connection.start += result as usize;
        if connection.start < connection.end {
            return self.send(number);
        }
        match self.mode {
            Mode::Echo => self.receive(number),
            Mode::Packets => {
                connection.start %= PERIOD;
                connection.end = connection.start + PACKET;
                self.send(number)
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let entry = opcode::Accept::new(
            Fd(self.listener),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
        .flags(libc::SOCK_CLOEXEC)
        .build();
        // SAFETY: it points to nothing.
        unsafe { push(&mut self.ring, &entry.user_data(tag(ACCEPT, 0))) }
    }

    fn receive(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let buffer = &mut connection.buffer;
        let entry =
            opcode::Recv::new(Fd(connection.fd), buffer.as_mut_ptr(), buffer.len() as u32).build();
        // SAFETY: the buffer stays where it is until the completion.
        unsafe { push(&mut self.ring, &entry.user_data(tag(RECEIVE, number))) }
    }

    fn send(&mut self, number: usize) -> io::Result<()> {
        let connection = &self.connections[number];
        let bytes = match self.mode {
            Mode::Echo => &connection.buffer[connection.start..connection.end],
            Mode::Packets => &server::pattern()[connection.start..connection.end],
        };
        let entry = opcode::Send::new(Fd(connection.fd), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        // SAFETY: the bytes stay where they are until the completion.
        unsafe { push(&mut self.ring, &entry.user_data(tag(SEND, number))) }
    }

    fn close(&mut self, number: usize) -> io::Result<()> {
        // SAFETY: no operation on it is under way.
        unsafe { libc::close(self.connections[number].fd) };
        self.connections[number].buffer = Box::default();
        self.vacant.push(number);
        Ok(())
    }
}

// What a completion is of.
const ACCEPT: u8 = 0;
const RECEIVE: u8 = 1;
const SEND: u8 = 2;
