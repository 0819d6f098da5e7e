//! Clients that keep the server busy, in a runtime and on a thread of their own.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{join_all, select};
use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpStream;
use runtime::Builder;
use support::Rng;

pub struct Load {
    over: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Load {
    /// Starts `connections` clients, each of which sends a message, reads it back, and pauses.
    pub fn start(addr: SocketAddr, connections: usize, pause: Duration) -> io::Result<Self> {
        let (over, is_over) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || {
                let clients = (0..connections).map(|number| client(addr, number as u64, pause));
                match Builder::new().build() {
                    Ok(runtime) => drop(runtime.block_on(select(join_all(clients), is_over))),
                    Err(error) => eprintln!("top: no clients: {error}"),
                }
            })?;
        Ok(Self { over, thread })
    }

    /// Ends the clients, and waits until their connections are closed.
    pub fn stop(self) {
        drop(self.over);
        // A panic has been printed.
        let _ = self.thread.join();
    }
}

async fn client(addr: SocketAddr, number: u64, pause: Duration) {
    if let Err(error) = talk(addr, number, pause).await {
        eprintln!("top: client {number}: {error}");
    }
}

async fn talk(addr: SocketAddr, number: u64, pause: Duration) -> io::Result<()> {
    let mut rng = Rng::new(number);
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let mut answer = vec![0; LONGEST];
    let message = vec![b'x'; LONGEST];
    loop {
        let len = 1 + rng.below(LONGEST);
        stream.write_all(&message[..len]).await?;
        stream.read_exact(&mut answer[..len]).await?;
        if !pause.is_zero() {
            // Between nothing and twice as long.
            let percent = rng.below(201) as u32;
            runtime::time::sleep(pause * percent / 100).await;
        }
    }
}

/// Bytes.
const LONGEST: usize = 1024;
