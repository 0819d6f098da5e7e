//! The figures as the `metrics` crate gets them.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use runtime::Builder;
use support::eventually;

use crate::alone;

#[test]
fn a_recorder_gets_the_figures_of_every_started_worker() {
    let _alone = alone("a recorder");
    let runtime = Builder::new().workers(3).name("shown").build().unwrap();
    let handle = runtime.handle();
    let tasks: Vec<_> = (0..3).map(|_| handle.spawn_on(1, pending::<()>)).collect();
    eventually("tasks", 3, || handle.metrics(1).tasks);
    runtime.block_on(async { runtime::spawn(async {}).await.unwrap() });

    let recorder = Notebook::default();
    ::metrics::with_local_recorder(&recorder, || handle.record_metrics());
    let value = |name: &str, worker: usize| recorder.value(name, worker);
    assert_eq!(value("ringshot_tasks", 1), Some(3.0));
    assert_eq!(value("ringshot_tasks", 0), Some(0.0));
    assert_eq!(value("ringshot_polls_total", 0), Some(1.0));
    let polls = handle.metrics(1).polls as f64;
    assert_eq!(value("ringshot_polls_total", 1), Some(polls));
    assert!(value("ringshot_awake_seconds", 0) > Some(0.0));
    assert!(value("ringshot_awake_seconds", 0) <= value("ringshot_elapsed_seconds", 0));
    assert_eq!(value("ringshot_tasks", 2), None, "it was never started");

    // Told again, the counters are the totals, not twice as much.
    drop(tasks);
    ::metrics::with_local_recorder(&recorder, || handle.record_metrics());
    assert_eq!(value("ringshot_polls_total", 0), Some(1.0));

    let names: Vec<_> = recorder.names();
    assert!(
        names.iter().all(|name| recorder.describes(name)),
        "{names:?}"
    );
    assert!(names.iter().all(|name| name.starts_with("ringshot_")));
    let infinite = recorder.find("ringshot_wake_latency_seconds_bucket", 1, "le=+Inf");
    let wakes = handle.metrics(1).wake_latency.count() as f64;
    assert_eq!(infinite, Some(wakes));
}

#[test]
fn without_a_recorder_nothing_happens() {
    let _alone = alone("no recorder");
    Builder::new().build().unwrap().handle().record_metrics();
}

/// Notes everything that it is told.
#[derive(Default)]
struct Notebook {
    values: Mutex<BTreeMap<String, Arc<Value>>>,
    described: Mutex<Vec<String>>,
}

/// A number's bits.
#[derive(Default)]
struct Value(AtomicU64);

impl Notebook {
    fn register(&self, key: &Key) -> Arc<Value> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels: Vec<_> = labels.collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        Arc::clone(self.values.lock().unwrap().entry(name).or_default())
    }

    fn describe(&self, name: &KeyName) {
        self.described
            .lock()
            .unwrap()
            .push(name.as_str().to_owned());
    }

    fn value(&self, name: &str, worker: usize) -> Option<f64> {
        self.find(name, worker, "")
    }

    fn find(&self, name: &str, worker: usize, label: &str) -> Option<f64> {
        let values = self.values.lock().unwrap();
        let worker = format!("runtime=shown worker={worker}");
        let found = values.iter().find(|(key, _)| {
            key.split(' ').next() == Some(name) && key.contains(&worker) && key.contains(label)
        });
        found.map(|(_, value)| f64::from_bits(value.0.load(Ordering::Relaxed)))
    }

    fn names(&self) -> Vec<String> {
        let values = self.values.lock().unwrap();
        let names = values.keys().filter_map(|key| key.split(' ').next());
        names.map(str::to_owned).collect()
    }

    fn describes(&self, name: &String) -> bool {
        self.described.lock().unwrap().contains(name)
    }
}

impl CounterFn for Value {
    fn increment(&self, _: u64) {
        panic!("counters are told as they are");
    }

    fn absolute(&self, value: u64) {
        self.0.store((value as f64).to_bits(), Ordering::Relaxed);
    }
}

impl GaugeFn for Value {
    fn increment(&self, _: f64) {
        panic!("gauges are told as they are");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are told as they are");
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Recorder for Notebook {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("there are none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> ::metrics::Histogram {
        panic!("there are none");
    }
}
