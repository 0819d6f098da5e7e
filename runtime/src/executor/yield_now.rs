//! [`yield_now`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets the other tasks of this worker, and its I/O and timers, have a turn.
///
/// The task goes to the end of the run queue. A task that only ever yields does not starve sockets or timers: the
/// loop looks at them every 61 polls at the latest.
///
/// # Cancel safety
///
/// Holds nothing.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// for chunk in [1, 2, 3] {
///     let _work = chunk * chunk;
///     runtime::yield_now().await;
/// }
/// # });
/// # Ok::<_, std::io::Error>(())
/// ```
pub async fn yield_now() {
    YieldNow { yielded: false }.await;
}

struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
