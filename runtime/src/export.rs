//! The figures of the workers, for the recorder of the `metrics` crate.

use ::metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::{Handle, Metrics};

impl Handle {
    /// Tells the recorder of the crate [`metrics`](https://docs.rs/metrics) the figures of every worker that has been
    /// started. With the feature `metrics`.
    ///
    /// To be called every now and then, from a task or from any thread; it reads what the workers have stored, and
    /// disturbs none of them. Without a recorder it does nothing.
    ///
    /// All names begin with `ringshot_`. What [`Metrics`] counts is a counter of that name with `_total` at its end, what it
    /// holds a gauge, and times are gauges in seconds. The wakes are counters `ringshot_wake_latency_seconds_bucket`,
    /// cumulative and with a label `le`, as Prometheus has them. The labels are `worker`, its number, and `runtime`, the
    /// [name](crate::Builder::name): if there are several runtimes, give each its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// // Install a recorder before, such as that of the crate `metrics-exporter-prometheus`.
    /// let exporter = runtime::spawn(async {
    ///     let mut every = runtime::time::interval(Duration::from_secs(5));
    ///     loop {
    ///         every.tick().await;
    ///         runtime::Handle::current().record_metrics();
    ///     }
    /// });
    /// # runtime::yield_now().await;
    /// # drop(exporter);
    /// # });
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    pub fn record_metrics(&self) {
        for (name, what, _) in COUNTERS {
            describe_counter!(*name, Unit::Count, *what);
        }
        for (name, unit, what, _) in GAUGES {
            describe_gauge!(*name, *unit, *what);
        }
        describe_counter!(WAKES, Unit::Count, WAKES_ARE);
        for worker in (0..self.workers()).filter(|worker| self.is_started(*worker)) {
            self.record(worker, &self.metrics(worker));
        }
    }

    fn record(&self, worker: usize, metrics: &Metrics) {
        let worker = worker.to_string();
        let labels = [
            ("runtime", self.name().to_owned()),
            ("worker", worker.clone()),
        ];
        for (name, _, count) in COUNTERS {
            counter!(*name, &labels).absolute(count(metrics));
        }
        for (name, _, _, value) in GAUGES {
            gauge!(*name, &labels).set(value(metrics));
        }
        let [runtime, worker] = labels;
        let mut so_far = 0;
        for (bound, count) in metrics.wake_latency.buckets() {
            so_far += count;
            let below = match bound {
                std::time::Duration::MAX => "+Inf".to_owned(),
                bound => bound.as_secs_f64().to_string(),
            };
            let labels = [runtime.clone(), worker.clone(), ("le", below)];
            counter!(WAKES, &labels).absolute(so_far);
        }
    }
}

type Count = fn(&Metrics) -> u64;
type Value = fn(&Metrics) -> f64;

const COUNTERS: &[(&str, &str, Count)] = &[
    ("ringshot_enters_total", "Calls of io_uring_enter", |of| {
        of.enters
    }),
    (
        "ringshot_submissions_total",
        "Entries submitted to the kernel",
        |of| of.submissions,
    ),
    (
        "ringshot_completions_total",
        "Completions taken from the kernel",
        |of| of.completions,
    ),
    ("ringshot_polls_total", "Polls of spawned tasks", |of| {
        of.polls
    }),
    (
        "ringshot_slow_polls_total",
        "Polls that took longer than the threshold",
        |of| of.slow_polls,
    ),
    (
        "ringshot_stalls_total",
        "Polls found to go on for longer than the threshold",
        |of| of.stalls,
    ),
    (
        "ringshot_rearms_total",
        "Multishot operations that were armed again",
        |of| of.rearms,
    ),
    (
        "ringshot_starvations_total",
        "Receives that found no buffer",
        |of| of.starvations,
    ),
    (
        "ringshot_pauses_total",
        "Receives and accepts paused for a slow program",
        |of| of.pauses,
    ),
    (
        "ringshot_silent_sends_total",
        "Sends without a completion",
        |of| of.silent_sends,
    ),
    (
        "ringshot_short_sends_total",
        "Silent sends that did not go out whole",
        |of| of.short_sends,
    ),
    (
        "ringshot_armed_sends_total",
        "Sends with a completion",
        |of| of.armed_sends,
    ),
    (
        "ringshot_overflows_total",
        "Turns that found the completion queue full",
        |of| of.overflows,
    ),
    (
        "ringshot_refusals_total",
        "Submissions that were not taken at once",
        |of| of.refusals,
    ),
    (
        "ringshot_unknown_completions_total",
        "Completions of no operation",
        |of| of.unknown_completions,
    ),
    (
        "ringshot_remote_wakes_total",
        "Wakes from other threads that ended a sleep",
        |of| of.remote_wakes,
    ),
];

const GAUGES: &[(&str, Unit, &str, Value)] = &[
    (
        "ringshot_elapsed_seconds",
        Unit::Seconds,
        "Time since the worker's start",
        |of| of.elapsed.as_secs_f64(),
    ),
    (
        "ringshot_awake_seconds",
        Unit::Seconds,
        "Time that the worker was in no call that may sleep",
        |of| of.awake.as_secs_f64(),
    ),
    (
        "ringshot_cpu_seconds",
        Unit::Seconds,
        "CPU time of the worker's thread",
        |of| of.cpu.as_secs_f64(),
    ),
    (
        "ringshot_longest_poll_seconds",
        Unit::Seconds,
        "The longest poll, if polls are timed",
        |of| of.longest_poll.as_secs_f64(),
    ),
    (
        "ringshot_tasks",
        Unit::Count,
        "Spawned tasks that have not ended",
        |of| of.tasks as f64,
    ),
    (
        "ringshot_ready",
        Unit::Count,
        "Tasks that wait for their poll",
        |of| of.ready as f64,
    ),
    ("ringshot_ops", Unit::Count, "Operations in flight", |of| {
        of.ops as f64
    }),
    (
        "ringshot_connections",
        Unit::Count,
        "Streams of the worker",
        |of| of.connections as f64,
    ),
    ("ringshot_buffers", Unit::Count, "Receive buffers", |of| {
        of.buffers as f64
    }),
    (
        "ringshot_buffers_free",
        Unit::Count,
        "Receive buffers that nobody holds",
        |of| of.buffers_free as f64,
    ),
];

const WAKES: &str = "ringshot_wake_latency_seconds_bucket";
const WAKES_ARE: &str = "Wakes from other threads that took less than `le`";
