//! Every byte comes back, once and in order: over one long stream, and over ten thousand connections at once.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpStream;
use support::{Child, Parent, Pinger, Rng, Server, Watchdog, handlers, pattern};

/// The largest single read or write.
const CHUNK: usize = 128 << 10;

/// The longest first part of a vectored read.
const MAX_HEAD: usize = 256;

#[test]
fn a_long_stream_comes_back_whole_through_every_form_of_read_and_write() {
    let mut rng = Rng::from_env();
    let _watchdog = watchdog(&rng, 180);
    let server_rng = rng.fork();
    let server = Server::start(move |stream| echo_in_random_forms(stream, server_rng.clone()));
    round_trip(server.addr(), support::long_stream_bytes(), &mut rng);
    server.stop();
}

#[test]
fn each_plain_echo_returns_the_stream() {
    let mut rng = Rng::from_env();
    let _watchdog = watchdog(&rng, 120);
    let bytes = support::long_stream_bytes() / 16;
    let copy = Server::start(handlers::echo_copy);
    round_trip(copy.addr(), bytes, &mut rng);
    copy.stop();
    let copy_buf = Server::start(handlers::echo_copy_buf);
    round_trip(copy_buf.addr(), bytes, &mut rng);
    copy_buf.stop();
    let lease = Server::start(handlers::echo_lease);
    round_trip(lease.addr(), bytes, &mut rng);
    lease.stop();
}

#[test]
fn many_streams_at_once_come_back_whole() {
    let mut rng = Rng::from_env();
    let _watchdog = watchdog(&rng, 120);
    let server = Server::start(handlers::echo_lease);
    let bytes = support::long_stream_bytes() / 512;
    thread::scope(|scope| {
        for _ in 0..32 {
            let (addr, mut rng) = (server.addr(), rng.fork());
            scope.spawn(move || round_trip(addr, bytes, &mut rng));
        }
    });
    server.stop();
}

/// The server is another process, so that each side has its 10,000 descriptors.
#[test]
fn ten_thousand_connections_at_once_are_echoed() {
    const NAME: &str = "ten_thousand_connections_at_once_are_echoed";
    const COUNT: usize = 10_000;
    let _watchdog = Watchdog::start(NAME, Duration::from_secs(120));
    let limit = support::raise_fd_limit();
    assert!(
        limit >= COUNT + 100,
        "the hard limit of descriptors is {limit}"
    );

    if let Some(parent) = Parent::in_child(NAME) {
        let server = Server::start(handlers::echo_copy_buf);
        parent.say(&server.addr().to_string());
        while parent.hear().is_some() {
            parent.say(&server.metrics().tasks.to_string());
        }
        return server.stop();
    }

    let mut child = Child::start(NAME);
    let addr = child.hear().parse().unwrap();
    let mut pinger = Pinger::new(support::connect_many(addr, COUNT), 64);
    pinger.rounds(1);
    let tasks: usize = child.ask("tasks").parse().unwrap();
    assert!(tasks >= COUNT, "{tasks} tasks serve {COUNT} connections");
    pinger.rounds(2);
    // Half of them hang up in one go, which must not disturb the others.
    let mut streams = pinger.into_streams();
    streams.truncate(COUNT / 2);
    Pinger::new(streams, 1000).rounds(2);
    child.finish();
}

/// Sends `total` bytes and checks what comes back, with random sizes and pauses in both directions.
fn round_trip(addr: SocketAddr, total: u64, rng: &mut Rng) {
    let stream = support::connect(addr);
    let mut writer_rng = rng.fork();
    thread::scope(|scope| {
        scope.spawn(|| send(&stream, total, &mut writer_rng));
        receive(&stream, total, rng);
    });
}

fn send(mut stream: &std::net::TcpStream, total: u64, rng: &mut Rng) {
    let mut buf = vec![0; CHUNK];
    let mut position = 0;
    while position < total {
        let len = (rng.size(CHUNK) as u64).min(total - position) as usize;
        pattern::fill(&mut buf[..len], position);
        stream.write_all(&buf[..len]).unwrap();
        position += len as u64;
        if let Some(pause) = random_pause(rng) {
            thread::sleep(pause);
        }
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn receive(mut stream: &std::net::TcpStream, total: u64, rng: &mut Rng) {
    let mut buf = vec![0; CHUNK];
    let mut position = 0;
    loop {
        let len = stream.read(&mut buf[..rng.size(CHUNK)]).unwrap();
        if len == 0 {
            break;
        }
        pattern::check(&buf[..len], position);
        position += len as u64;
        if let Some(pause) = random_pause(rng) {
            thread::sleep(pause);
        }
    }
    assert_eq!(position, total, "the stream ended early or late");
}

/// One in 64 reads or writes is followed by a pause: part of the load, so that queues run full and run empty.
fn random_pause(rng: &mut Rng) -> Option<Duration> {
    rng.one_in(64)
        .then(|| Duration::from_micros(rng.below(1500) as u64))
}

/// Takes bytes by one form of read after the other, as chance has it, and returns them by any form of write.
async fn echo_in_random_forms(mut stream: TcpStream, mut rng: Rng) -> io::Result<()> {
    let (mut reader, mut writer) = TcpStream::split(&mut stream);
    let mut buf = vec![0; CHUNK + MAX_HEAD];
    loop {
        let taken = match rng.below(4) {
            0 => {
                let size = rng.size(CHUNK);
                let len = reader.read(&mut buf[..size]).await?;
                buf[..len].to_vec()
            }
            1 => {
                let cut = rng.below(MAX_HEAD);
                let size = cut + rng.size(CHUNK);
                let (head, tail) = buf[..size].split_at_mut(cut);
                let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
                let len = reader.read_vectored(&mut parts).await?;
                buf[..len].to_vec()
            }
            2 => {
                let bytes = reader.fill_buf().await?;
                let len = bytes.len().min(rng.size(CHUNK));
                let bytes = bytes[..len].to_vec();
                reader.consume_unpin(len);
                bytes
            }
            _ => match reader.recv_stream().next().await {
                None => Vec::new(),
                Some(lease) => {
                    let lease = lease?;
                    if rng.one_in(2) {
                        writer.send(lease).await?;
                        continue;
                    }
                    lease.to_vec()
                }
            },
        };
        if taken.is_empty() {
            return writer.close().await;
        }
        if let Some(pause) = random_pause(&mut rng) {
            runtime::time::sleep(pause).await;
        }
        match rng.below(3) {
            0 => writer.write_all(&taken).await?,
            1 => writer.send(taken).await?,
            _ => write_all_vectored(&mut writer, &taken, rng.below(taken.len() + 1)).await?,
        }
    }
}

/// Two slices per call, and on from wherever a short write has stopped.
async fn write_all_vectored(
    writer: &mut net::tcp::WriteHalf<'_>,
    bytes: &[u8],
    cut: usize,
) -> io::Result<()> {
    let mut writer = pin!(writer);
    let mut done = 0;
    while done < bytes.len() {
        let (head, tail) = bytes.split_at(cut.max(done));
        let parts = [IoSlice::new(&head[done..]), IoSlice::new(tail)];
        done += writer.write_vectored(&parts).await?;
    }
    Ok(())
}

fn watchdog(rng: &Rng, seconds: u64) -> Watchdog {
    let what = format!("the echo (seed {})", rng.seed());
    Watchdog::start(&what, Duration::from_secs(seconds))
}
