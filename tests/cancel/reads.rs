use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream as Peer};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use futures::future::{Either, select};
use futures::{AsyncBufReadExt, AsyncReadExt, StreamExt};
use net::TcpStream;
use runtime::Builder;
use runtime::io::Lease;
use runtime::time::{sleep, timeout};
use support::{Fate, Rng, partial, pattern};

use crate::{listen, random_pause, run, wait_for_end};

const STREAM_BYTES: u64 = 4 << 20;
const CONNECTIONS: usize = 8;
const CHUNK: usize = 16 << 10;

/// B02.
#[test]
fn given_up_reads_lose_no_byte() {
    let what = "given-up reads";
    run(what, Builder::new(), async |rng| {
        read_streams(STREAM_BYTES, rng).await
    });
}

/// The same while buffers are scarce, so that receives are paused, starved and re-armed all the time.
#[test]
fn given_up_reads_lose_no_byte_in_a_tiny_pool() {
    let tiny = Builder::new().buffers(4).buffer_size(1024);
    run("given-up reads, tiny pool", tiny, async |rng| {
        read_streams(STREAM_BYTES / 8, rng).await;
    });
}

/// B02.
/// What a given-up read has borrowed is never written to, be it from the pool or, when that is empty, straight from
/// the socket.
#[test]
fn the_buffer_of_a_given_up_read_is_never_touched() {
    for hoard in [false, true] {
        let builder = Builder::new().buffers(1).buffer_size(1024);
        run("given-up buffers", builder, async |mut rng| {
            let listener = listen().await;
            let (mut greedy, mut greedy_peer) = support::pair(&listener).await;
            greedy_peer.write_all(b"hoarded").unwrap();
            let hoarded = greedy.recv_stream().next().await.unwrap().unwrap();
            let hoarded = hoard.then_some(hoarded);
            let (stream, peer) = support::pair(&listener).await;
            watch_canaries(stream, peer, &mut rng).await;
            assert!(hoarded.is_none_or(|lease| *lease == *b"hoarded"));
        });
    }
}

/// B30.
#[test]
fn aborted_tasks_give_back_sockets_and_buffers() {
    run("aborted tasks", Builder::new(), async |mut rng| {
        let listener = listen().await;
        for _ in 0..10 {
            let mut peers = Vec::new();
            let mut tasks = Vec::new();
            for _ in 0..50 {
                let (stream, mut peer) = support::pair(&listener).await;
                let bytes = pattern::bytes(0, rng.size(20_000));
                peer.write_all(&bytes).unwrap();
                peers.push(peer);
                tasks.push(runtime::spawn(read_waveringly(stream, rng.fork())));
            }
            for _ in 0..rng.below(100) {
                runtime::yield_now().await;
            }
            for task in &tasks {
                task.abort();
            }
            for task in tasks {
                assert!(task.await.unwrap_err().is_cancelled());
            }
            for peer in &mut peers {
                wait_for_end(peer).await;
            }
        }
    });
}

/// B05: the stream is dropped when its read has timed out; what the peer sends later finds nobody.
#[test]
fn a_late_completion_of_a_timed_out_read_disturbs_nobody() {
    run("late completions", Builder::new(), async |mut rng| {
        let listener = listen().await;
        let mut readers = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..200 {
            let (mut stream, peer) = support::pair(&listener).await;
            let (patience, pause) = (random_pause(&mut rng), random_pause(&mut rng) / 16);
            peers.push((pause, peer));
            readers.push(runtime::spawn(async move {
                let mut buf = [0; 16];
                timeout(patience, stream.read(&mut buf)).await.is_ok()
            }));
        }
        let senders = thread::spawn(move || {
            for (pause, peer) in &mut peers {
                thread::sleep(*pause);
                // Fails if our side is gone already, which is the point.
                let _ = peer.write_all(&[1]);
            }
            peers
        });
        for reader in readers {
            reader.await.unwrap();
        }
        for (_, mut peer) in senders.join().unwrap() {
            wait_for_end(&mut peer).await;
        }
    });
}

async fn read_streams(bytes: u64, mut rng: Rng) {
    let listener = listen().await;
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        let (stream, peer) = support::pair(&listener).await;
        let mut sender_rng = rng.fork();
        let sender = thread::spawn(move || send_in_pieces(peer, bytes, &mut sender_rng));
        let reader = runtime::spawn(read_waveringly(stream, rng.fork()));
        readers.push((sender, reader));
    }
    for (sender, reader) in readers {
        assert_eq!(reader.await.unwrap(), bytes, "bytes received");
        sender.join().unwrap();
    }
}

fn send_in_pieces(mut peer: Peer, total: u64, rng: &mut Rng) {
    let mut position = 0;
    while position < total {
        let len = (rng.size(CHUNK) as u64).min(total - position) as usize;
        peer.write_all(&pattern::bytes(position, len)).unwrap();
        position += len as u64;
        if rng.one_in(16) {
            thread::sleep(random_pause(rng));
        }
    }
    peer.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end by all means that there are, and gives up most of them. Returns how many bytes came.
async fn read_waveringly(mut stream: TcpStream, mut rng: Rng) -> u64 {
    let mut position = 0;
    let mut buf = vec![0; CHUNK];
    let mut held = HeldLeases::default();
    loop {
        let fate = Fate::random(&mut rng);
        let size = rng.size(CHUNK);
        let read = match rng.below(9) {
            0 => partial(fate, stream.read(&mut buf[..size])).await,
            1 => {
                let (head, tail) = buf[..size].split_at_mut(size / 3);
                let mut parts = [head, tail].map(std::io::IoSliceMut::new);
                partial(fate, stream.read_vectored(&mut parts)).await
            }
            2 => {
                let filled = partial(fate, stream.fill_buf()).await;
                let taken = filled.map(|filled| {
                    filled.map(|bytes| {
                        let len = bytes.len().min(size);
                        buf[..len].copy_from_slice(&bytes[..len]);
                        len
                    })
                });
                if let Some(Ok(len)) = taken {
                    stream.consume_unpin(len);
                }
                taken
            }
            3 | 4 => {
                let next = partial(fate, stream.recv_stream().next()).await;
                next.map(|lease| match lease {
                    None => Ok(0),
                    Some(lease) => Ok(held.add(lease?, position, &mut buf, &mut rng)),
                })
            }
            5 => {
                if let Some(peeked) = partial(fate, stream.peek(&mut buf[..size])).await {
                    pattern::check(&buf[..peeked.unwrap()], position);
                }
                None
            }
            6 => match partial(fate, stream.readable()).await {
                None => None,
                Some(readable) => {
                    readable.unwrap();
                    // It was ready, and nobody else has read since.
                    Some(stream.try_read(&mut buf[..size]))
                }
            },
            7 => match stream.try_read(&mut buf[..size]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Here the task really waits, so that the worker goes to sleep now and then.
                    let patience = random_pause(&mut rng);
                    timeout(patience, stream.read(&mut buf[..size])).await.ok()
                }
                read => Some(read),
            },
            _ => {
                let pause = pin!(sleep(random_pause(&mut rng)));
                match select(stream.read(&mut buf[..size]), pause).await {
                    Either::Left((read, _)) => Some(read),
                    Either::Right(_) => None,
                }
            }
        };
        let Some(read) = read else { continue };
        let len = read.unwrap();
        pattern::check(&buf[..len.min(CHUNK)], position);
        position += len as u64;
        if len == 0 {
            return position;
        }
        held.release_some(&mut rng);
    }
}

/// Leases that stay out for a while: nothing may be written into them meanwhile.
#[derive(Default)]
struct HeldLeases(VecDeque<(u64, Lease)>);

impl HeldLeases {
    /// Returns the length, and leaves the first bytes in `buf`. The parts of a lease may go at different times.
    fn add(&mut self, mut lease: Lease, position: u64, buf: &mut [u8], rng: &mut Rng) -> usize {
        let len = lease.len();
        let copied = len.min(buf.len());
        buf[..copied].copy_from_slice(&lease[..copied]);
        let cut = rng.below(len);
        self.0.push_back((position, lease.split_to(cut)));
        self.0.push_back((position + cut as u64, lease));
        len
    }

    /// At most four stay.
    fn release_some(&mut self, rng: &mut Rng) {
        while self.0.len() > rng.below(5) {
            let (position, lease) = self.0.pop_front().unwrap();
            pattern::check(&lease, position);
        }
    }
}

/// Gives up reads into buffers that are then watched while the bytes arrive.
async fn watch_canaries(mut stream: TcpStream, mut peer: Peer, rng: &mut Rng) {
    for round in 0..3_000 {
        let mut canary = vec![0xA5; 256];
        let fate = Fate {
            polls: 1 + rng.below(3),
            forget: round % 2 == 0,
        };
        assert!(partial(fate, stream.read(&mut canary)).await.is_none());
        let sent = pattern::bytes(round * 64, 64);
        peer.write_all(&sent).unwrap();
        for _ in 0..rng.below(4) {
            runtime::yield_now().await;
        }
        assert!(canary.iter().all(|&byte| byte == 0xA5), "round {round}");
        // Freed memory that is written to later shows in whoever gets it next.
        drop(canary);
        let mut received = vec![0; 64];
        let read = stream.read_exact(&mut received);
        timeout(Duration::from_secs(20), read)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(received, sent, "round {round}");
    }
}
