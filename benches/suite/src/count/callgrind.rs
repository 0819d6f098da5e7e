//! A server under callgrind, and its counter.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use server::Mode;

use crate::calls::Scratch;

/// A running server. It is killed when this is dropped: under valgrind it would not end by a signal that it could
/// handle.
pub(super) struct Callgrind {
    process: Child,
    pub(super) address: SocketAddr,
    scratch: Scratch,
    dumps: usize,
}

impl Callgrind {
    pub(super) fn start(server: &Path, variant: &str) -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let log = scratch.path().join("log");
        // A batch process does not interrupt whoever has woken it.
        let started = Command::new("chrt")
            .args(["--batch", "0", "valgrind", "--tool=callgrind"])
            .arg(format!(
                "--callgrind-out-file={}",
                scratch.path().join(DUMP).display()
            ))
            .arg(server)
            .args([&Mode::Echo.to_string(), variant])
            // The budget is of the runtime as it is, on a ring; without one the server says so and ends.
            .env("RINGSHOT_BACKEND", "uring")
            .env_remove("RINGSHOT_DISABLE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .map_err(|error| io::Error::other(format!("chrt does not run: {error}")))?;
        let mut callgrind = Self {
            process: started,
            address: server::any_port(),
            scratch,
            dumps: 0,
        };
        let mut line = String::new();
        if let Some(output) = callgrind.process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        callgrind.address = line.trim().parse().map_err(|_| {
            let said = fs::read_to_string(log).unwrap_or_default();
            io::Error::other(format!("the server did not start under valgrind: {said}"))
        })?;
        Ok(callgrind)
    }

    /// The instructions since this was called last, or since the start.
    pub(super) fn instructions(&mut self) -> io::Result<u64> {
        let output = Command::new("vgdb")
            .arg(format!("--pid={}", self.process.id()))
            .arg("dump")
            .output()?;
        self.dumps += 1;
        let dump = format!("{DUMP}.{}", self.dumps);
        let text = fs::read_to_string(self.scratch.path().join(dump)).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("callgrind left no dump ({error}): {said}"))
        })?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        total
            .and_then(|total| total.trim().parse().ok())
            .ok_or_else(|| io::Error::other("a dump of callgrind has no total"))
    }
}

impl Drop for Callgrind {
    fn drop(&mut self) {
        // It may have ended by itself, which its clients have noticed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const DUMP: &str = "dump";
