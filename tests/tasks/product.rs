//! Every way in which a task can end, times every fate of its handle, times every moment of an abort: the future and
//! its output are dropped exactly once, whoever asks gets the right answer, and nobody else notices.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::FutureExt;
use runtime::{Builder, JoinError, JoinHandle};
use support::settled;

use crate::alone;

/// B43.
#[test]
fn every_end_is_reported_once_and_disturbs_nobody() {
    let _alone = alone("the product of ends");
    for end in [End::Finishes, End::Panics, End::Stays] {
        for future_drop in [OnDrop::IsQuiet, OnDrop::Panics] {
            for output_drop in [OnDrop::IsQuiet, OnDrop::Panics] {
                for abort in [Abort::Never, Abort::First, Abort::Midway, Abort::Last] {
                    for handle in [Handle::Joined, Handle::DroppedFirst, Handle::DroppedLast] {
                        check(Case {
                            end,
                            future_drop,
                            output_drop,
                            abort,
                            handle,
                        });
                    }
                }
            }
        }
    }
}

/// What the task does at its second poll.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Finishes,
    Panics,
    /// Never wakes again.
    Stays,
}

/// What a destructor does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OnDrop {
    IsQuiet,
    Panics,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Abort {
    Never,
    /// Before the first poll.
    First,
    /// After the first poll.
    Midway,
    /// After the end.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Handle {
    Joined,
    /// As soon as nobody needs it any more: at once, or after the abort.
    DroppedFirst,
    /// After the end of the task.
    DroppedLast,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    end: End,
    future_drop: OnDrop,
    output_drop: OnDrop,
    abort: Abort,
    handle: Handle,
}

impl Case {
    /// Whether the abort comes before the task's own end.
    fn is_aborted(self) -> bool {
        match self.abort {
            Abort::Never => false,
            Abort::First | Abort::Midway => true,
            Abort::Last => self.end == End::Stays,
        }
    }

    fn makes_output(self) -> bool {
        self.end == End::Finishes && !self.is_aborted()
    }

    fn assert_answer(self, answer: Result<Output, JoinError>) {
        let panics =
            self.future_drop == OnDrop::Panics || (self.end == End::Panics && !self.is_aborted());
        match answer {
            Ok(output) => {
                assert!(self.makes_output(), "{self:?} gave an output");
                drop_quietly(output);
            }
            Err(error) if panics => {
                assert!(
                    error.is_panic() && !error.is_cancelled(),
                    "{self:?}: {error}"
                );
            }
            Err(error) => {
                // The shutdown of the runtime counts as an abort.
                let is_dropped = self.is_aborted() || self.end == End::Stays;
                assert!(is_dropped, "{self:?}: {error}");
                assert!(
                    error.is_cancelled() && !error.is_panic(),
                    "{self:?}: {error}"
                );
            }
        }
    }
}

fn check(case: Case) {
    println!("{case:?}");
    let counts = Counts::default();
    let runtime = Builder::new().build().unwrap();
    let handle = runtime.block_on(async {
        let bystander = runtime::spawn(count_to_ten());
        let tasks = runtime::metrics().tasks;
        let handle = spawn_and_abort(case, &counts).await;
        if case.end != End::Stays || case.is_aborted() {
            settled("drops of the future", 1, || counts.future_drops.get()).await;
        }
        let handle = match (handle, case.handle) {
            (Some(handle), Handle::Joined) if case.end != End::Stays || case.is_aborted() => {
                case.assert_answer(handle.await);
                None
            }
            (Some(handle), Handle::DroppedLast) => {
                drop_quietly(handle);
                None
            }
            (handle, _) => handle,
        };
        assert_eq!(bystander.await.unwrap(), 10, "{case:?}: the bystander");
        let left = usize::from(counts.future_drops.get() == 0);
        settled("tasks", tasks - 1 + left, || runtime::metrics().tasks).await;
        handle
    });
    drop(runtime);
    if let Some(handle) = handle {
        case.assert_answer(handle.now_or_never().expect("an answer"));
    }
    assert_eq!(
        counts.future_drops.get(),
        1,
        "{case:?}: drops of the future"
    );
    let outputs = usize::from(case.makes_output());
    assert_eq!(counts.outputs.get(), outputs, "{case:?}: outputs");
    assert_eq!(
        counts.output_drops.get(),
        outputs,
        "{case:?}: drops of the output"
    );
    let polls = counts.polls.get();
    let expected = if case.abort == Abort::First {
        0..=0
    } else {
        1..=2
    };
    assert!(expected.contains(&polls), "{case:?}: {polls} polls");
}

/// Returns the handle unless its fate is an early drop.
async fn spawn_and_abort(case: Case, counts: &Counts) -> Option<JoinHandle<Output>> {
    let handle = runtime::spawn(Subject {
        case,
        counts: counts.clone(),
    });
    let abort_early = matches!(case.abort, Abort::First | Abort::Midway);
    if case.abort == Abort::Midway {
        settled("polls", true, || counts.polls.get() > 0).await;
    }
    if abort_early {
        handle.abort();
    }
    if case.abort == Abort::Last {
        let is_over = || match case.end {
            End::Stays => counts.polls.get() > 0,
            End::Finishes | End::Panics => counts.future_drops.get() > 0,
        };
        settled("the end", true, is_over).await;
        handle.abort();
    }
    if case.handle == Handle::DroppedFirst {
        drop_quietly(handle);
        return None;
    }
    Some(handle)
}

async fn count_to_ten() -> usize {
    for _ in 0..10 {
        runtime::yield_now().await;
    }
    10
}

/// The destructor is the subject's, so its panic may come out here.
fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

#[derive(Clone, Default)]
struct Counts {
    polls: Rc<Cell<usize>>,
    future_drops: Rc<Cell<usize>>,
    outputs: Rc<Cell<usize>>,
    output_drops: Rc<Cell<usize>>,
}

fn count(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

struct Subject {
    case: Case,
    counts: Counts,
}

impl Future for Subject {
    type Output = Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        count(&self.counts.polls);
        if self.counts.polls.get() == 1 {
            if self.case.abort != Abort::Midway && self.case.end != End::Stays {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        match self.case.end {
            End::Finishes => {
                count(&self.counts.outputs);
                Poll::Ready(Output {
                    case: self.case,
                    counts: self.counts.clone(),
                })
            }
            End::Panics => panic!("in poll"),
            End::Stays => Poll::Pending,
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        count(&self.counts.future_drops);
        // A panic on top of another one ends the process, and that is the language's rule.
        if self.case.future_drop == OnDrop::Panics && !std::thread::panicking() {
            panic!("in the future's drop");
        }
    }
}

struct Output {
    case: Case,
    counts: Counts,
}

impl Drop for Output {
    fn drop(&mut self) {
        count(&self.counts.output_drops);
        if self.case.output_drop == OnDrop::Panics && !std::thread::panicking() {
            panic!("in the output's drop");
        }
    }
}
