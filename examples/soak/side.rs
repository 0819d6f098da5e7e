//! One of the two runtimes: a thread that builds it, runs it, and drops it, each when it is told to.

use std::future::Future;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use runtime::{Builder, Metrics};

use crate::chores::Holdings;

pub struct SideThread {
    orders: Sender<()>,
    reports: Receiver<Report>,
    thread: JoinHandle<()>,
}

enum Report {
    Built(Result<String, runtime::BuildError>),
    Ended(Box<Outcome>),
}

/// How a runtime was left.
pub struct Outcome {
    pub result: io::Result<()>,
    pub before: Holdings,
    pub after: Holdings,
    pub metrics: Metrics,
}

impl SideThread {
    /// Builds a runtime and says what it runs on. It does nothing before [`SideThread::run`].
    pub fn build<F: Future<Output = io::Result<()>>>(
        builder: Builder,
        body: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<(Self, String)> {
        let (orders, ordered) = mpsc::channel();
        let (reporter, reports) = mpsc::channel();
        let thread = thread::spawn(move || work(&builder, body, &ordered, &reporter));
        let side = Self {
            orders,
            reports,
            thread,
        };
        match side.reports.recv() {
            Ok(Report::Built(features)) => Ok((side, features.map_err(io::Error::other)?)),
            Ok(Report::Ended(_)) | Err(_) => Err(io::Error::other("a runtime was not built")),
        }
    }

    /// Starts what it is there for.
    pub fn run(&self) {
        // If the thread is gone, the outcome will be missed.
        let _ = self.orders.send(());
    }

    /// Waits for the end of what it does. `None` if it hangs, or has panicked.
    pub fn outcome(&self, patience: Duration) -> Option<Outcome> {
        match self.reports.recv_timeout(patience) {
            Ok(Report::Ended(outcome)) => Some(*outcome),
            Ok(Report::Built(_)) | Err(_) => None,
        }
    }

    /// Drops the runtime and waits until it is gone.
    pub fn end(self) {
        drop(self.orders);
        // A panic was noticed by the hook.
        let _ = self.thread.join();
    }
}

fn work<F: Future<Output = io::Result<()>>>(
    builder: &Builder,
    body: impl FnOnce() -> F,
    orders: &Receiver<()>,
    reports: &Sender<Report>,
) {
    // Whoever does not wait for a report any more has given up.
    let report = |what| drop(reports.send(what));
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return report(Report::Built(Err(error))),
    };
    let features = runtime.block_on(async { runtime::features().to_string() });
    report(Report::Built(Ok(features)));
    if orders.recv().is_err() {
        return;
    }
    let outcome = runtime.block_on(async {
        let before = Holdings::now();
        let result = body().await;
        Outcome {
            result,
            before,
            after: Holdings::settled(before).await,
            metrics: runtime::metrics(),
        }
    });
    report(Report::Ended(Box::new(outcome)));
    // The runtime stays until everything was looked at.
    let _ = orders.recv();
}
