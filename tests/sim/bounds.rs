//! Bounds: a side that does not keep up stops the other one, at a size that does not depend on how much there is.

use std::io;

use futures::{AsyncReadExt, AsyncWriteExt};
use runtime::sim::{Faults, Simulation};
use runtime::time::{Duration, timeout};
use support::pattern;

use crate::streams::connect;
use crate::{SEEDS, at_rest, number};

const SEND_HIGH_WATER: usize = 4096;
const RECV_HIGH_WATER: usize = 2048;
const BUFFERS: usize = 8;
const BUFFER_SIZE: usize = 512;
/// The most that a simulated socket holds, for one direction.
const SOCKET: usize = 1 << 16;
/// What a paused receive may still bring, before Linux 6.17, and what went to the heap while the pool was empty.
const LATE: usize = 66 * 4096;

/// A peer that never reads: the writer is stopped, and what it has written by then is what the bounds say. When the peer
/// reads at last it gets all of that.
#[test]
fn a_reader_that_sleeps_stops_the_writer_at_the_bounds() {
    let bound = SEND_HIGH_WATER + RECV_HIGH_WATER + BUFFERS * BUFFER_SIZE + SOCKET + LATE;
    for seed in 0..number("RINGSHOT_SIM_SEEDS").unwrap_or(SEEDS) / 4 {
        let builder = runtime::Builder::new()
            .buffers(BUFFERS as u16)
            .buffer_size(BUFFER_SIZE)
            .send_high_water(SEND_HIGH_WATER)
            .recv_high_water(RECV_HIGH_WATER);
        let simulation = Simulation::new(seed)
            .faults(Faults::hidden())
            .builder(builder);
        simulation.run(async {
            let before = runtime::metrics();
            let (mut client, mut server) = connect(1).await.expect("connected").remove(0);
            // The receive is armed by the first read.
            let early = timeout(Duration::from_millis(1), server.readable()).await;
            assert!(early.is_err(), "nothing was sent");
            let mut written = 0;
            let chunk = 1000;
            loop {
                let bytes = pattern::bytes(written, chunk);
                match timeout(Duration::from_secs(60), client.write(&bytes)).await {
                    Ok(n) => written += n.expect("no visible faults") as u64,
                    Err(_) => break,
                }
                assert!(
                    written < bound as u64,
                    "seed {seed}: the writer is not stopped"
                );
            }
            let reading = async {
                let mut position = 0;
                let mut buf = [0; 700];
                loop {
                    let n = server.read(&mut buf).await?;
                    if n == 0 {
                        break;
                    }
                    pattern::check(&buf[..n], position);
                    position += n as u64;
                }
                assert_eq!(position, written);
                io::Result::Ok(())
            };
            let (closed, read) = futures::join!(client.close(), reading);
            closed.and(read).expect("no visible faults");
            drop((client, server));
            assert_eq!(at_rest(&before).await.ops, before.ops);
        });
    }
}
