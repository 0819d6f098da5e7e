//! How streams and runtimes end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use runtime::io::{AcceptStream, Inbox, Outbox, Socket, connect};
use runtime::time::sleep;
use runtime::{Backend, Builder, Runtime};
use socket2::{Domain, Type};
use support::{Blackhole, Child, Parent};

use crate::{PROMPT, SOME_TURNS, alone, inbox};

const ROUNDS: usize = 2_000;

#[test]
fn the_last_write_of_a_dropped_stream_is_given_up_after_the_linger() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let _alone = alone("a full socket");
        let builder = Builder::new().backend(backend);
        let runtime = builder.linger(Duration::from_millis(200)).build().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0]).is_ok() {}
        near.set_nonblocking(false).unwrap();
        let start = Instant::now();
        runtime.block_on(async {
            let outbox = Outbox::new(Socket::new(near).unwrap());
            assert_eq!(outbox.try_write(b"last words").unwrap(), 10);
        });
        // It slept meanwhile.
        let enters = runtime.block_on(async { runtime::metrics().enters });
        assert!(enters < 100, "{enters} enters with nothing to do");
        drop(runtime);
        let took = start.elapsed();
        assert!(took < PROMPT, "the end took {took:?}");
    }
}

/// The kernel said long ago that there is no room, and has nothing to say since.
#[test]
fn a_stream_that_was_stuck_when_it_was_dropped_is_given_up_after_the_linger() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let _alone = alone("a stuck stream");
        let builder = Builder::new().backend(backend);
        let runtime = builder.linger(Duration::from_millis(200)).build().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let start = runtime.block_on(async {
            let outbox = Outbox::new(Socket::new(near).unwrap());
            for _ in 0..SOME_TURNS {
                while outbox.try_write(&[7; 4096]).is_ok() {}
                runtime::yield_now().await;
            }
            sleep(Duration::from_millis(20)).await;
            Instant::now()
        });
        drop(runtime);
        let took = start.elapsed();
        assert!(took < PROMPT, "the end took {took:?}");
    }
}

/// The runtime stays, and nobody drives it afterwards.
#[test]
fn block_on_does_not_return_before_everything_that_was_written_is_out() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let _alone = alone("the bytes of a runtime that is not driven");
        let runtime = Builder::new().backend(backend).build().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let _held = runtime.block_on(async {
            let outbox = Outbox::new(Socket::new(near).unwrap());
            assert_eq!(outbox.try_write(b"a word").unwrap(), 6);
            outbox
        });
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0; 10]).unwrap(), 6);

        let (near, mut far) = UnixStream::pair().unwrap();
        let (go, gone) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            gone.recv().unwrap();
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        let mut written = 0;
        runtime.block_on(async {
            let outbox = Outbox::new(Socket::new(near).unwrap());
            for _ in 0..SOME_TURNS {
                while let Ok(len) = outbox.try_write(&[7; 4096]) {
                    written += len;
                }
                runtime::yield_now().await;
            }
            drop(outbox);
            go.send(()).unwrap();
        });
        assert_eq!(reader.join().unwrap(), written);
        drop(runtime);
    }
}

/// In a child: a panic in the destructor of a thread-local aborts.
#[test]
fn a_runtime_in_a_thread_local_ends_with_its_thread() {
    const NAME: &str = "ends::a_runtime_in_a_thread_local_ends_with_its_thread";
    thread_local! {
        static EARLY: RefCell<Option<(Runtime, Inbox)>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<(Runtime, Inbox)>> = const { RefCell::new(None) };
    }
    let _alone = alone("a thread-local runtime");
    if Parent::in_child(NAME).is_none() {
        return Child::start(NAME).finish();
    }
    let build = || {
        let runtime = Builder::new().build().unwrap();
        let (inbox, _peer) = runtime.block_on(async {
            runtime::spawn(std::future::pending::<()>());
            let (inbox, peer) = inbox();
            assert!(inbox.try_read(&mut [0]).is_err());
            runtime::yield_now().await;
            (inbox, peer)
        });
        (runtime, inbox)
    };
    let body = move || {
        // Before and after the runtime's own thread-locals exist, as destructors run in some order of birth.
        EARLY.with(|_| ());
        EARLY.set(Some(build()));
        LATE.set(Some(build()));
    };
    thread::spawn(body).join().unwrap();
}

/// The same, in the simplest program.
#[test]
fn an_idle_runtime_in_a_thread_local_ends_with_its_thread() {
    const NAME: &str = "ends::an_idle_runtime_in_a_thread_local_ends_with_its_thread";
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    let _alone = alone("an idle thread-local runtime");
    if Parent::in_child(NAME).is_none() {
        return Child::start(NAME).finish();
    }
    let body = || {
        RUNTIME.with_borrow_mut(|slot| {
            let runtime = slot.insert(Builder::new().build().unwrap());
            runtime.block_on(async {});
        });
    };
    thread::spawn(body).join().unwrap();
}

#[test]
fn a_stream_of_a_runtime_that_is_gone_fails_each_time_and_never_spins() {
    let _alone = alone("a runtime that is gone");
    for armed in [false, true] {
        for peer_is_gone in [false, true] {
            let runtime = Builder::new().build().unwrap();
            let (inbox, peer) = runtime.block_on(async { inbox() });
            if armed {
                runtime.block_on(async {
                    assert!(inbox.try_read(&mut [0]).is_err());
                    runtime::yield_now().await;
                });
            }
            drop(runtime);
            // Not before: what arrives before the end is told after it.
            let _peer = (!peer_is_gone).then_some(peer);
            for _ in 0..1_000 {
                let mut buf = [0; 8];
                let read = poll_fn(|cx| inbox.poll_read(cx, &mut buf));
                let error = futures::executor::block_on(read).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                let error = inbox.try_read(&mut buf).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            }
        }
    }
}

/// Nobody is left to tell it of the end of the handshake.
#[test]
fn a_connect_on_a_runtime_that_is_gone_fails() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let _alone = alone("a connect without a runtime");
        let blackhole = Blackhole::new();
        let runtime = Builder::new().backend(backend).build().unwrap();
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let socket = runtime.block_on(async { Socket::new(socket).unwrap() });
        drop(runtime);
        let address = blackhole.addr().into();
        let error = futures::executor::block_on(connect(&socket, &address)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }
}

#[test]
fn an_accept_on_a_runtime_that_is_gone_fails() {
    for backend in [Backend::Auto, Backend::Epoll] {
        for armed in [false, true] {
            let _alone = alone("an accept without a runtime");
            let runtime = Builder::new().backend(backend).build().unwrap();
            let listener = std::net::TcpListener::bind(support::loopback()).unwrap();
            let connections = runtime.block_on(async {
                let connections = AcceptStream::new(Socket::new(listener).unwrap());
                if armed {
                    let error = connections.try_accept().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                }
                connections
            });
            drop(runtime);
            for _ in 0..1_000 {
                let accept = poll_fn(|cx| connections.poll_accept(cx));
                let error = futures::executor::block_on(accept).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
                let error = connections.try_accept().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
            }
        }
    }
}

/// In a child: what goes wrong there aborts. A signal stalls the waking thread somewhere while the runtime is dropped.
#[test]
fn wakes_from_another_thread_race_with_the_end_of_the_runtime() {
    const NAME: &str = "ends::wakes_from_another_thread_race_with_the_end_of_the_runtime";
    let _alone = alone("wakes at the end");
    if Parent::in_child(NAME).is_none() {
        return Child::start(NAME).finish();
    }
    let wakers = Arc::<Mutex<Vec<Waker>>>::default();
    let stop = Arc::new(AtomicBool::new(false));
    // More threads than most machines have cores, so that some of them stand still in the middle of a wake.
    let wake_all = {
        let (wakers, stop) = (Arc::clone(&wakers), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                let some = wakers.lock().unwrap().clone();
                for _ in 0..100 {
                    some.iter().for_each(Waker::wake_by_ref);
                }
            }
        }
    };
    let waking: Vec<_> = (0..4).map(|_| thread::spawn(wake_all.clone())).collect();
    for round in 0..support::rounds(ROUNDS) {
        let backend = [Backend::Auto, Backend::Epoll][round % 2];
        let runtime = Builder::new().backend(backend).build().unwrap();
        runtime.block_on(async {
            for _ in 0..8 {
                let wakers = Arc::clone(&wakers);
                let mut known = false;
                runtime::spawn(poll_fn(move |cx| {
                    if !std::mem::replace(&mut known, true) {
                        wakers.lock().unwrap().push(cx.waker().clone());
                    }
                    Poll::<()>::Pending
                }));
            }
            for _ in 0..20 + round % 50 {
                runtime::yield_now().await;
            }
            stall::interrupt(&waking[round % waking.len()]);
            // The signal arrives, while the tasks that the others woke still run.
            for _ in 0..8 {
                runtime::yield_now().await;
            }
        });
        drop(runtime);
        wakers.lock().unwrap().clear();
    }
    stop.store(true, Ordering::Relaxed);
    for thread in waking {
        thread.join().unwrap();
    }
}

/// A signal whose handler takes its time.
mod stall {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::Once;
    use std::thread::JoinHandle;

    pub fn interrupt(thread: &JoinHandle<()>) {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: the handler only sleeps, which is safe in a handler.
            let old = unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
            assert_ne!(old, libc::SIG_ERR);
        });
        // SAFETY: the handle is not joined yet, so the thread's id is its own.
        let result = unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(result, 0);
    }

    extern "C" fn handler(_: libc::c_int) {
        let stall = libc::timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        // SAFETY: `stall` outlives the call, and the rest is not asked for.
        unsafe { libc::nanosleep(&stall, std::ptr::null_mut()) };
    }
}
