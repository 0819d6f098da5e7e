//! Bytes: what is written is read, whole and in order, whoever is slow, gives up or lets go.

use std::io;
use std::net::Shutdown;
use std::pin::pin;

use futures::future::{Either, join_all, select};
use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::sim::Faults;
use runtime::time::{Duration, sleep};
use support::{Rng, pattern};

use crate::explore;

#[test]
fn every_byte_arrives_once_and_in_order() {
    explore(Faults::hidden(), async |rng| {
        let pairs = connect(1 + rng.below(4)).await.expect("no visible faults");
        let conversations = pairs.into_iter().flat_map(|(client, server)| {
            let (there, back) = (rng.size(1 << 14) as u64, rng.size(1 << 14) as u64);
            [
                runtime::spawn(converse(client, there, back, rng.fork())),
                runtime::spawn(converse(server, back, there, rng.fork())),
            ]
        });
        for ended in join_all(conversations.collect::<Vec<_>>()).await {
            ended.expect("no panic").expect("no visible faults");
        }
    });
}

/// A stream that is dropped has sent what was written; its peer reads that, and then the end or a reset.
#[test]
fn a_dropped_stream_has_sent_what_was_written() {
    explore(Faults::hidden(), async |rng| {
        let (mut client, mut server) = connect(1).await.expect("no visible faults").remove(0);
        let total = rng.size(1 << 14) as u64;
        let mut writer = rng.fork();
        let writes = runtime::spawn(async move {
            write_all(&mut client, total, &mut writer)
                .await
                .expect("written");
        });
        read_all(&mut server, total, rng).await.expect("read");
        expect_end(&mut server).await;
        writes.await.expect("no panic");
    });
}

/// Tasks are aborted and streams dropped in the middle; nobody hangs, and everything is given back.
#[test]
fn letting_go_at_any_moment_leaves_nothing_behind() {
    explore(Faults::hidden(), async |rng| {
        let pairs = connect(1 + rng.below(6)).await.expect("no visible faults");
        let mut tasks = Vec::new();
        for (client, server) in pairs {
            for stream in [client, server] {
                tasks.push(runtime::spawn(converse(stream, 5000, 5000, rng.fork())));
            }
        }
        for task in tasks {
            pause(rng).await;
            match rng.below(3) {
                0 => drop(task.await),
                1 => {
                    task.abort();
                    drop(task.await);
                }
                _ => task.abort(),
            }
        }
    });
}

/// With resets a conversation may end early, but only by an error that says so, and what was read until then is right.
#[test]
fn a_reset_ends_a_conversation_with_an_error_and_no_wrong_byte() {
    explore(Faults::all(), async |rng| {
        let Ok(pairs) = connect(1 + rng.below(4)).await else {
            return; // refused
        };
        let conversations = pairs.into_iter().flat_map(|(client, server)| {
            [
                runtime::spawn(converse(client, 5000, 3000, rng.fork())),
                runtime::spawn(converse(server, 3000, 5000, rng.fork())),
            ]
        });
        for ended in join_all(conversations.collect::<Vec<_>>()).await {
            if let Err(error) = ended.expect("no panic") {
                let expected = [
                    io::ErrorKind::ConnectionReset,
                    io::ErrorKind::BrokenPipe,
                    io::ErrorKind::NotConnected,
                    // The peer's conversation had ended with an error.
                    io::ErrorKind::UnexpectedEof,
                ];
                assert!(expected.contains(&error.kind()), "{error:?}");
            }
        }
    });
}

/// Connected streams, each with its peer.
pub(crate) async fn connect(count: usize) -> io::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accepting = async {
        let mut accepted = Vec::new();
        while accepted.len() < count {
            match listener.accept().await {
                Ok((stream, peer)) => accepted.push((peer, stream)),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
            }
        }
        Ok(accepted)
    };
    let connecting = join_all((0..count).map(|_| TcpStream::connect(address)));
    let connecting = connecting.map(|all| all.into_iter().collect::<io::Result<Vec<_>>>());
    let (clients, mut servers) = futures::try_join!(connecting, accepting)?;
    let pair = |client: TcpStream| {
        let name = client.local_addr()?;
        let place = servers.iter().position(|(peer, _)| *peer == name);
        Ok((client, servers.swap_remove(place.expect("accepted")).1))
    };
    clients.into_iter().map(pair).collect()
}

/// Sends `there` bytes and reads `back` bytes side by side, ends its direction, and sees the end of the other.
async fn converse(mut stream: TcpStream, there: u64, back: u64, mut rng: Rng) -> io::Result<()> {
    let mut writer = rng.fork();
    let (mut rx, mut tx) = TcpStream::split(&mut stream);
    let write = async {
        let mut sent = 0;
        while sent < there {
            let len = writer.size(4096).min((there - sent) as usize);
            let bytes = pattern::bytes(sent, len);
            match writer.below(5) {
                0 => tx.write_all(&bytes).await?,
                1 => tx.send(bytes).await?,
                2 => {
                    sent += write_or_give_up(&mut tx, &bytes, &mut writer).await? as u64;
                    continue;
                }
                3 => {
                    tx.writable().await?;
                    match tx.try_write(&bytes) {
                        Ok(n) => sent += n as u64,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                    continue;
                }
                _ => {
                    tx.write_all(&bytes).await?;
                    tx.flush().await?;
                }
            }
            sent += len as u64;
            pause(&mut writer).await;
        }
        tx.close().await
    };
    let read = async {
        let mut held = Vec::new();
        let mut position = 0;
        while position < back {
            match rng.below(5) {
                0 => {
                    let mut buf = vec![0; rng.size(4096)];
                    let n = rx.read(&mut buf).await?;
                    position += checked(&buf[..n], position)?;
                }
                1 => {
                    let n = {
                        let bytes = rx.fill_buf().await?;
                        let n = rng.below(bytes.len() + 1).max(1).min(bytes.len());
                        checked(&bytes[..n], position)?
                    };
                    rx.consume_unpin(n as usize);
                    position += n;
                }
                2 => {
                    let chunk = rx.recv_stream().next().await;
                    let chunk = chunk.ok_or(io::ErrorKind::UnexpectedEof)??;
                    position += checked(&chunk, position)?;
                    held.push(chunk);
                }
                3 => {
                    let mut buf = vec![0; rng.size(4096)];
                    let read = pin!(rx.read(&mut buf));
                    match select(read, pin!(pause(&mut rng))).await {
                        Either::Left((n, _)) => {
                            let n = n?;
                            position += checked(&buf[..n], position)?;
                        }
                        Either::Right(_) => {}
                    }
                }
                _ => {
                    let mut buf = vec![0; rng.size(4096)];
                    let n = rx.peek(&mut buf).await?;
                    checked(&buf[..n], position)?;
                    rx.readable().await?;
                    let n = rx.try_read(&mut buf)?;
                    position += checked(&buf[..n], position)?;
                }
            }
            if rng.one_in(4) {
                held.clear();
            }
            pause(&mut rng).await;
        }
        drop(held);
        let mut more = [0; 1];
        assert_eq!(rx.read(&mut more).await?, 0, "more than was sent");
        Ok(())
    };
    futures::try_join!(write, read).map(drop)
}

/// What was read must be what was sent there. Nothing at all is an early end.
fn checked(bytes: &[u8], position: u64) -> io::Result<u64> {
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    pattern::check(bytes, position);
    Ok(bytes.len() as u64)
}

/// Writes, or gives up waiting: then nothing was taken.
async fn write_or_give_up(
    tx: &mut (impl futures::AsyncWrite + Unpin),
    bytes: &[u8],
    rng: &mut Rng,
) -> io::Result<usize> {
    let write = tx.write(bytes);
    match select(write, pin!(pause(rng))).await {
        Either::Left((n, _)) => n,
        Either::Right(_) => Ok(0),
    }
}

async fn write_all(stream: &mut TcpStream, total: u64, rng: &mut Rng) -> io::Result<()> {
    let mut sent = 0;
    while sent < total {
        let len = rng.size(4096).min((total - sent) as usize);
        stream.write_all(&pattern::bytes(sent, len)).await?;
        sent += len as u64;
        pause(rng).await;
    }
    Ok(())
}

async fn read_all(stream: &mut TcpStream, total: u64, rng: &mut Rng) -> io::Result<()> {
    let mut position = 0;
    while position < total {
        let mut buf = vec![0; rng.size(4096)];
        let n = stream.read(&mut buf).await?;
        position += checked(&buf[..n], position)?;
        pause(rng).await;
    }
    Ok(())
}

async fn expect_end(stream: &mut TcpStream) {
    match stream.read(&mut [0; 1]).await {
        Ok(n) => assert_eq!(n, 0, "more than was sent"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    let _ = stream.shutdown(Shutdown::Write).await;
}

/// Nothing, a turn, or some time.
pub(crate) async fn pause(rng: &mut Rng) {
    match rng.below(4) {
        0 | 1 => {}
        2 => runtime::yield_now().await,
        _ => sleep(Duration::from_micros(rng.size(20_000) as u64)).await,
    }
}
