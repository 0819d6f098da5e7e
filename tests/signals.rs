//! Signals reach every listener, on whichever worker and runtime it is.

use std::io;
use std::thread;
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use futures::{FutureExt, StreamExt};
use runtime::Builder;
use runtime::signal::{Signal, SignalKind, ctrl_c};
use support::{Alone, open_fds};

#[test]
fn a_signal_reaches_every_listener_on_every_worker() {
    let _alone = alone("listeners everywhere");
    Builder::new().workers(3).build().unwrap().block_on(async {
        let (listening, mut listens) = unbounded();
        let tasks = runtime::spawn_on_each(|worker| async move {
            let mut signals = [(); 2].map(|()| Signal::new(SignalKind::user_defined1()).unwrap());
            listening.unbounded_send(()).unwrap();
            for signal in &mut signals {
                signal.recv().await.unwrap();
            }
            worker
        });
        for _ in 0..3 {
            listens.next().await.unwrap();
        }
        raise(SignalKind::user_defined1());
        for (worker, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), worker);
        }
    });
}

#[test]
fn several_runtimes_may_listen() {
    let _alone = alone("several runtimes");
    let (listening, mut listens) = unbounded();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let listening = listening.clone();
            thread::spawn(move || {
                Builder::new().build().unwrap().block_on(async {
                    let mut signal = Signal::new(SignalKind::user_defined2()).unwrap();
                    listening.unbounded_send(()).unwrap();
                    signal.recv().await.unwrap();
                });
            })
        })
        .collect();
    for _ in 0..3 {
        futures::executor::block_on(listens.next()).unwrap();
    }
    raise(SignalKind::user_defined2());
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn signals_that_nobody_has_taken_yet_are_kept_and_count_as_one() {
    let _alone = alone("kept signals");
    Builder::new().build().unwrap().block_on(async {
        let mut signal = Signal::new(SignalKind::hangup()).unwrap();
        assert!(signal.recv().now_or_never().is_none());
        // More than a socket holds.
        for _ in 0..10_000 {
            raise(SignalKind::hangup());
        }
        assert_eq!(signal.next().await, Some(()));
        assert!(signal.recv().now_or_never().is_none());
        raise(SignalKind::hangup());
        // A receiver that was dropped while it waited has taken none.
        assert_eq!(signal.recv().await, Some(()));
    });
}

#[test]
fn ctrl_c_is_an_interrupt() {
    let _alone = alone("ctrl-c");
    Builder::new().build().unwrap().block_on(async {
        let waiting = runtime::spawn(ctrl_c());
        runtime::yield_now().await;
        raise(SignalKind::interrupt());
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn listeners_that_are_dropped_give_everything_back() {
    let _alone = alone("dropped listeners");
    Builder::new().build().unwrap().block_on(async {
        // The first one of a kind installs a handler, which stays.
        drop(Signal::new(SignalKind::child()).unwrap());
        runtime::yield_now().await;
        let fds_before = open_fds();
        for _ in 0..100 {
            let signals = [(); 10].map(|()| Signal::new(SignalKind::child()).unwrap());
            raise(SignalKind::child());
            drop(signals);
        }
        raise(SignalKind::child());
        support::settled("open descriptors", fds_before, open_fds).await;
    });
}

#[test]
fn a_stream_of_signals_ends_with_its_runtime() {
    let _alone = alone("the end of a stream of signals");
    let runtime = Builder::new().build().unwrap();
    let mut signal = runtime.block_on(async { Signal::new(SignalKind::child()).unwrap() });
    drop(runtime);
    assert_eq!(futures::executor::block_on(signal.recv()), None);
}

#[test]
fn signals_that_cannot_be_caught_are_an_error() {
    let _alone = alone("no such signals");
    let outside = Signal::new(SignalKind::child()).unwrap_err();
    assert!(outside.to_string().contains("runtime"), "{outside}");
    Builder::new().build().unwrap().block_on(async {
        for number in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV] {
            let error = Signal::new(SignalKind::from_raw(number)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        for number in [-1, 0, 1000] {
            assert!(Signal::new(SignalKind::from_raw(number)).is_err());
        }
    });
}

fn raise(kind: SignalKind) {
    // Of the process, as a terminal sends it: any thread may take it.
    let process = std::process::id() as libc::pid_t;
    // SAFETY: takes numbers.
    let result = unsafe { libc::kill(process, kind.as_raw()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}
