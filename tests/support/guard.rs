//! One test at a time, and none that hangs.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Takes the whole process for this test: what it measures (descriptors, memory, limits) belongs to all threads.
/// The watchdog starts when the turn has come.
pub fn alone(what: &str, limit: Duration) -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    // A failed test poisons the lock and harms nobody else.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Alone {
        _watchdog: Watchdog::start(what, limit),
        _turn: turn,
    }
}

/// See [`alone`].
#[derive(Debug)]
pub struct Alone {
    _watchdog: Watchdog,
    _turn: MutexGuard<'static, ()>,
}

/// Aborts the process, with a message, if it is not dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub fn start(what: &str, limit: Duration) -> Self {
        let (alive, ended) = mpsc::channel();
        let limit = limit * crate::patience();
        let what = what.to_owned();
        thread::spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
                // Not `eprintln!`: the harness captures that, and would take it to the grave.
                let message = format!("watchdog: {what} did not end within {limit:?}\n");
                let _ = std::io::stderr().write_all(message.as_bytes());
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}
