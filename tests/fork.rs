//! A child that is forked and does not start another program has a copy of the runtime (B51). It is told that it
//! cannot use it, and whatever it does with it, its parent notices nothing.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpStream as Peer;
use std::os::fd::FromRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use net::{TcpListener, TcpStream};
use runtime::{Builder, Runtime};
use support::{Alone, settled};

const STREAMS: usize = 100;

/// B51.
#[test]
fn a_forked_child_may_drop_everything_and_disturbs_nobody() {
    let _alone = alone("a child that drops everything");
    let runtime = build();
    let mut held = Some(runtime.block_on(Connections::open()));
    let mut runtime = Some(runtime);
    let child = Child::fork(|| {
        drop(held.take());
        drop(runtime.take());
        Ok(())
    });
    child.assert_content();
    let runtime = runtime.unwrap();
    runtime.block_on(held.as_mut().unwrap().use_all());
}

/// B51: the other order, and nothing but the runtime itself.
#[test]
fn a_forked_child_may_drop_the_runtime_before_its_sockets() {
    let _alone = alone("a child that drops the runtime first");
    let runtime = build();
    let mut held = Some(runtime.block_on(Connections::open()));
    let mut runtime = Some(runtime);
    let child = Child::fork(|| {
        drop(runtime.take());
        drop(held.take());
        Ok(())
    });
    child.assert_content();
    runtime.unwrap().block_on(held.as_mut().unwrap().use_all());
}

/// B51.
#[test]
fn a_block_on_in_a_forked_child_panics_with_the_cure() {
    let _alone = alone("a child that blocks on");
    let runtime = build();
    let mut held = runtime.block_on(Connections::open());
    let child = Child::fork(|| {
        let message = panic_of(|| runtime.block_on(async {}));
        is_the_cure(&message)
    });
    child.assert_content();
    runtime.block_on(held.use_all());
}

/// B51: the child has the memory of other workers, and none of their threads.
#[test]
fn a_forked_child_has_no_workers_and_does_not_wait_for_them() {
    let _alone = alone("a child without workers");
    let runtime = Builder::new().workers(3).build().unwrap();
    let answers = |runtime: &Runtime| {
        let tasks = runtime
            .handle()
            .spawn_on_each(|worker| async move { worker });
        runtime
            .block_on(futures::future::try_join_all(tasks))
            .unwrap()
    };
    assert_eq!(answers(&runtime), [0, 1, 2]);
    let mut held = Some(runtime);
    let child = Child::fork(|| {
        let handle = held.as_ref().unwrap().handle();
        for worker in 0..3 {
            is_the_cure(&panic_of(|| {
                drop(handle.spawn_on(worker, std::future::pending::<()>));
            }))?;
        }
        handle.shutdown();
        drop(held.take());
        Ok(())
    });
    child.assert_content();
    assert_eq!(answers(held.as_ref().unwrap()), [0, 1, 2]);
}

/// B51: nor the thread that watches over slow polls, which must not be waited for.
#[test]
fn a_forked_child_has_no_watchdog_and_does_not_wait_for_it() {
    let _alone = alone("a child without a watchdog");
    let runtime = Builder::new()
        .slow_poll_threshold(Duration::from_millis(50))
        .build()
        .unwrap();
    let mut held = Some(runtime);
    let child = Child::fork(|| {
        drop(held.take());
        Ok(())
    });
    child.assert_content();
    let runtime = held.unwrap();
    runtime.block_on(async { thread::sleep(Duration::from_millis(100)) });
    assert_eq!(runtime.handle().metrics(0).slow_polls, 1);
}

/// B51: what another executor asks of the sockets is refused, and the parent's peers see nothing of it.
#[test]
fn sockets_in_a_forked_child_are_inert() {
    let _alone = alone("a child that uses sockets");
    let runtime = build();
    let mut held = runtime.block_on(Connections::open());
    let child = Child::fork(|| {
        let cancelled = |result: io::Result<usize>| match result {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Ok(()),
            other => Err(format!("{other:?}")),
        };
        let (whole, halves) = (&mut held.whole, &mut held.halves);
        for (stream, _) in whole {
            cancelled(block_on(stream.write(b"from the child")))?;
            cancelled(block_on(stream.read(&mut [0])))?;
        }
        for (reader, writer, _) in halves {
            cancelled(block_on(writer.write(b"from the child")))?;
            cancelled(block_on(reader.read(&mut [0])))?;
        }
        let accepted = block_on(held.listener.accept());
        cancelled(accepted.map(|_| 0))
    });
    child.assert_content();
    runtime.block_on(held.use_all());
}

/// B51: the runtime's code is on the child's stack, and another task is ready. It shall run once, in the parent.
#[test]
fn a_child_that_a_task_forks_goes_on_with_no_other_task() {
    let _alone = alone("a task that forks");
    let runtime = build();
    let mut held = Some(runtime.block_on(Connections::open()));
    let (mut polled, polls) = pipe();
    let forked = Cell::new(None);
    let here = std::process::id();
    let result = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let task = runtime::spawn({
                let mut polls = polls.try_clone().unwrap();
                async move { polls.write_all(b"polled").unwrap() }
            });
            forked.set(Child::fork_here());
            task.await.unwrap();
        });
    }));
    if std::process::id() != here {
        Child::end(|| {
            let message = message_of(result.err().ok_or("the child went on")?);
            drop(held.take());
            drop(runtime);
            is_the_cure(&message)
        });
    }
    result.unwrap();
    forked.take().unwrap().assert_content();
    runtime.block_on(held.unwrap().use_all());
    drop(polls);
    let mut told = String::new();
    polled.read_to_string(&mut told).unwrap();
    assert_eq!(told, "polled", "once, and by the parent");
}

/// B51: the cure.
#[test]
fn a_forked_child_may_build_a_runtime_of_its_own() {
    let _alone = alone("a child with its own runtime");
    let runtime = build();
    let mut held = Some(runtime.block_on(Connections::open()));
    let in_child = || {
        let own = build();
        let mut connections = own.block_on(Connections::open());
        own.block_on(connections.use_all());
        drop(connections);
        // A child of the child knows the runtimes of both from its own.
        let grandchild = Child::fork(|| {
            is_the_cure(&panic_of(|| own.block_on(async {})))?;
            is_the_cure(&panic_of(|| runtime.block_on(async {})))?;
            build().block_on(async { runtime::yield_now().await });
            Ok(())
        });
        grandchild.assert_content();
        drop(held.take());
        own.block_on(async { runtime::yield_now().await });
        Ok(())
    };
    Child::fork(in_child).assert_content();
    runtime.block_on(async {
        // Also while the parent's is on the stack.
        let child = Child::fork(|| {
            build().block_on(async { runtime::yield_now().await });
            Ok(())
        });
        child.assert_content();
    });
    runtime.block_on(held.unwrap().use_all());
}

/// B51: `exit` runs the destructors of thread-locals, the runtime's among them.
#[test]
fn a_forked_child_may_exit_with_a_runtime_in_a_thread_local() {
    thread_local! {
        static RUNTIME: Runtime = build();
    }
    let _alone = alone("a child that exits");
    let work = || {
        let mut held = RUNTIME.with(|runtime| runtime.block_on(Connections::open()));
        let Some(child) = Child::fork_here() else {
            // SAFETY: no other thread is there, and what `exit` runs is what is to be tested.
            unsafe { libc::exit(0) };
        };
        child.assert_content();
        RUNTIME.with(|runtime| runtime.block_on(held.use_all()));
    };
    // A thread of its own, which ends, with its runtime, before the next test counts descriptors.
    thread::spawn(work).join().unwrap();
}

/// B51: a program that is started inherits nothing.
#[test]
fn no_descriptor_of_ours_survives_exec() {
    let _alone = alone("descriptors across exec");
    let numbers = || -> Vec<i32> {
        (fs::read_dir("/proc/self/fd").unwrap())
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect()
    };
    let before = numbers();
    let runtime = build();
    runtime.block_on(async {
        let mut connections = Connections::open().await;
        connections.use_all().await;
        let connected = TcpStream::connect(connections.listener.local_addr().unwrap());
        let _connected = connected.await.unwrap();
        runtime::spawn_blocking(|| ()).await.unwrap();
        // The peers are from `std`, which closes its own as well.
        let ours = numbers().into_iter().filter(|fd| !before.contains(fd));
        let mut seen = 0;
        for fd in ours {
            // SAFETY: takes plain numbers, and only reads the descriptor's flags.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            // Negative: the directory that was read.
            assert!(
                flags < 0 || flags & libc::FD_CLOEXEC != 0,
                "descriptor {fd}"
            );
            seen += 1;
        }
        assert!(seen > 2 * STREAMS, "{seen} descriptors");
    });
}

/// A listener that accepts, and connections with armed receives: half of them whole, half of them split.
struct Connections {
    listener: TcpListener,
    whole: Vec<(TcpStream, Peer)>,
    halves: Vec<(OwnedReadHalf, OwnedWriteHalf, Peer)>,
}

impl Connections {
    async fn open() -> Self {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut whole, mut halves) = (Vec::new(), Vec::new());
        for index in 0..STREAMS {
            let (stream, peer) = support::pair(&listener).await;
            // Arms the receive.
            assert!(stream.try_read(&mut [0]).is_err());
            if index % 2 == 0 {
                whole.push((stream, peer));
            } else {
                let (reader, writer) = stream.into_split();
                halves.push((reader, writer, peer));
            }
        }
        settled("receives are armed", true, || {
            runtime::metrics().ops > STREAMS
        })
        .await;
        Self {
            listener,
            whole,
            halves,
        }
    }

    /// Bytes cross every connection in both directions, and a new one is accepted.
    async fn use_all(&mut self) {
        for (stream, peer) in &mut self.whole {
            peer.write_all(b"ping").unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
            stream.flush().await.unwrap();
            expect_pong(peer).await;
        }
        for (reader, writer, peer) in &mut self.halves {
            peer.write_all(b"ping").unwrap();
            reader.read_exact(&mut [0; 4]).await.unwrap();
            writer.write_all(b"pong").await.unwrap();
            expect_pong(peer).await;
        }
        let _ = support::pair(&self.listener).await;
    }
}

async fn expect_pong(peer: &mut Peer) {
    peer.set_nonblocking(true).unwrap();
    let mut answer = [0; 100];
    settled("an answer", Some(4), || peer.read(&mut answer).ok()).await;
    peer.set_nonblocking(false).unwrap();
    assert_eq!(&answer[..4], b"pong");
}

/// A forked child, seen from its parent.
struct Child(libc::pid_t);

type Verdict = Result<(), String>;

impl Child {
    /// Forks; the child says what it thinks and ends.
    fn fork(in_child: impl FnOnce() -> Verdict) -> Self {
        match Self::fork_here() {
            Some(child) => child,
            None => Self::end(in_child),
        }
    }

    /// Forks like `fork(2)`: `None` in the child.
    fn fork_here() -> Option<Self> {
        // SAFETY: the child runs on in this thread, which holds no lock; the C library's allocator allows it.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes a number; the signal ends a child that hangs.
                unsafe { libc::alarm(50) };
                None
            }
            child => {
                assert!(child > 0, "{}", io::Error::last_os_error());
                Some(Self(child))
            }
        }
    }

    /// In the child: its end.
    fn end(verdict: impl FnOnce() -> Verdict) -> ! {
        let verdict = catch_unwind(AssertUnwindSafe(verdict));
        let verdict = verdict.unwrap_or_else(|panic| Err(message_of(panic)));
        if let Err(message) = &verdict {
            let _ = writeln!(io::stderr(), "in the child: {message}");
        }
        // SAFETY: ends this process only; nobody relies on its destructors.
        unsafe { libc::_exit(i32::from(verdict.is_err())) }
    }

    fn assert_content(self) {
        let mut status = -1;
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0);
        assert!(
            libc::WIFEXITED(status),
            "the child died of signal {}",
            libc::WTERMSIG(status)
        );
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child's verdict");
    }
}

fn panic_of(f: impl FnOnce()) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => "no panic".to_owned(),
        Err(panic) => message_of(panic),
    }
}

fn message_of(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| "a panic".to_owned(), |message| message.to_string()),
    }
}

fn is_the_cure(message: &str) -> Verdict {
    let names = message.contains("forked") && message.contains("build a new runtime in the child");
    names.then_some(()).ok_or_else(|| message.to_owned())
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills two numbers, which outlive the call.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    // SAFETY: new descriptors that nobody else owns.
    ends.map(|fd| unsafe { File::from_raw_fd(fd) }).into()
}

fn build() -> Runtime {
    Builder::new().build().unwrap()
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}
