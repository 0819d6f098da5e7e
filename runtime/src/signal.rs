//! Signals of the process, as streams.
//!
//! Any number of runtimes and workers may listen, each to whatever signals it likes, beside others of the program who
//! do so by the crate `signal-hook`. Every [`Signal`] hears every signal of its kind.
//!
//! Once somebody has listened to a kind of signal, its default action (ending the process, for most) is off until the
//! process ends, also when nobody listens any more.
//!
//! # Examples
//!
//! ```no_run
//! use futures::StreamExt;
//! use runtime::signal::{Signal, SignalKind};
//!
//! #[runtime::main]
//! async fn main() -> std::io::Result<()> {
//!     let interrupt = Signal::new(SignalKind::interrupt())?;
//!     let terminate = Signal::new(SignalKind::terminate())?;
//!     let mut stop = futures::stream::select(interrupt, terminate);
//!     // … start the server …
//!     stop.next().await;
//!     // … stop it …
//!     Ok(())
//! }
//! ```

use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{pipe, unregister};

use crate::io::AsyncFd;

/// Waits for ctrl-c (SIGINT).
///
/// It listens from its first poll on. A loop that must not miss one keeps a [`Signal`] instead.
///
/// # Cancel safety
///
/// Safe, but a signal that comes while nobody listens is not kept.
///
/// # Errors
///
/// As [`Signal::new`].
///
/// # Examples
///
/// ```no_run
/// # runtime::Builder::new().build()?.block_on(async {
/// runtime::signal::ctrl_c().await?;
/// println!("goodbye");
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub async fn ctrl_c() -> io::Result<()> {
    let mut interrupt = Signal::new(SignalKind::interrupt())?;
    match interrupt.recv().await {
        Some(()) => Ok(()),
        None => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
    }
}

/// Signals of one kind, from the moment on at which this was made.
///
/// Those that come before the last one was taken count as one, as everywhere. The stream ends when its runtime does.
///
/// # Examples
///
/// ```
/// use runtime::signal::{Signal, SignalKind};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let mut hangups = Signal::new(SignalKind::hangup())?;
/// runtime::spawn(async move {
///     while hangups.recv().await.is_some() {
///         println!("reading the configuration again");
///     }
/// });
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct Signal {
    kind: SignalKind,
    id: SigId,
    /// What the signal's handler writes to comes out here. Both ends are this listener's own.
    arrived: AsyncFd<UnixStream>,
}

impl Signal {
    /// Listens to signals of this kind.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a kind that cannot be listened to (SIGKILL, SIGSTOP, SIGILL,
    /// SIGFPE, SIGSEGV, or none at all); otherwise when descriptors have run out. Fails outside a runtime.
    pub fn new(kind: SignalKind) -> io::Result<Self> {
        if FORBIDDEN.contains(&kind.0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("signal {} cannot be listened to", kind.0),
            ));
        }
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        // Nothing waits in a signal handler: what does not fit is a signal that is waiting already.
        let arrived = AsyncFd::new(reader)?;
        let id = pipe::register(kind.0, writer)?;
        Ok(Self { kind, id, arrived })
    }

    /// The next signal. `None` when the runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: a signal is kept until it is returned.
    pub async fn recv(&mut self) -> Option<()> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The poll form of [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut any = false;
        loop {
            let mut ready = match self.arrived.poll_read_ready(cx) {
                Poll::Ready(Ok(ready)) => ready,
                // All that have come are taken, and count as one.
                Poll::Pending if any => return Poll::Ready(Some(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(any.then_some(())),
            };
            match ready.try_io(|mut reader| reader.read(&mut [0; 64])) {
                Ok(Ok(0) | Err(_)) => return Poll::Ready(any.then_some(())),
                Ok(Ok(_)) => any = true,
                Err(_) => {}
            }
        }
    }
}

impl Stream for Signal {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        Poll::Ready(ready!(self.poll_recv(cx)))
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        unregister(self.id);
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("Signal").field("kind", &self.kind)).finish_non_exhaustive()
    }
}

/// What a [`Signal`] listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

impl SignalKind {
    /// By number, as the system has it.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// SIGINT: ctrl-c.
    pub const fn interrupt() -> Self {
        Self(libc::SIGINT)
    }

    /// SIGTERM: a request to end, as service managers and containers send it.
    pub const fn terminate() -> Self {
        Self(libc::SIGTERM)
    }

    /// SIGHUP: the terminal is gone; to a daemon, a request to read its configuration again.
    pub const fn hangup() -> Self {
        Self(libc::SIGHUP)
    }

    /// SIGQUIT: ctrl-\.
    pub const fn quit() -> Self {
        Self(libc::SIGQUIT)
    }

    /// SIGUSR1.
    pub const fn user_defined1() -> Self {
        Self(libc::SIGUSR1)
    }

    /// SIGUSR2.
    pub const fn user_defined2() -> Self {
        Self(libc::SIGUSR2)
    }

    /// SIGCHLD: a child process has stopped or ended.
    pub const fn child() -> Self {
        Self(libc::SIGCHLD)
    }

    /// SIGWINCH: the terminal has another size.
    pub const fn window_change() -> Self {
        Self(libc::SIGWINCH)
    }
}
