//! A small program that uses a bit of everything.

use std::thread;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::time::{sleep, timeout};
use support::{handlers, pattern};

/// More than is taken at once, so that writes have to wait.
const LARGE: usize = 256 << 10;

pub async fn run() {
    echo(handlers::echo_copy).await;
    echo(handlers::echo_copy_buf).await;
    echo(handlers::echo_lease).await;
    timers().await;
    other_threads().await;
    readiness().await;
}

/// Accept, connect, both ways of reading and both of sending, in small and in large, and the ends of streams.
async fn echo<F>(handler: fn(TcpStream) -> F)
where
    F: Future<Output = std::io::Result<()>> + 'static,
{
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = runtime::spawn(async move {
        for _ in 0..3 {
            let (stream, _) = listener.accept().await.unwrap();
            runtime::spawn(handler(stream));
        }
    });
    for len in [1, 5_000, LARGE] {
        let (mut reader, mut writer) = TcpStream::connect(addr).await.unwrap().into_split();
        let writing = runtime::spawn(async move {
            if len == LARGE {
                writer.write_all(&pattern::bytes(0, len)).await.unwrap();
            } else {
                writer.send(pattern::bytes(0, len)).await.unwrap();
            }
            writer.close().await.unwrap();
        });
        let mut echoed = Vec::new();
        if len == LARGE {
            reader.read_to_end(&mut echoed).await.unwrap();
        } else {
            let mut chunks = reader.recv_stream();
            while let Some(chunk) = chunks.next().await {
                echoed.extend_from_slice(&chunk.unwrap());
            }
        }
        assert_eq!(echoed.len(), len);
        pattern::check(&echoed, 0);
        writing.await.unwrap();
    }
    server.await.unwrap();
}

async fn timers() {
    let delay = Duration::from_millis(5);
    let start = Instant::now();
    sleep(delay).await;
    assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
    assert!(timeout(delay, std::future::pending::<()>()).await.is_err());
}

async fn other_threads() {
    let (sender, receiver) = oneshot::channel();
    let waking = thread::spawn(move || sender.send(42).unwrap());
    assert_eq!(receiver.await, Ok(42));
    waking.join().unwrap();
    assert_eq!(runtime::spawn_blocking(|| 43).await.unwrap(), 43);
}

async fn readiness() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = runtime::io::AsyncFd::new(reader).unwrap();
    let waiting = runtime::spawn(async move { reader.readable().await.map(drop) });
    runtime::yield_now().await;
    std::io::Write::write_all(&mut writer, b"x").unwrap();
    waiting.await.unwrap().unwrap();
}
