//! A peer that has said all it had to say and does not listen yet (B33).

use std::io::Read;
use std::net::{Shutdown, TcpStream as Peer};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpListener;
use runtime::time::sleep;
use socket2::SockRef;
use support::{pattern, thread_id, thread_usage};

use crate::{run, some_turns};

const TOTAL: usize = 10 << 20;
/// How long the worker is watched while the peer does not read.
const WATCHED: Duration = Duration::from_secs(1);

/// B33: the end of the peer's direction is news once; it is no reason to try the other direction again and again.
#[test]
fn a_half_closed_peer_that_does_not_read_costs_nothing_and_gets_everything_later() {
    run("half-close before the write", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, peer) = support::pair(&listener).await;
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        SockRef::from(&stream)
            .set_send_buffer_size(64 << 10)
            .unwrap();
        let writer = runtime::spawn(async move {
            stream.write_all(&pattern::bytes(0, TOTAL)).await?;
            stream.close().await
        });
        assert_blocked_write_costs_nothing().await;
        assert!(!writer.is_finished());
        read_slowly(peer).await;
        writer.await.unwrap().unwrap();
    });
}

/// B33, the other order: the half-close arrives at a reader that is armed, while the writer is stuck.
#[test]
fn a_peer_that_half_closes_while_a_write_is_stuck_costs_nothing_and_gets_everything_later() {
    run("half-close during the write", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, peer) = support::pair(&listener).await;
        SockRef::from(&stream)
            .set_send_buffer_size(64 << 10)
            .unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let reading = runtime::spawn(async move { reader.read(&mut [0]).await });
        let writing = runtime::spawn(async move {
            writer.write_all(&pattern::bytes(0, TOTAL)).await?;
            writer.close().await
        });
        some_turns().await;
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), 0);
        assert_blocked_write_costs_nothing().await;
        assert!(!writing.is_finished());
        read_slowly(peer).await;
        writing.await.unwrap().unwrap();
    });
}

async fn assert_blocked_write_costs_nothing() {
    // The kernel's buffers fill up in the turns of the writer itself.
    some_turns().await;
    assert_eq!(kernel_workers(), 0, "kernel threads that wait for room");
    let enters = runtime::metrics().enters;
    let usage = thread_usage(thread_id());
    // Doing nothing for a while is what is measured here.
    sleep(WATCHED).await;
    let enters = runtime::metrics().enters - enters;
    let cpu = Duration::from_nanos(thread_usage(thread_id()).cpu_ns - usage.cpu_ns);
    assert!(
        enters < 50,
        "{enters} enters in {WATCHED:?} of waiting for room"
    );
    assert_eq!(kernel_workers(), 0, "kernel threads that wait for room");
    assert!(
        cpu < support::idle_cpu(WATCHED),
        "{cpu:?} of CPU in {WATCHED:?} of waiting for room"
    );
}

/// Threads that the kernel has started to wait in our place: one for each stuck connection would be a lot.
fn kernel_workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("iou-wrk")).count()
}

/// In small bites, on a thread of its own, up to the end.
async fn read_slowly(mut peer: Peer) {
    const BITE: usize = 16 << 10;
    const BITES_BETWEEN_PAUSES: usize = 32;
    let (sender, received) = oneshot::channel();
    let reader = thread::spawn(move || {
        let mut bite = vec![0; BITE];
        let mut position = 0;
        for bites in 1.. {
            let len = peer.read(&mut bite).unwrap();
            if len == 0 {
                break;
            }
            pattern::check(&bite[..len], position as u64);
            position += len;
            if bites % BITES_BETWEEN_PAUSES == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        sender.send(position).unwrap();
    });
    assert_eq!(received.await.unwrap(), TOTAL);
    reader.join().unwrap();
}
