//! The server: one runtime on a thread of its own, with so little of everything that connections have to share it.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, try_join};
use net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::io::Lease;
use runtime::time::{sleep, timeout};
use support::Rng;

use crate::PATIENCE;
use crate::chores::Chores;
use crate::ledger::{Ledger, Side};
use crate::wire::{CHUNK, Habits, Received, Request, Work, is_break, narrow, pause, reunite};

/// Less of everything than the connections could use, so that each bound is met now and then: queues overflow, the pool
/// runs empty, receives and accepts are paused, writes wait.
pub fn builder() -> Builder {
    Builder::new()
        .ring_entries(16)
        .completion_entries(32)
        .buffers(32)
        .buffer_size(8 << 10)
        .recv_high_water(16 << 10)
        .send_high_water(16 << 10)
        .accept_backlog(4)
}

/// Serves until `stop` says so, and then until every connection has ended.
pub async fn serve(
    ledger: Arc<Ledger>,
    mut rng: Rng,
    listener: std::net::TcpListener,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let chores = Chores::start(&ledger, Side::Server, &mut rng);
    let accepting = runtime::spawn(accept_all(listener, rng, ledger.clone()));
    // Whether told or forsaken, the clients have finished.
    let _ = stop.await;
    accepting.abort();
    let _ = accepting.await;
    chores.finish().await;
    Ok(())
}

async fn accept_all(listener: TcpListener, rng: Rng, ledger: Arc<Ledger>) {
    let mut habits = Habits {
        rng,
        hasty: true,
        slow: false,
        ledger: &ledger.clone(),
    };
    loop {
        match accept(&listener, &mut habits).await {
            None => {}
            Some(Ok(stream)) => start(stream, &mut habits.rng, &ledger),
            Some(Err(error)) => {
                ledger.complain(format_args!("accept: {error}"));
                runtime::yield_now().await;
            }
        }
    }
}

/// Accepts in one of the ways that there are, and gives up some of them.
async fn accept(listener: &TcpListener, habits: &mut Habits<'_>) -> Option<io::Result<TcpStream>> {
    match habits.rng.below(4) {
        0 => {
            let accepted = habits.wavering(listener.accept()).await?;
            Some(accepted.map(|(stream, _)| stream))
        }
        1 => habits.wavering(listener.incoming().next()).await?,
        2 => {
            let limit = pin!(sleep(pause(&mut habits.rng)));
            match select(pin!(listener.accept()), limit).await {
                Either::Left((accepted, _)) => Some(accepted.map(|(stream, _)| stream)),
                Either::Right(_) => None,
            }
        }
        _ => listener.incoming().next().await,
    }
}

/// Gives the connection to a task, which must come to an end.
fn start(stream: TcpStream, rng: &mut Rng, ledger: &Arc<Ledger>) {
    let (ledger, mut rng) = (ledger.clone(), rng.fork());
    runtime::spawn(async move {
        let seed = rng.seed();
        match timeout(PATIENCE, handle(stream, &mut rng, &ledger)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => ledger.complain(format_args!("server, seed {seed}: {error}")),
            Err(_elapsed) => ledger.complain(format_args!(
                "server, seed {seed}: a connection has stalled"
            )),
        }
    });
}

async fn handle(mut stream: TcpStream, rng: &mut Rng, ledger: &Arc<Ledger>) -> io::Result<()> {
    let mut request = [0; Request::LEN];
    match stream.read_exact(&mut request).await {
        Ok(()) => {}
        // A client that gave up its connect.
        Err(error) if is_break(&error) => return Ok(()),
        Err(error) => return Err(error),
    }
    let request = Request::decode(request)
        .ok_or_else(|| io::Error::other("the first bytes are not those that the client sent"))?;
    if !request.fragile {
        return answer(stream, request, rng.fork(), ledger.clone()).await;
    }
    // In a task, to be aborted wherever it is.
    let task = runtime::spawn(answer(stream, request, rng.fork(), ledger.clone()));
    if rng.one_in(2) {
        sleep(pause(rng)).await;
        task.abort();
    }
    match task.await {
        Ok(Err(error)) if !is_break(&error) => Err(error),
        Err(error) if error.is_panic() => Err(error.into()),
        _ => Ok(()),
    }
}

async fn answer(
    stream: TcpStream,
    request: Request,
    mut rng: Rng,
    ledger: Arc<Ledger>,
) -> io::Result<()> {
    narrow(&stream, &mut rng)?;
    let mut habits = Habits {
        hasty: rng.one_in(3),
        slow: rng.one_in(8),
        rng,
        ledger: &ledger,
    };
    let (mut rx, mut tx) = stream.into_split();
    match request.work {
        Work::Echo => relay(&mut rx, &mut tx, request, &mut habits).await?,
        Work::Source => {
            let mut rx_habits = Habits {
                rng: habits.rng.fork(),
                ..habits
            };
            try_join!(
                async {
                    habits
                        .write_pattern(&mut tx, request.base, request.len)
                        .await?;
                    tx.close().await
                },
                rx_habits.read_pattern(&mut rx, request.base),
            )?;
        }
        Work::Sink => {
            let received = habits.read_pattern(&mut rx, request.base).await?;
            habits
                .transmit_all(&mut tx, &received.to_le_bytes())
                .await?;
        }
    }
    leave(rx, tx, &mut habits).await
}

/// Ends a connection in one of the ways that send all of it.
async fn leave(
    rx: OwnedReadHalf,
    mut tx: OwnedWriteHalf,
    habits: &mut Habits<'_>,
) -> io::Result<()> {
    match habits.rng.below(4) {
        0 => tx.close().await?,
        1 => drop(tx),
        2 => tx.forget(),
        _ => drop(reunite(rx, tx)?),
    }
    Ok(())
}

/// Sends back what comes. Leases are kept for a while, some of them, and go back out themselves.
async fn relay(
    rx: &mut OwnedReadHalf,
    tx: &mut OwnedWriteHalf,
    request: Request,
    habits: &mut Habits<'_>,
) -> io::Result<()> {
    let mut buf = vec![0; CHUNK];
    let mut hoard: VecDeque<Lease> = VecDeque::new();
    let room = if habits.rng.one_in(4) { 8 } else { 0 };
    let mut position = request.base;
    loop {
        let receive = habits.receive(rx, &mut buf, position);
        let received = if hoard.is_empty() {
            receive.await?
        } else {
            // The client may wait for what is kept here.
            timeout(HOARDED, receive)
                .await
                .unwrap_or(Ok(Received::Nothing))?
        };
        let (copied, keep) = match &received {
            Received::Nothing => (0, hoard.len() / 2),
            Received::Copied(len) => (*len, 0),
            Received::Leased(_) => (0, room),
            Received::End => (0, 0),
        };
        let ended = matches!(received, Received::End);
        if let Received::Leased(lease) = received {
            habits.ledger.verify(&lease, position);
            position += lease.len() as u64;
            hoard.push_back(lease);
        } else if copied == 0 {
            runtime::yield_now().await;
        }
        // What came first goes first.
        while hoard.len() > keep
            && let Some(lease) = hoard.pop_front()
        {
            tx.send(lease).await?;
        }
        habits.ledger.verify(&buf[..copied], position);
        position += copied as u64;
        habits.transmit_all(tx, &buf[..copied]).await?;
        if ended {
            return tx.close().await;
        }
        habits.pause().await;
    }
}

/// How long a connection keeps leases while nothing arrives, before it sends the older half.
const HOARDED: Duration = Duration::from_millis(5);
