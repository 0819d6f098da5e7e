//! The network: connections whose bytes never leave the process, on a clock that is moved by hand.
//!
//! Names and options are the kernel's: every simulated connection has a real one behind it, which is made and accepted
//! at once and never carries a byte. So `local_addr`, `peer_addr`, `set_nodelay` and the errors of `bind` are what they
//! always are, and a program needs no other sockets for a simulation.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use socket2::{SockAddr, SockRef};

/// All connections. Results are as in a CQE; `None`: not yet.
pub(super) struct Network {
    connections: BTreeMap<usize, Connection>,
    next: usize,
    /// Which end a descriptor of the program's is.
    ends: BTreeMap<RawFd, EndId>,
    /// Connections that wait to be accepted, by the listener's port, in the order in which they were made.
    waiting: BTreeMap<u16, VecDeque<usize>>,
    /// What a socket holds for the other side.
    capacity: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndId {
    connection: usize,
    side: usize,
}

struct Connection {
    client: SocketAddr,
    established: Instant,
    ends: [End; 2],
}

#[derive(Default)]
struct End {
    /// The real socket, kept until both ends are closed, for the name of the other.
    token: Option<OwnedFd>,
    inflow: Pipe,
    closed: bool,
    write_shut: bool,
    read_shut: bool,
    /// To be told once.
    error: Option<i32>,
    reset: bool,
    /// How often there was room to send after a change.
    room_news: u32,
}

/// What flows to one end.
#[derive(Default)]
struct Pipe {
    flying: VecDeque<(Instant, Parcel)>,
    arrived: VecDeque<u8>,
    /// Bytes, the flying ones included.
    len: usize,
    finished: bool,
    /// How often something arrived.
    news: u32,
}

enum Parcel {
    Bytes(Vec<u8>),
    Fin,
    Reset,
    /// There is room to send, again.
    Room,
}

impl Network {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            connections: BTreeMap::new(),
            next: 0,
            ends: BTreeMap::new(),
            waiting: BTreeMap::new(),
            capacity,
        }
    }

    // ---- time ----

    /// Lets everything arrive that is due.
    pub(super) fn settle(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            for end in &mut connection.ends {
                end.settle(now);
            }
        }
    }

    /// When something arrives next.
    pub(super) fn next_arrival(&self, now: Instant) -> Option<Instant> {
        let arrivals = self.connections.values().flat_map(|connection| {
            let established = Some(connection.established).filter(|at| *at > now);
            let parcels =
                (connection.ends.iter()).filter_map(|end| Some(end.inflow.flying.front()?.0));
            established.into_iter().chain(parcels)
        });
        arrivals.min()
    }

    // ---- connections ----

    /// Connects for real, and in the simulation at `established`.
    pub(super) fn connect(
        &mut self,
        socket: BorrowedFd<'_>,
        address: &SockAddr,
        established: Instant,
    ) -> Result<(), i32> {
        let real = SockRef::from(&socket);
        (real.set_nonblocking(true)).map_err(|error| errno(&error))?;
        let begun = real.connect(address);
        let connected = match begun {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                if !wait_for(socket.as_raw_fd(), libc::POLLOUT, CONNECT_PATIENCE) {
                    // A listener whose queue is full: as in a network that swallows it.
                    return real.set_nonblocking(false).map_err(|error| errno(&error));
                }
                (real.take_error()).and_then(|error| error.map_or(Ok(()), Err))
            }
            begun => begun,
        };
        let restored = real.set_nonblocking(false);
        connected.and(restored).map_err(|error| errno(&error))?;
        let name = |address: io::Result<SockAddr>| {
            (address.ok().and_then(|address| address.as_socket())).ok_or(-libc::EOPNOTSUPP)
        };
        let (client, server) = (name(real.local_addr())?, name(real.peer_addr())?);
        let connection = self.next;
        self.next += 1;
        let id = EndId {
            connection,
            side: 0,
        };
        self.connections.insert(
            connection,
            Connection {
                client,
                established,
                ends: [End::new(socket), End::default()],
            },
        );
        self.name(socket.as_raw_fd(), id, established);
        let waiting = self.waiting.entry(server.port()).or_default();
        waiting.push_back(connection);
        Ok(())
    }

    /// How a connect ended.
    pub(super) fn connected(&self, fd: RawFd, now: Instant) -> Option<i32> {
        let id = self.ends.get(&fd)?;
        let connection = self.connections.get(&id.connection)?;
        (connection.established <= now).then_some(0)
    }

    /// The port that a descriptor listens on.
    pub(super) fn port(fd: RawFd) -> Result<u16, i32> {
        let listener = borrow(fd);
        let socket = SockRef::from(&listener);
        match socket.is_listener() {
            Ok(true) => {}
            Ok(false) => return Err(-libc::EINVAL),
            Err(error) => return Err(errno(&error)),
        }
        let name = socket.local_addr().map_err(|error| errno(&error))?;
        Ok(name.as_socket().map_or(0, |address| address.port()))
    }

    /// Whether a connection waits on a port.
    pub(super) fn has_waiting(&self, port: u16, now: Instant) -> bool {
        let first = self.waiting.get(&port).and_then(VecDeque::front);
        let first = first.and_then(|id| self.connections.get(id));
        first.is_some_and(|connection| connection.established <= now)
    }

    /// Accepts the next connection of a listener.
    pub(super) fn accept(&mut self, listener: RawFd, now: Instant) -> Option<i32> {
        let port = match Self::port(listener) {
            Ok(port) => port,
            Err(errno) => return Some(errno),
        };
        if !self.has_waiting(port, now) || !wait_for(listener, libc::POLLIN, ACCEPT_PATIENCE) {
            return None;
        }
        let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no address is asked for, so no pointer is passed.
        let fd = unsafe { libc::accept4(listener, address, len, libc::SOCK_CLOEXEC) };
        if fd < 0 {
            return Some(last_errno());
        }
        let socket = borrow(fd);
        let peer = (SockRef::from(&socket).peer_addr().ok()).and_then(|peer| peer.as_socket());
        let waiting = self.waiting.get_mut(&port)?;
        let place = (waiting.iter())
            .position(|id| (self.connections.get(id)).map(|connection| connection.client) == peer);
        if let Some(connection) = place.and_then(|place| waiting.remove(place)) {
            let id = EndId {
                connection,
                side: 1,
            };
            if let Some(end) = self.end_mut(id) {
                end.token = socket.try_clone_to_owned().ok();
            }
            self.name(fd, id, now);
        }
        Some(fd)
    }

    fn name(&mut self, fd: RawFd, id: EndId, now: Instant) {
        // The number of a socket that was closed behind our back.
        if let Some(old) = self.ends.insert(fd, id)
            && old != id
        {
            self.close_end(old, now);
        }
    }

    // ---- bytes ----

    pub(super) fn is_end(&self, fd: RawFd) -> bool {
        self.ends.contains_key(&fd)
    }

    /// Bytes that have arrived.
    pub(super) fn readable(&self, fd: RawFd) -> usize {
        self.end(fd).map_or(0, |end| end.inflow.arrived.len())
    }

    /// Takes at most `most` bytes; the end of the stream is an empty one.
    pub(super) fn recv(&mut self, fd: RawFd, most: usize) -> Option<Result<Vec<u8>, i32>> {
        let id = *self.ends.get(&fd)?;
        let end = self.end_mut(id)?;
        let n = most.min(end.inflow.arrived.len());
        if n == 0 && most > 0 {
            return match end.error.take() {
                Some(errno) => Some(Err(-errno)),
                None if end.inflow.finished || end.reset || end.read_shut => Some(Ok(Vec::new())),
                None => None,
            };
        }
        let bytes = end.inflow.arrived.drain(..n).collect();
        end.inflow.len -= n;
        if let Some(peer) = self.end_mut(id.peer()) {
            peer.room_news = peer.room_news.wrapping_add(1);
        }
        Some(Ok(bytes))
    }

    /// Room for bytes, if any can be sent at all.
    pub(super) fn room(&self, fd: RawFd) -> Option<Result<usize, i32>> {
        let id = *self.ends.get(&fd)?;
        let end = self.end(fd)?;
        if let Some(errno) = end.error {
            return Some(Err(-errno));
        }
        if end.write_shut || end.reset {
            return Some(Err(-libc::EPIPE));
        }
        let peer = self.end_by(id.peer())?;
        match self.capacity.saturating_sub(peer.inflow.len) {
            // Nobody holds the peer to what it would have had room for.
            _ if peer.closed => Some(Ok(usize::MAX)),
            0 => None,
            room => Some(Ok(room)),
        }
    }

    /// Sends bytes for which there is room.
    pub(super) fn send(&mut self, fd: RawFd, bytes: Vec<u8>, arrival: Instant) {
        let Some(id) = self.ends.get(&fd).copied() else {
            return;
        };
        let Some(peer) = self.end_mut(id.peer()) else {
            return;
        };
        if peer.closed {
            // What comes back says that nobody is there.
            if let Some(end) = self.end_mut(id) {
                end.inflow.post(arrival, Parcel::Reset);
            }
            return;
        }
        peer.inflow.len += bytes.len();
        peer.inflow.post(arrival, Parcel::Bytes(bytes));
    }

    /// Takes the error of an end, which a failed send has told.
    pub(super) fn take_error(&mut self, fd: RawFd) {
        if let Some(id) = self.ends.get(&fd).copied()
            && let Some(end) = self.end_mut(id)
        {
            end.error = None;
        }
    }

    /// A send was told that there is less room than there is; the rest is found later, and that is told, too.
    pub(super) fn find_room(&mut self, fd: RawFd, arrival: Instant) {
        if let Some(id) = self.ends.get(&fd).copied()
            && let Some(end) = self.end_mut(id)
        {
            end.inflow.post(arrival, Parcel::Room);
        }
    }

    /// Both ends learn that the connection is gone.
    pub(super) fn reset(&mut self, fd: RawFd, arrival: Instant) {
        let Some(id) = self.ends.get(&fd).copied() else {
            return;
        };
        for id in [id, id.peer()] {
            if let Some(end) = self.end_mut(id) {
                end.inflow.post(arrival, Parcel::Reset);
            }
        }
    }

    /// What `poll` would tell, and how often there was something new to tell.
    pub(super) fn poll(&self, fd: RawFd, now: Instant) -> (u32, u32) {
        let (Some(id), Some(end)) = (self.ends.get(&fd), self.end(fd)) else {
            return (0, 0);
        };
        let connection = self.connections.get(&id.connection);
        if connection.is_some_and(|connection| connection.established > now) {
            return (0, 0);
        }
        let ended = end.inflow.finished || end.read_shut || end.reset;
        let mut events = 0;
        let mut tell = |happens: bool, event: i16| {
            if happens {
                events |= event as u32;
            }
        };
        tell(
            ended || !end.inflow.arrived.is_empty() || end.error.is_some(),
            libc::POLLIN,
        );
        tell(ended, libc::POLLRDHUP);
        tell(self.room(fd).is_some(), libc::POLLOUT);
        tell(end.error.is_some(), libc::POLLERR);
        tell(end.reset || ended && end.write_shut, libc::POLLHUP);
        (events, end.inflow.news.wrapping_add(end.room_news))
    }

    // ---- ends ----

    pub(super) fn shutdown(
        &mut self,
        fd: RawFd,
        how: Shutdown,
        arrival: Instant,
    ) -> io::Result<()> {
        let Some(id) = self.ends.get(&fd).copied() else {
            return SockRef::from(&borrow(fd)).shutdown(how);
        };
        let Some(end) = self.end_mut(id) else {
            return Ok(());
        };
        if end.reset {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        if how != Shutdown::Write {
            end.read_shut = true;
            end.inflow.news = end.inflow.news.wrapping_add(1);
        }
        if how != Shutdown::Read && !std::mem::replace(&mut end.write_shut, true) {
            end.room_news = end.room_news.wrapping_add(1);
            if let Some(peer) = self.end_mut(id.peer()) {
                peer.inflow.post(arrival, Parcel::Fin);
            }
        }
        Ok(())
    }

    /// Closes a descriptor of the program's.
    pub(super) fn close(&mut self, fd: OwnedFd, arrival: Instant) {
        if let Some(id) = self.ends.remove(&fd.as_raw_fd()) {
            let abort = SockRef::from(&fd).linger().ok().flatten() == Some(Duration::ZERO);
            self.close_end_by(id, abort, arrival);
        } else if let Ok(port) = Self::port(fd.as_raw_fd()) {
            // Nobody will accept what waits there, unless another listener shares the port.
            for connection in self.waiting.remove(&port).unwrap_or_default() {
                let server = EndId {
                    connection,
                    side: 1,
                };
                self.close_end_by(server, true, arrival);
            }
        }
        drop(fd);
    }

    /// Closes the ends whose descriptors were closed without the reactor. Whether there was one.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let gone: Vec<RawFd> = (self.ends.iter())
            .filter(|(fd, id)| {
                let token = (self.end_by(**id)).and_then(|end| end.token.as_ref());
                token.is_some_and(|token| file_of(**fd) != file_of(token.as_raw_fd()))
            })
            .map(|(fd, _)| *fd)
            .collect();
        for fd in &gone {
            if let Some(id) = self.ends.remove(fd) {
                self.close_end(id, now);
            }
        }
        !gone.is_empty()
    }

    /// Ends that the program has not closed.
    pub(super) fn open_ends(&self) -> usize {
        self.ends.len()
    }

    fn close_end(&mut self, id: EndId, arrival: Instant) {
        self.close_end_by(id, false, arrival);
    }

    fn close_end_by(&mut self, id: EndId, abort: bool, arrival: Instant) {
        let Some(end) = self.end_mut(id) else {
            return;
        };
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        // Bytes that nobody reads any more are worth a reset, as in TCP.
        let unread = !end.inflow.arrived.is_empty();
        let news = match (abort || unread, end.write_shut || end.reset) {
            (true, _) => Some(Parcel::Reset),
            (false, false) => Some(Parcel::Fin),
            (false, true) => None,
        };
        end.inflow.arrived.clear();
        end.inflow.flying.clear();
        end.inflow.len = 0;
        if let Some(peer) = self.end_mut(id.peer()) {
            peer.room_news = peer.room_news.wrapping_add(1);
            if let Some(news) = news {
                peer.inflow.post(arrival, news);
            }
        }
        self.bury(id.connection);
    }

    /// Forgets a connection that both ends have closed.
    fn bury(&mut self, id: usize) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if connection.ends.iter().all(|end| end.closed) {
            for token in connection.ends.iter().filter_map(|end| end.token.as_ref()) {
                // No TIME_WAIT: a thousand seeds would use up the ports.
                let _ = SockRef::from(token).set_linger(Some(Duration::ZERO));
            }
            self.connections.remove(&id);
        }
    }

    fn end(&self, fd: RawFd) -> Option<&End> {
        self.end_by(*self.ends.get(&fd)?)
    }

    fn end_by(&self, id: EndId) -> Option<&End> {
        Some(&self.connections.get(&id.connection)?.ends[id.side])
    }

    fn end_mut(&mut self, id: EndId) -> Option<&mut End> {
        Some(&mut self.connections.get_mut(&id.connection)?.ends[id.side])
    }
}

impl EndId {
    fn peer(self) -> Self {
        Self {
            side: 1 - self.side,
            ..self
        }
    }
}

impl End {
    fn new(socket: BorrowedFd<'_>) -> Self {
        Self {
            token: socket.try_clone_to_owned().ok(),
            ..Self::default()
        }
    }

    fn settle(&mut self, now: Instant) {
        while (self.inflow.flying.front()).is_some_and(|(at, _)| *at <= now) {
            let Some((_, parcel)) = self.inflow.flying.pop_front() else {
                return;
            };
            self.inflow.news = self.inflow.news.wrapping_add(1);
            match parcel {
                // Sent before the other end knew.
                Parcel::Bytes(bytes) if self.reset => self.inflow.len -= bytes.len(),
                Parcel::Bytes(bytes) => self.inflow.arrived.extend(bytes),
                Parcel::Fin => self.inflow.finished = true,
                Parcel::Room => self.room_news = self.room_news.wrapping_add(1),
                Parcel::Reset if self.reset || self.closed => {}
                Parcel::Reset => {
                    self.reset = true;
                    self.error = Some(libc::ECONNRESET);
                    self.room_news = self.room_news.wrapping_add(1);
                    self.inflow.flying.clear();
                    self.inflow.len = self.inflow.arrived.len();
                }
            }
        }
    }
}

impl Pipe {
    /// Parcels keep their order, so none arrives before the one ahead of it.
    fn post(&mut self, arrival: Instant, parcel: Parcel) {
        let arrival = match self.flying.back() {
            Some((last, _)) => arrival.max(*last),
            None => arrival,
        };
        self.flying.push_back((arrival, parcel));
    }
}

/// A descriptor of the program's that an entry or a call has named.
pub(super) fn borrow<'fd>(fd: RawFd) -> BorrowedFd<'fd> {
    // SAFETY: an op holds its socket while it is in flight, and calls are made with sockets that live; a number that
    // names nothing gives an error of the system call, no more.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Waits for what the real kernel does by itself, such as the end of a handshake over loopback.
pub(super) fn wait_for(fd: RawFd, events: i16, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let milliseconds = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one `pollfd`, which lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) > 0 }
}

/// Takes over a descriptor that an entry gives away.
pub(super) fn take(fd: RawFd) -> OwnedFd {
    // SAFETY: the entry of a close is the owner of its descriptor, and is executed once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Names the file behind a number.
fn file_of(fd: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

pub(super) fn last_errno() -> i32 {
    errno(&io::Error::last_os_error())
}

fn errno(error: &io::Error) -> i32 {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

const CONNECT_PATIENCE: Duration = Duration::from_millis(200);

const ACCEPT_PATIENCE: Duration = Duration::from_secs(1);
