//! Futures that are given up half-way.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::Poll;

use crate::Rng;

/// How long a future is polled, and how it ends if it is not ready by then.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Polls before it is given up; 0 drops it without any.
    pub polls: usize,
    /// Leak it instead of dropping it: no destructor runs.
    pub forget: bool,
}

impl Fate {
    /// Never, once, or several times; one in eight is forgotten.
    pub fn random(rng: &mut Rng) -> Self {
        let polls = match rng.below(8) {
            0 => 0,
            1..=4 => 1,
            5..=6 => 2 + rng.below(8),
            _ => 20 + rng.below(80),
        };
        Self {
            polls,
            forget: rng.one_in(8),
        }
    }

    /// The same without `mem::forget`, for futures that own what would then leak by right.
    pub fn dropped(rng: &mut Rng) -> Self {
        Self {
            forget: false,
            ..Self::random(rng)
        }
    }
}

/// Polls `future` as its fate says, one turn of the run queue after each poll, then gives it up.
pub async fn partial<F: Future>(fate: Fate, future: F) -> Option<F::Output> {
    // On the heap, because a forgotten future must keep its place.
    let mut future = Box::pin(future);
    let mut output = None;
    for _ in 0..fate.polls {
        if let Poll::Ready(value) = poll_once(future.as_mut()).await {
            output = Some(value);
            break;
        }
        runtime::yield_now().await;
    }
    if output.is_none() && fate.forget {
        // Still to be reached from a static, so that a leak checker reports no leaks but those of the product.
        let address = std::ptr::from_ref(&*future).cast::<()>().addr();
        FORGOTTEN.lock().unwrap().push(address);
        mem::forget(future);
    }
    output
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// The addresses of all futures that were forgotten.
static FORGOTTEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
