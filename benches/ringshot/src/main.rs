//! Ringshot's servers, as its README and its examples write them.
//!
//! Variants: `lease` sends each received buffer back, `copy` is `copy_buf` between the halves, `read` is the program
//! that one would write for tokio. `gather` gives packets away instead of having them copied.
//! `one-entry`, `one-packet` and
//! `65-packets` take a mechanism away, or most of it. `1-worker` and `2-workers` are `lease` under `net::serve`.
//! `spin` is `lease` on a worker that looks for news before it sleeps. `timers` takes orders, and sleeps as often as it
//! is told.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::io::copy_buf;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, poll};
use net::serve::Server;
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::Builder;
use runtime::time::{Instant, sleep_until};
use server::{BACKLOG, BUFFER, Job, Mode, PACKET};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let builder = match job.variant.as_str() {
        "one-entry" => Builder::new().ring_entries(1),
        "one-packet" => Builder::new().send_high_water(PACKET),
        "65-packets" => Builder::new().send_high_water(65 * PACKET),
        "spin" => Builder::new().spin(SPIN),
        "1-worker" => return serve_by_workers(1),
        "2-workers" => return serve_by_workers(2),
        _ => Builder::new(),
    };
    builder.build()?.block_on(serve(job))
}

async fn serve(job: Job) -> io::Result<()> {
    let listener = listen()?;
    server::announce(listener.local_addr()?)?;
    let mut incoming = listener.incoming();
    while let Some(stream) = incoming.next().await {
        let mut stream = stream?;
        // How a connection ends is not this program's concern, so the tasks are detached.
        match (job.mode, job.variant.as_str()) {
            (Mode::Packets, "gather") => {
                drop(runtime::spawn(async move { gather(&mut stream).await }))
            }
            (Mode::Packets, _) => drop(runtime::spawn(async move { packets(&mut stream).await })),
            (_, "lease" | "one-entry" | "spin") => {
                drop(runtime::spawn(async move { lease(&mut stream).await }))
            }
            (_, "copy") => drop(runtime::spawn(async move { copy(&mut stream).await })),
            (_, "read") => drop(runtime::spawn(async move { read(&mut stream).await })),
            (_, "timers") => drop(runtime::spawn(async move { timers(&mut stream).await })),
            (_, variant) => return Err(io::Error::other(format!("no variant {variant:?}"))),
        }
    }
    Ok(())
}

fn serve_by_workers(workers: usize) -> io::Result<()> {
    let runtime = Builder::new().workers(workers).build()?;
    runtime.block_on(async {
        let server = Server::builder()
            .nodelay(true)
            .bind(server::any_port())
            .await?;
        server::announce(server.local_addr()?)?;
        let ended = server.run(|mut stream, _| async move { lease(&mut stream).await });
        ended.await.map(drop)
    })
}

fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(server::any_port())?;
    socket.listen(BACKLOG.unsigned_abs())
}

async fn lease(stream: &mut TcpStream) -> io::Result<()> {
    let (mut rx, tx) = stream.split();
    let mut chunks = rx.recv_stream();
    while let Some(chunk) = chunks.next().await {
        tx.send(chunk?).await?;
    }
    Ok(())
}

async fn copy(stream: &mut TcpStream) -> io::Result<()> {
    let (rx, mut tx) = stream.split();
    copy_buf(rx, &mut tx).await?;
    Ok(())
}

async fn read(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}

async fn packets(stream: &mut TcpStream) -> io::Result<()> {
    for packet in server::packets() {
        stream.write_all(packet).await?;
    }
    Ok(())
}

async fn gather(stream: &mut TcpStream) -> io::Result<()> {
    for packet in server::packets() {
        stream.send(Bytes::from_static(packet)).await?;
    }
    Ok(())
}

/// All at the same time, and all in before the first is due: each is inserted, and each fires.
async fn timers(stream: &mut TcpStream) -> io::Result<()> {
    let mut order = [0; 8];
    loop {
        stream.read_exact(&mut order).await?;
        let start = Instant::now() + LEAD;
        let late = |number| start + SPREAD * number / 1000;
        // Scattered, and the same in every run.
        let due = (0..u64::from_le_bytes(order)).map(|number| late((number * 7919 % 1000) as u32));
        let mut sleeps: Vec<_> = due.map(|due| Box::pin(sleep_until(due))).collect();
        for sleep in &mut sleeps {
            // None is due yet, and one that is takes a turn.
            let _pending = poll!(sleep);
        }
        for sleep in sleeps {
            sleep.await;
        }
        stream.write_all(&[server::DONE]).await?;
    }
}

/// Longer than a client on the same machine takes to answer.
const SPIN: Duration = Duration::from_micros(200);

/// Under valgrind it takes a while to insert so many.
const LEAD: Duration = Duration::from_secs(2);
const SPREAD: Duration = Duration::from_millis(1);
