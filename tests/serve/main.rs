//! Servers on many workers: how connections are spread, how many there may be, and how it all stops.

mod spread;
mod stop;

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as Peer};
use std::thread;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpStream;
use net::serve::{Balance, Server};
use runtime::Builder;
use support::Alone;

const BOTH: [Balance; 2] = [Balance::PerWorker, Balance::LeastConnections];

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(120))
}

/// Runs `test` with a runtime of so many workers.
fn with_workers<F: Future>(workers: usize, test: F) -> F::Output {
    let runtime = Builder::new().workers(workers).build().unwrap();
    runtime.block_on(test)
}

async fn bind(balance: Balance) -> (Server, SocketAddr) {
    let builder = Server::builder().balance(balance);
    let server = builder.bind(support::loopback()).await.unwrap();
    let addr = server.local_addr().unwrap();
    (server, addr)
}

/// Clients on a thread of their own, awaited by the runtime.
async fn clients<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    runtime::spawn_blocking(work).await.unwrap()
}

fn connect(addr: SocketAddr) -> Peer {
    let peer = Peer::connect(addr).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    peer
}

/// One question and its answer.
fn ask(peer: &mut Peer) -> io::Result<()> {
    peer.write_all(b"ask")?;
    let mut answer = [0; 3];
    peer.read_exact(&mut answer)?;
    assert_eq!(&answer, b"ask");
    Ok(())
}

async fn echo(mut stream: TcpStream, _: SocketAddr) -> io::Result<()> {
    let mut buf = [0; 64];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            len => stream.write_all(&buf[..len]).await?,
        }
    }
}

/// Answers one question.
async fn answer(mut stream: TcpStream, _: SocketAddr) -> io::Result<()> {
    let mut question = [0; 3];
    stream.read_exact(&mut question).await?;
    stream.write_all(&question).await?;
    stream.close().await
}

fn at_once(count: usize, client: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for index in 0..count {
            let client = &client;
            scope.spawn(move || client(index));
        }
    });
}
