//! Descriptor numbers that come back as something else, and files that outlive their number (B34).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::net::TcpStream as Peer;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use net::{TcpListener, TcpStream};
use runtime::io::{Inbox, Outbox, Socket};
use support::Rng;

use crate::{read_exact_at_peer, run};

const TCP_CYCLES: u64 = 5_000;
const UNIX_CYCLES: u64 = 20_000;
/// Connections that are open at the same time.
const LIVE: usize = 12;
/// Duplicates that keep a file open whose connection was dropped.
const GHOSTS: usize = 6;

/// B34: every connection gets its own bytes and nobody else's, whatever had its number before, and however many
/// duplicates of what had it are still open.
#[test]
fn tcp_connections_on_reused_numbers_and_duplicates_get_their_own_bytes_only() {
    let mut rng = Rng::from_env();
    run(
        &format!("reused numbers, seed {}", rng.seed()),
        async || {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let mut live = VecDeque::new();
            let mut ghosts = VecDeque::new();
            for serial in 0..TCP_CYCLES {
                let mut connection = Connection::open(serial, &listener, &mut rng).await;
                connection.exchange().await;
                live.push_back(connection);
                let index = rng.below(live.len());
                live[index].exchange().await;
                if live.len() > LIVE {
                    let connection = live.swap_remove_back(rng.below(LIVE)).unwrap();
                    connection.end(&mut rng, &mut live, &mut ghosts).await;
                }
                if ghosts.len() > GHOSTS {
                    let ghost: Ghost = ghosts.pop_front().unwrap();
                    ghost.howl();
                    // Whoever has its number now hears nothing of it.
                    for connection in &live {
                        connection.assert_silent();
                    }
                }
            }
            live.into_iter().for_each(Connection::reset);
        },
    );
}

/// B34: the same below TCP, where a cycle costs less, so that there are more of them.
#[test]
fn unix_sockets_on_reused_numbers_and_duplicates_get_their_own_bytes_only() {
    let mut rng = Rng::from_env();
    run(
        &format!("reused numbers, seed {}", rng.seed()),
        async || {
            let mut ghosts: VecDeque<(OwnedFd, UnixStream)> = VecDeque::new();
            let mut numbers = VecDeque::new();
            let mut reused = 0;
            for serial in 0..UNIX_CYCLES {
                let (near, mut far) = UnixStream::pair().unwrap();
                far.set_nonblocking(true).unwrap();
                reused += usize::from(numbers.contains(&near.as_raw_fd()));
                numbers.push_back(near.as_raw_fd());
                if numbers.len() > 2 * GHOSTS {
                    numbers.pop_front();
                }
                let socket = Socket::new(near).unwrap();
                let inbox = Inbox::new(socket.clone());
                let outbox = Outbox::new(socket.clone());
                let message = serial.to_ne_bytes();
                if rng.one_in(2) {
                    assert_nothing(inbox.try_read(&mut [0]));
                }
                if rng.one_in(4) {
                    runtime::yield_now().await;
                    assert_nothing(inbox.try_read(&mut [0]));
                }
                if let Some((_, ghost)) = ghosts.front_mut() {
                    ghost.write_all(b"boo").unwrap();
                }
                far.write_all(&message).unwrap();
                let mut received = [0; 16];
                let len = poll_fn(|cx| inbox.poll_read(cx, &mut received))
                    .await
                    .unwrap();
                assert_eq!(received[..len], message);
                assert_eq!(outbox.try_write(&message).unwrap(), message.len());
                if rng.one_in(2) {
                    assert_eq!(read_exact_at_peer(&mut far, message.len()).await, message);
                }
                if rng.one_in(3) {
                    ghosts.push_back((socket.as_fd().try_clone_to_owned().unwrap(), far));
                }
                if ghosts.len() > GHOSTS {
                    ghosts.pop_front();
                }
            }
            // Otherwise the test shows nothing.
            assert!(
                reused > UNIX_CYCLES as usize / 10,
                "numbers were reused {reused} times"
            );
        },
    );
}

struct Connection {
    stream: TcpStream,
    peer: Peer,
    serial: u64,
    messages: u64,
}

impl Connection {
    /// Accepted, connected, or adopted from `std`.
    async fn open(serial: u64, listener: &TcpListener, rng: &mut Rng) -> Self {
        let (stream, peer) = match rng.below(3) {
            0 => support::pair(listener).await,
            1 => {
                let stream = TcpStream::connect(listener.local_addr().unwrap())
                    .await
                    .unwrap();
                let (peer, address) = listener.accept().await.unwrap();
                assert_eq!(address, stream.local_addr().unwrap());
                let (peer, unread) = peer.into_std().await.unwrap();
                assert_eq!(unread, []);
                (stream, peer)
            }
            _ => {
                let (stream, peer) = support::pair(listener).await;
                let (stream, unread) = stream.into_std().await.unwrap();
                assert_eq!(unread, []);
                (TcpStream::from_std(stream).unwrap(), peer)
            }
        };
        peer.set_nonblocking(true).unwrap();
        let connection = Self {
            stream,
            peer,
            serial,
            messages: 0,
        };
        if rng.one_in(2) {
            connection.assert_silent();
        }
        connection
    }

    /// A message in each direction that no other connection ever has.
    async fn exchange(&mut self) {
        self.messages += 1;
        let message = [self.serial.to_ne_bytes(), self.messages.to_ne_bytes()].concat();
        self.peer.write_all(&message).unwrap();
        let mut received = [0; 16];
        self.stream.read_exact(&mut received).await.unwrap();
        assert_eq!(received[..], message);
        self.stream.write_all(&message).await.unwrap();
        assert_eq!(
            read_exact_at_peer(&mut self.peer, message.len()).await,
            message
        );
        self.assert_silent();
    }

    /// Nothing has arrived and nothing has ended; afterwards a receive is armed.
    fn assert_silent(&self) {
        assert_nothing(self.stream.try_read(&mut [0]));
    }

    async fn end(mut self, rng: &mut Rng, live: &mut VecDeque<Self>, ghosts: &mut VecDeque<Ghost>) {
        match rng.below(5) {
            0 => self.reset(),
            // With a read that was dropped, and whose receive is still armed.
            1 => {
                assert!(self.stream.read(&mut [0]).now_or_never().is_none());
                self.reset();
            }
            // The file lives on, and so would whatever still watched it.
            2 => ghosts.push_back(Ghost {
                file: self.stream.as_fd().try_clone_to_owned().unwrap(),
                peer: self.peer,
            }),
            // It goes on under another number.
            3 => {
                let duplicate = self.stream.as_fd().try_clone_to_owned().unwrap();
                drop(self.stream);
                let stream = TcpStream::from_std(duplicate.into()).unwrap();
                self.stream = stream;
                self.exchange().await;
                live.push_back(self);
            }
            // It leaves the worker and comes back.
            _ => {
                let (stream, unread) = self.stream.into_std().await.unwrap();
                assert_eq!(unread, []);
                self.stream = TcpStream::from_std(stream).unwrap();
                self.exchange().await;
                live.push_back(self);
            }
        }
    }

    /// With RST, as twenty thousand connections that wait for their port to be forgotten would use them all up.
    fn reset(self) {
        support::reset(self.peer);
    }
}

/// A connection that was dropped while a duplicate of its descriptor is open.
struct Ghost {
    file: OwnedFd,
    peer: Peer,
}

impl Ghost {
    /// Events of all kinds for a file that nobody here watches any more.
    fn howl(mut self) {
        self.peer.write_all(b"boo").unwrap();
        support::reset(self.peer);
        drop(self.file);
    }
}

fn assert_nothing(read: std::io::Result<usize>) {
    assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
}
