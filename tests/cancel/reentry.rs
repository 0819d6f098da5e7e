//! Wakers and destructors are the user's code, and may call us back from wherever we run them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncRead, AsyncReadExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::time::{sleep, timeout};
use support::settled;

use crate::{listen, run, wait_for_end};

const ROUNDS: usize = 200;

/// B05.
#[test]
fn a_waker_may_spawn_drop_a_stream_and_start_a_timer() {
    run("a waker that calls back", Builder::new(), async |_| {
        let listener = listen().await;
        for round in 0..ROUNDS {
            let (mut stream, mut peer) = support::pair(&listener).await;
            let (mut victim, mut victim_peer) = support::pair(&listener).await;
            // Its receive is in flight when the waker drops it.
            let waiting = timeout(Duration::ZERO, victim.read(&mut [0])).await;
            assert!(waiting.is_err(), "nothing was sent");
            VICTIM.set(Some(victim));

            let calls_before = CALLS.get();
            let woken = Arc::new(CallingBack::default());
            let mut buf = [0];
            poll_fn(|cx| {
                *woken.outer.lock().unwrap() = Some(cx.waker().clone());
                let waker = Waker::from(woken.clone());
                let mut inner = Context::from_waker(&waker);
                if woken.count.load(Ordering::Relaxed) == 0 {
                    assert!(
                        Pin::new(&mut stream)
                            .poll_read(&mut inner, &mut buf)
                            .is_pending()
                    );
                    peer.write_all(&[round as u8]).unwrap();
                    return Poll::Pending;
                }
                Pin::new(&mut stream).poll_read(&mut inner, &mut buf)
            })
            .await
            .unwrap();
            assert_eq!(buf, [round as u8]);
            wait_for_end(&mut victim_peer).await;
            settled("calls of what was spawned", calls_before + 1, || {
                CALLS.get()
            })
            .await;
        }
    });
}

/// B05: five connections arrive in one turn, and the first wakes a task whose waker drops the listener: the others have
/// been accepted already, for nobody.
#[test]
fn a_waker_may_drop_the_listener_that_wakes_it() {
    run(
        "a waker that drops the listener",
        Builder::new(),
        async |_| {
            for _ in 0..ROUNDS {
                let listener = listen().await;
                let woken = Arc::new(CallingBack::default());
                let waker = Waker::from(woken.clone());
                let mut cx = Context::from_waker(&waker);
                assert!(listener.poll_accept(&mut cx).is_pending());
                runtime::yield_now().await;
                let mut peers = support::connect_many(listener.local_addr().unwrap(), 5);
                LISTENER.set(Some(listener));
                for peer in &mut peers {
                    wait_for_end(peer).await;
                }
                assert!(LISTENER.take().is_none(), "the waker was called");
            }
        },
    );
}

/// B05.
#[test]
fn the_destructor_of_a_sent_buffer_may_spawn_and_drop_a_stream() {
    run("a destructor that calls back", Builder::new(), async |_| {
        let listener = listen().await;
        for _ in 0..ROUNDS {
            let (mut stream, mut peer) = support::pair(&listener).await;
            let (victim, mut victim_peer) = support::pair(&listener).await;
            VICTIM.set(Some(victim));
            let calls_before = CALLS.get();
            stream
                .send(Bytes::from_owner(Owner(vec![7; 1000])))
                .await
                .unwrap();
            settled("calls of what was spawned", calls_before + 1, || {
                CALLS.get()
            })
            .await;
            wait_for_end(&mut victim_peer).await;
            peer.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
        }
    });
}

thread_local! {
    static VICTIM: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
    static LISTENER: RefCell<Option<TcpListener>> = const { RefCell::new(None) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Everything that may touch the driver, the executor and the clock.
fn call_back() {
    drop((VICTIM.take(), LISTENER.take()));
    runtime::spawn(async {
        sleep(Duration::from_micros(10)).await;
        CALLS.set(CALLS.get() + 1);
    });
    assert!(runtime::metrics().tasks > 0);
}

#[derive(Default)]
struct CallingBack {
    count: AtomicUsize,
    outer: std::sync::Mutex<Option<Waker>>,
}

impl Wake for CallingBack {
    fn wake(self: Arc<Self>) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            call_back();
        }
        if let Some(outer) = self.outer.lock().unwrap().take() {
            outer.wake();
        }
    }
}

struct Owner(Vec<u8>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        call_back();
    }
}
