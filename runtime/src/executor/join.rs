//! [`JoinHandle`] and [`JoinError`].

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_task::FallibleTask;

use super::traveller::Ticket;
use super::{Output, Remote, Tag, TaskId};
use crate::context;

/// The end of a spawned task: awaiting it gives the task's output.
///
/// Dropping the handle *detaches* the task, which then runs to its end unobserved. If the output is `Send`, the
/// handle is too and may be awaited on another thread, by any executor.
///
/// # Cancel safety
///
/// Awaiting a `&mut JoinHandle` is cancel safe: a handle that lost a `select!` still gives the output later.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let handle = runtime::spawn(async { 6 * 7 });
/// assert_eq!(handle.await?, 42);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct JoinHandle<T> {
    /// `None` only inside `drop`.
    task: Option<FallibleTask<Output<T>, Tag>>,
    name: Name,
    remote: Arc<Remote>,
}

/// How a handle reaches its task.
pub(super) enum Name {
    Here(TaskId),
    /// It came, or is to come, from another thread.
    Ticket(Arc<Ticket>),
}

impl<T> JoinHandle<T> {
    pub(super) fn new(task: FallibleTask<Output<T>, Tag>, name: Name, remote: Arc<Remote>) -> Self {
        Self {
            task: Some(task),
            name,
            remote,
        }
    }

    /// Why a task that was dropped was dropped.
    fn cause(&self) -> Cause {
        let refusal = match &self.name {
            Name::Here(_) => None,
            Name::Ticket(ticket) => ticket.refusal(),
        };
        refusal.map_or(Cause::Cancelled, Cause::Refused)
    }

    /// Asks the worker to drop the task's future before its next poll.
    ///
    /// A task that has finished by then keeps its output; otherwise awaiting the handle gives an error of which
    /// [`JoinError::is_cancelled`] is true. That happens after the future was dropped, never before.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let handle = runtime::spawn(std::future::pending::<()>());
    /// handle.abort();
    /// assert!(handle.await.unwrap_err().is_cancelled());
    /// # });
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn abort(&self) {
        let id = match &self.name {
            Name::Here(id) => Some(*id),
            Name::Ticket(ticket) => ticket.call_off(),
        };
        if let Some(id) = id {
            context::abort(&self.remote, id);
        }
    }

    /// Whether the task has ended: finished, panicked, or was aborted.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(Err(JoinError(Cause::Cancelled)));
        };
        // The task cell hands a panic of the future over by resuming it here.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(task).poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => {
                let output = output.and_then(|mut output| output.0.take());
                Poll::Ready(output.ok_or_else(|| JoinError(self.cause())))
            }
            Err(panic) => Poll::Ready(Err(JoinError(Cause::Panic(panic)))),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// Why a task gave no output.
pub struct JoinError(Cause);

enum Cause {
    Cancelled,
    /// Its worker could not be started, and why.
    Refused(Arc<str>),
    Panic(Box<dyn Any + Send>),
}

impl JoinError {
    /// Whether the task was aborted, dropped by the shutdown of its runtime, or not started because its worker could
    /// not be. The error's text says which.
    pub fn is_cancelled(&self) -> bool {
        !self.is_panic()
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Cause::Panic(_))
    }

    /// The panic's payload, as [`std::panic::resume_unwind`] takes it.
    ///
    /// # Panics
    ///
    /// If the task did not panic: ask [`is_panic`](Self::is_panic) first.
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.0 {
            Cause::Panic(payload) => payload,
            Cause::Cancelled | Cause::Refused(_) => {
                panic!("JoinError::into_panic: the task was cancelled, it did not panic")
            }
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Cancelled => f.write_str("the task was aborted, or its runtime was shut down"),
            Cause::Refused(reason) => write!(f, "the task's worker could not be started: {reason}"),
            Cause::Panic(payload) => {
                write!(f, "the task panicked: {}", panic_message(payload.as_ref()))
            }
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        // The payload need not be `Sync`, which an `io::Error` asks for; its message is what can travel.
        io::Error::other(error.to_string())
    }
}

/// The text of a panic, as far as it has one.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}
