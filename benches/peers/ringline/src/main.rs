//! ringline's server, as its documentation writes it: a task per connection that is shown what has arrived.
//!
//! It binds its own listener (an acceptor thread hands sockets to the worker), with its default buffers.

use std::io;

use ringline::{AsyncEventHandler, ConfigBuilder, ConnCtx, ParseResult, RinglineBuilder};
use server::{BACKLOG, Job, Mode};

fn main() -> io::Result<()> {
    match Job::from_args()?.mode {
        Mode::Echo => serve::<Echo>(),
        Mode::Packets => serve::<Packets>(),
    }
}

fn serve<H: AsyncEventHandler>() -> io::Result<()> {
    let config = ConfigBuilder::new()
        .workers(1)
        .pin_to_core(false)
        .backlog(BACKLOG)
        .tcp_nodelay(true)
        .build()
        .map_err(io::Error::other)?;
    let (shutdown, workers) = RinglineBuilder::new(config)
        .bind(server::any_port())
        .launch::<H>()
        .map_err(io::Error::other)?;
    server::announce(
        shutdown
            .bound_addr()
            .ok_or(io::ErrorKind::AddrNotAvailable)?,
    )?;
    for worker in workers {
        let ended = worker
            .join()
            .map_err(|_| io::Error::other("a worker has panicked"))?;
        ended.map_err(io::Error::other)?;
    }
    Ok(())
}

struct Echo;

impl AsyncEventHandler for Echo {
    fn on_accept(&self, conn: ConnCtx) -> impl Future<Output = ()> + 'static {
        async move {
            loop {
                let mut failed = false;
                let consumed = conn
                    .with_data(|data| {
                        failed = conn.send_nowait(data).is_err();
                        ParseResult::Consumed(data.len())
                    })
                    .await;
                if consumed == 0 || failed {
                    break;
                }
            }
        }
    }

    fn create_for_worker(_: usize) -> Self {
        Self
    }
}

struct Packets;

impl AsyncEventHandler for Packets {
    fn on_accept(&self, conn: ConnCtx) -> impl Future<Output = ()> + 'static {
        async move {
            for packet in server::packets() {
                // Its back-pressure: the next packet waits until this one is sent.
                let Ok(sent) = conn.send(packet) else { break };
                if sent.await.is_err() {
                    break;
                }
            }
        }
    }

    fn create_for_worker(_: usize) -> Self {
        Self
    }
}
