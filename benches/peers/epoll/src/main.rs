//! A hand-written loop over level-triggered epoll: what readiness costs without a runtime.

use std::io;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::net::{SocketFlags, accept_with};
use server::{BUFFER, Job, Mode, PACKET, PERIOD};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let listener = server::listener()?;
    server::announce(listener.local_addr()?)?;
    Server::new(listener, job.mode)?.run()
}

struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    mode: Mode,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// What the socket had no room for.
    unsent: Vec<u8>,
    /// Where the packets are in the pattern.
    position: usize,
}

impl Server {
    fn new(listener: TcpListener, mode: Mode) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            listener,
            mode,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; BUFFER],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1024];
        loop {
            let (events, _) = match epoll::wait(&self.epoll, &mut events, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            for event in events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.serve(number as usize)?,
                }
            }
        }
    }

    /// Accepts one; level-triggered epoll tells of the others.
    fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = match accept_with(&self.listener, flags) {
            Ok(stream) => TcpStream::from(stream),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = match self.mode {
            Mode::Echo => epoll::EventFlags::IN,
            Mode::Packets => epoll::EventFlags::OUT,
        };
        epoll::add(
            &self.epoll,
            &stream,
            epoll::EventData::new_u64(number as u64),
            interest,
        )?;
        self.connections[number] = Some(Connection {
            stream,
            unsent: Vec::new(),
            position: 0,
        });
        Ok(())
    }

    fn serve(&mut self, number: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[number] else {
            return Ok(());
        };
        let was_blocked = !connection.unsent.is_empty();
        let going_on = match self.mode {
            Mode::Echo => connection.echo(&mut self.buffer),
            Mode::Packets => connection.packets(),
        };
        if !going_on.unwrap_or(false) {
            // Closing it takes it out of the epoll.
            self.connections[number] = None;
            self.free.push(number);
            return Ok(());
        }
        let blocked = !connection.unsent.is_empty();
        if self.mode == Mode::Echo && blocked != was_blocked {
            let interest = if blocked {
                epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(&self.epoll, &connection.stream, data, interest)?;
        }
        Ok(())
    }
}

impl Connection {
    /// One read and one write; `false` at the end of the stream.
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            let sent = written(self.stream.write(&self.unsent))?;
            self.unsent.drain(..sent);
            return Ok(true);
        }
        let length = match self.stream.read(buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        };
        if length == 0 {
            return Ok(false);
        }
        let sent = written(self.stream.write(&buffer[..length]))?;
        if sent < length {
            self.unsent.extend_from_slice(&buffer[sent..length]);
        }
        Ok(true)
    }

    /// One write for each packet, until the socket is full.
    fn packets(&mut self) -> io::Result<bool> {
        loop {
            let end = self.position / PACKET * PACKET + PACKET;
            let sent = written(self.stream.write(&server::pattern()[self.position..end]))?;
            if sent == 0 {
                return Ok(true);
            }
            self.position = (self.position + sent) % PERIOD;
        }
    }
}

/// A full socket takes nothing.
fn written(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

const LISTENER: u64 = u64::MAX;
