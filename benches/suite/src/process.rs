//! A server's process, and what the system knows about it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::catalogue::{Peer, Scenario};

/// The core of the servers, and the one of the generator.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const GENERATOR_CORE: usize = 1;

/// Keeps the calling thread, and what it starts from now on, on one core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    pin_to(&[core])
}

fn pin_to(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// A running server. It is killed when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(
        binary: &Path,
        peer: &Peer,
        scenario: &Scenario,
        log: &Path,
    ) -> io::Result<Self> {
        let log = fs::File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(binary);
        command
            .arg(scenario.mode().to_string())
            .arg(peer.variant)
            .envs(peer.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        // A child inherits the affinity of the thread that starts it.
        if peer.all_cores {
            pin_to(&[SERVER_CORE, GENERATOR_CORE])?;
        } else {
            pin(SERVER_CORE)?;
        }
        let started = command.spawn();
        pin(GENERATOR_CORE)?;
        let mut server = Self {
            process: started?,
            address: server::any_port(),
        };
        let mut line = String::new();
        if let Some(output) = server.process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().parse();
        server.address = address.map_err(|_| io::Error::other("the server did not start"))?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// CPU time of all its threads so far, in nanoseconds.
    ///
    /// A thread that has ended is not in it any more; the servers' threads live as long as they do.
    pub(crate) fn cpu_nanoseconds(&self) -> io::Result<u64> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            match fs::read_to_string(task?.path().join("schedstat")) {
                Ok(text) => sum += first_number(&text)?,
                // It has ended since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        // Exact, where `status` lags behind by what each core has not added up yet.
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        Ok(first_number(line.unwrap_or_default())? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which its clients have noticed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// CPU time of the calling thread so far, in nanoseconds.
pub(crate) fn own_cpu_nanoseconds() -> io::Result<u64> {
    first_number(&fs::read_to_string("/proc/thread-self/schedstat")?)
}

fn first_number(text: &str) -> io::Result<u64> {
    let number = text.split_whitespace().next().unwrap_or_default();
    number.parse().map_err(io::Error::other)
}

const NO_SUCH_PROCESS: i32 = 3;
