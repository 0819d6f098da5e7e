//! Counts the system calls of a server, in a run of its own.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// What can count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Counts in the kernel, and hardly disturbs.
    Perf,
    /// Stops the server at each call. It is so slow then that turns get larger: the counts are a lower bound.
    Strace,
}

impl Counter {
    /// Tries them.
    pub(crate) fn find() -> Option<Self> {
        let works = |command: &mut Command| {
            let quiet = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        if works(Command::new("perf").args(["stat", "-e", EVENT, "true"])) {
            return Some(Self::Perf);
        }
        works(Command::new("strace").args(["-f", "-c", "true"])).then_some(Self::Strace)
    }

    pub(crate) fn name(counter: Option<Self>) -> &'static str {
        match counter {
            Some(Self::Perf) => "perf stat -e raw_syscalls:sys_enter",
            Some(Self::Strace) => {
                "strace -f -c, which slows servers down; with many connections the counts are a lower bound"
            }
            None => "nobody: neither perf nor strace works here",
        }
    }

    /// Counts the calls of a process and its threads while `work` runs.
    pub(crate) fn count<T>(
        self,
        pid: u32,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(u64, T)> {
        match self {
            Self::Perf => count_by_perf(pid, work),
            Self::Strace => count_by_strace(pid, work),
        }
    }
}

fn count_by_perf<T>(pid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<(u64, T)> {
    let scratch = Scratch::new()?;
    let (control, answer) = (scratch.fifo("control")?, scratch.fifo("answer")?);
    let output = scratch.0.join("output");
    let fifos = format!("--control=fifo:{},{}", control.display(), answer.display());
    let pid = pid.to_string();
    // Open for both directions, so that neither open waits for perf.
    let open = |path| File::options().read(true).write(true).open(path);
    let (mut control, answer) = (open(control)?, open(answer)?);
    let perf = Command::new("perf")
        .args([
            "stat", "-x,", "-e", EVENT, "-p", &pid, "-D", "-1", &fifos, "-o",
        ])
        .arg(&output)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut perf = Tool(perf);
    let mut answer = BufReader::new(answer);
    let mut tell = |order: &str| {
        writeln!(control, "{order}")?;
        answer.read_until(b'\n', &mut Vec::new())
    };
    tell("enable")?;
    let result = work();
    tell("disable")?;
    perf.interrupt()?;
    let text = fs::read_to_string(output)?;
    let line = text.lines().find(|line| line.contains(EVENT));
    let count = line.and_then(|line| line.split(',').next()?.parse().ok());
    let count = count.ok_or_else(|| io::Error::other(format!("perf has said {text:?}")))?;
    Ok((count, result?))
}

fn count_by_strace<T>(pid: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<(u64, T)> {
    let scratch = Scratch::new()?;
    let output = scratch.0.join("output");
    let strace = Command::new("strace")
        .args(["-f", "-c", "-p", &pid.to_string(), "-o"])
        .arg(&output)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut strace = Tool(strace);
    let mut said: BufReader<ChildStderr> = (strace.0.stderr.take())
        .map(BufReader::new)
        .ok_or(io::ErrorKind::BrokenPipe)?;
    // "Process PID attached", once for all threads that there are.
    if said.read_line(&mut String::new())? == 0 {
        return Err(io::Error::other("strace has not attached"));
    }
    let result = work();
    strace.interrupt()?;
    said.read_to_end(&mut Vec::new())?;
    let text = fs::read_to_string(output)?;
    Ok((strace_total(&text)?, result?))
}

/// The number of calls in the last line of a summary.
fn strace_total(text: &str) -> io::Result<u64> {
    // No call, no summary.
    if text.trim().is_empty() {
        return Ok(0);
    }
    let line = text.lines().find(|line| line.trim_end().ends_with("total"));
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("strace has said {text:?}")))
}

struct Tool(Child);

impl Tool {
    fn interrupt(&mut self) -> io::Result<()> {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT)?;
        }
        self.0.wait().map(drop)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It has ended, or something else went wrong and is being reported.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that goes away again. A process has one at a time.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("ringshot-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn fifo(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over files in the temporary directory harm nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const EVENT: &str = "raw_syscalls:sys_enter";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_summary_is_found_with_and_without_errors() {
        let with = "100.00    0.000101           1        67         3 total\n";
        let without = "100.00    0.000101           1        67           total\n";
        assert_eq!(strace_total(with).unwrap(), 67);
        assert_eq!(strace_total(without).unwrap(), 67);
        assert_eq!(strace_total("").unwrap(), 0);
        assert!(strace_total("Segmentation fault").is_err());
    }
}
