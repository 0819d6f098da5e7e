//! A limit on locked memory, which some kernels charge rings to (up to 5.11 and since 6.14), and no privilege to pass
//! it (B49): workers start all the same, with less or without a ring, and say so once.
//!
//! The limit is the process's and the account the user's, so each case is a child, as a user of its own.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use runtime::io::{Inbox, Outbox, Socket};
use runtime::{Backend, Builder, Runtime};
use support::{Child, Log, Parent, Watchdog};
use tracing_subscriber::filter::LevelFilter;

const KIB: u64 = 1024;
const LIMITS: [u64; 5] = [0, 64 * KIB, 256 * KIB, 1024 * KIB, 8192 * KIB];

/// B49.
#[test]
fn one_worker_starts_under_any_limit() {
    check("one_worker_starts_under_any_limit", 1);
}

/// B49.
#[test]
fn four_workers_start_under_any_limit() {
    check("four_workers_start_under_any_limit", 4);
}

/// B49.
#[test]
fn sixty_four_workers_start_under_any_limit() {
    check("sixty_four_workers_start_under_any_limit", 64);
}

/// B49: the kernel gives the memory of a ring back late.
#[test]
fn two_hundred_workers_in_a_row_start_under_any_limit() {
    const NAME: &str = "two_hundred_workers_in_a_row_start_under_any_limit";
    if let Some(parent) = Parent::in_child(NAME) {
        return in_child(&parent, || {
            for _ in 0..200 {
                ping(&Builder::new().build().unwrap());
            }
        });
    }
    for limit in LIMITS {
        Report::of_child(NAME, limit).assert_said_once();
    }
}

/// The refusal of one moment is not remembered: a worker that starts when there is memory again has a ring.
#[test]
fn a_worker_has_a_ring_again_when_there_is_memory_again() {
    const NAME: &str = "a_worker_has_a_ring_again_when_there_is_memory_again";
    if let Some(parent) = Parent::in_child(NAME) {
        return in_child(&parent, || {
            let has_ring = || {
                let runtime = Builder::new().build().unwrap();
                ping(&runtime);
                runtime.block_on(async { runtime::features().backend }) == Backend::Uring
            };
            let asked_for = std::env::var("RINGSHOT_BACKEND").is_ok_and(|name| name == "epoll");
            if asked_for || !has_ring() {
                return;
            }
            with_workers(64, ping);
            support::eventually("a ring", true, has_ring);
        });
    }
    Report::of_child(NAME, 256 * KIB).assert_said_once();
}

/// B49: a ring of buffers that is too large is made smaller, like the ring itself.
#[test]
fn a_large_buffer_ring_is_made_to_fit() {
    const NAME: &str = "a_large_buffer_ring_is_made_to_fit";
    if let Some(parent) = Parent::in_child(NAME) {
        return in_child(&parent, || {
            // 512 KiB of entries.
            let large = Builder::new().buffers(1 << 15).buffer_size(256).build();
            ping(&large.unwrap());
        });
    }
    let mut report = Report::of_child(NAME, 256 * KIB);
    // Smaller by its buffers, where this rung has a ring of them; then that is said.
    report.small = report.warnings.len();
    report.assert_said_once();
    let without_ring = Report::of_child(NAME, 8192 * KIB)
        .backends
        .contains_key("epoll");
    if !without_ring {
        assert!(!report.backends.contains_key("epoll"), "{report:?}");
    }
}

fn check(name: &str, workers: usize) {
    if let Some(parent) = Parent::in_child(name) {
        return in_child(&parent, || with_workers(workers, ping));
    }
    for limit in LIMITS {
        let report = Report::of_child(name, limit);
        let started: usize = report.backends.values().sum();
        assert_eq!(started, workers, "{report:?}");
        report.assert_said_once();
    }
}

/// Runs `work` on so many workers that are all there at the same time.
fn with_workers(count: usize, work: fn(&Runtime)) {
    let all_there = Barrier::new(count);
    let all_done = Barrier::new(count);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let runtime = Builder::new().build();
                all_there.wait();
                let runtime = runtime.unwrap();
                work(&runtime);
                all_done.wait();
            });
        }
    });
}

/// A byte there and back, and a wake from another thread.
fn ping(runtime: &Runtime) {
    runtime.block_on(async {
        let (near, far) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(Socket::new(near).unwrap());
        let inbox = Inbox::new(Socket::new(far).unwrap());
        assert_eq!(outbox.try_write(b"x").unwrap(), 1);
        let mut byte = [0];
        let read = std::future::poll_fn(|cx| inbox.poll_read(cx, &mut byte)).await;
        assert_eq!(read.unwrap(), 1);
        assert_eq!(&byte, b"x");
        assert_eq!(runtime::spawn_blocking(|| 42).await.unwrap(), 42);
    });
}

/// What a child has logged.
#[derive(Debug, Default)]
struct Report {
    /// How many workers started on what.
    backends: BTreeMap<&'static str, usize>,
    /// How many of them have a smaller ring than they wanted.
    small: usize,
    warnings: Vec<String>,
}

impl Report {
    fn of_child(name: &str, limit: u64) -> Self {
        println!("{limit} bytes of locked memory");
        let mut child = Child::start(name);
        let mut report = Self::default();
        let mut line = child.ask(&limit.to_string());
        while line != "end" {
            report.take(&line);
            line = child.hear();
        }
        child.finish();
        println!("{report:?}");
        report
    }

    fn take(&mut self, line: &str) {
        if let Some(started) = line
            .strip_prefix("INFO")
            .filter(|line| line.contains("a worker starts"))
        {
            let backend = match started.contains("features=epoll") {
                true => "epoll",
                false => "io_uring",
            };
            *self.backends.entry(backend).or_default() += 1;
            let full = ["submissions=256 completions=4096", "buffers=256"];
            let is_full = full.iter().all(|part| started.contains(part));
            self.small += usize::from(backend == "io_uring" && !is_full);
        } else if line.starts_with("WARN") {
            self.warnings.push(line.to_owned());
        } else if line.starts_with("ERROR") {
            panic!("{line}");
        }
    }

    /// One warning if some have no ring, one if some have a small one; both name the cause and the cure.
    fn assert_said_once(&self) {
        let without_ring = self.backends.contains_key("epoll");
        let asked_for = std::env::var("RINGSHOT_BACKEND").is_ok_and(|name| name == "epoll");
        let expected = usize::from(without_ring && !asked_for) + usize::from(self.small > 0);
        assert_eq!(self.warnings.len(), expected, "{self:?}");
        for warning in &self.warnings {
            assert!(warning.contains("RLIMIT_MEMLOCK"), "{warning}");
            assert!(warning.contains("ulimit -l"), "{warning}");
        }
    }
}

fn in_child(parent: &Parent, work: impl FnOnce()) {
    let _watchdog = Watchdog::start("a child", Duration::from_secs(60));
    let limit = parent.hear().unwrap().parse().unwrap();
    become_limited(limit);
    let log = Log::start(LevelFilter::INFO);
    work();
    for line in log.lines() {
        parent.say(&line);
    }
    parent.say("end");
}

/// Neither privileged nor sharing an account of locked memory with anybody.
fn become_limited(limit: u64) {
    let limits = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: `limits` is a whole rlimit and outlives the call.
    assert_done(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limits) });
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        let user = FIRST_UNUSED_USER + std::process::id();
        // SAFETY: takes plain numbers; all threads of this process change together. It ends every capability.
        assert_done(unsafe { libc::setresuid(user, user, user) });
    }
}

fn assert_done(result: libc::c_int) {
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Numbers from here on belong to no account.
const FIRST_UNUSED_USER: libc::uid_t = 1 << 30;
