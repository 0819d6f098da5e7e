//! Connections that were used once and then do nothing.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::{Echo, Phase, Until};

/// Holds connections open.
pub(crate) struct Idle {
    address: SocketAddr,
    connections: usize,
    groups: Vec<Echo>,
}

impl Idle {
    /// Uses some connections and closes them: what the first ones cost is not what one more costs.
    pub(crate) fn prepare(address: SocketAddr, connections: usize) -> io::Result<Self> {
        drop(Self::group(address, GROUP)?);
        // The server has time to close them.
        thread::sleep(PAUSE);
        Ok(Self {
            address,
            connections,
            groups: Vec::new(),
        })
    }

    pub(crate) fn open(&mut self) -> io::Result<()> {
        for start in (0..self.connections).step_by(GROUP) {
            let size = GROUP.min(self.connections - start);
            self.groups.push(Self::group(self.address, size)?);
        }
        Ok(())
    }

    /// Does nothing for a while.
    pub(crate) fn rest(&mut self) -> io::Result<Phase> {
        let mut phase = Phase::new()?;
        let start = Instant::now();
        thread::sleep(REST);
        phase.operations = self.connections as u64;
        phase.elapsed = start.elapsed();
        Ok(phase)
    }

    /// Connections that have had one message echoed each, so that every one is really served.
    fn group(address: SocketAddr, size: usize) -> io::Result<Echo> {
        let mut group = Echo::connect(address, size, MESSAGE, 1)?;
        group.run(Until::Operations(0))?;
        Ok(group)
    }
}

const MESSAGE: usize = 64;
/// Less than any server's backlog, so that no connect has to be repeated by TCP.
const GROUP: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(200);
