//! `AsyncFd` on each kind of descriptor that programs watch.

use std::cell::Cell;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::FutureExt;
use runtime::io::AsyncFd;

use crate::{run, some_turns};

#[test]
fn a_pipe_is_readable_until_a_read_finds_it_empty() {
    run("a pipe", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        set_nonblocking(&reader);
        let reader = AsyncFd::new(reader).unwrap();
        assert!(reader.readable().now_or_never().is_none());
        some_turns().await;
        assert!(reader.readable().now_or_never().is_none());
        for round in 0..100_u8 {
            writer.write_all(&[round, round]).unwrap();
            // The readiness stays until it is cleared, however often it is asked for.
            for _ in 0..3 {
                reader.readable().await.unwrap();
            }
            for _ in 0..2 {
                let mut byte = [0];
                let mut ready = reader.readable().await.unwrap();
                let n = ready
                    .try_io(|mut pipe| pipe.read(&mut byte))
                    .unwrap()
                    .unwrap();
                assert_eq!((n, byte), (1, [round]));
            }
            let mut ready = reader.readable().await.unwrap();
            assert!(ready.try_io(|mut pipe| pipe.read(&mut [0])).is_err());
            assert!(reader.readable().now_or_never().is_none());
        }
    });
}

/// What arrives between the try that found nothing and the next wait is not lost.
#[test]
fn news_between_a_failed_try_and_the_next_wait_are_seen() {
    run("news in between", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        set_nonblocking(&reader);
        let reader = AsyncFd::new(reader).unwrap();
        for round in 0..1_000 {
            writer.write_all(&[1]).unwrap();
            loop {
                let mut ready = reader.readable().await.unwrap();
                if ready.try_io(|mut pipe| pipe.read(&mut [0])).is_ok() {
                    break;
                }
            }
            let mut ready = reader.readable().await.unwrap();
            let early = round % 2 == 0;
            let tried = ready.try_io(|mut pipe| {
                let read = pipe.read(&mut [0]);
                if early {
                    writer.write_all(&[2]).unwrap();
                }
                read
            });
            assert!(tried.is_err());
            if !early {
                writer.write_all(&[2]).unwrap();
            }
            let mut byte = [0];
            loop {
                let mut ready = reader.readable().await.unwrap();
                if ready.try_io(|mut pipe| pipe.read(&mut byte)).is_ok() {
                    break;
                }
            }
            assert_eq!(byte, [2]);
        }
    });
}

#[test]
fn an_error_that_is_not_would_block_keeps_the_readiness() {
    run("other errors", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        writer.write_all(b"x").unwrap();
        let mut ready = reader.readable().await.unwrap();
        let error = ready.try_io(|_| Err::<(), _>(ErrorKind::Interrupted.into()));
        assert_eq!(error.unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
        assert!(reader.readable().now_or_never().is_some());
    });
}

/// B50: an eventfd is polled and then read in whole.
#[test]
fn an_eventfd_is_readable_after_each_write() {
    run("an eventfd", async || {
        let event = AsyncFd::new(eventfd()).unwrap();
        assert!(event.readable().now_or_never().is_none());
        for round in 1..=100_u64 {
            write_event(event.get_ref(), round);
            let value = loop {
                let mut ready = event.readable().await.unwrap();
                match ready.try_io(read_number) {
                    Ok(value) => break value.unwrap(),
                    Err(_would_block) => continue,
                }
            };
            assert_eq!(value, round);
            // A counter that is not at its maximum can be added to.
            event.writable().await.unwrap();
        }
    });
}

#[test]
fn a_timerfd_is_readable_when_it_expires() {
    const DELAY: Duration = Duration::from_millis(20);
    run("a timerfd", async || {
        let timer = AsyncFd::new(timerfd()).unwrap();
        for _ in 0..3 {
            let start = Instant::now();
            set_timer(timer.get_ref(), DELAY);
            let expirations = loop {
                let mut ready = timer.readable().await.unwrap();
                match ready.try_io(read_number) {
                    Ok(value) => break value.unwrap(),
                    Err(_would_block) => continue,
                }
            };
            assert_eq!(expirations, 1);
            assert!(start.elapsed() >= DELAY, "{:?}", start.elapsed());
        }
    });
}

#[test]
fn a_datagram_socket_is_readable_for_each_datagram_and_writable_when_there_is_room() {
    run("datagrams", async || {
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let near = AsyncFd::new(near).unwrap();
        let far = AsyncFd::new(far).unwrap();
        let mut sent = 0_u32;
        loop {
            let mut ready = near.writable().await.unwrap();
            match ready.try_io(|near| near.send(&sent.to_ne_bytes())) {
                Ok(len) => assert_eq!(len.unwrap(), 4),
                Err(_would_block) => break,
            }
            sent += 1;
        }
        assert!(sent > 1);
        assert!(near.writable().now_or_never().is_none());
        for expected in 0..sent {
            let mut datagram = [0; 4];
            let mut ready = far.readable().await.unwrap();
            let len = ready
                .try_io(|far| far.recv(&mut datagram))
                .unwrap()
                .unwrap();
            assert_eq!((len, u32::from_ne_bytes(datagram)), (4, expected));
        }
        let mut ready = far.readable().await.unwrap();
        assert!(ready.try_io(|far| far.recv(&mut [0])).is_err());
        near.writable().await.unwrap();
    });
}

/// A regular file cannot be waited for, because there is nothing to wait for.
#[test]
fn a_regular_file_is_always_ready() {
    run("a regular file", async || {
        let file = AsyncFd::new(File::open("/proc/self/exe").unwrap()).unwrap();
        for _ in 0..3 {
            let mut magic = [0; 4];
            let mut ready = file.readable().await.unwrap();
            let read = ready.try_io(|mut file| {
                io::Seek::rewind(&mut file)?;
                file.read_exact(&mut magic)
            });
            read.unwrap().unwrap();
            assert_eq!(&magic, b"\x7fELF");
            ready.clear_ready();
            file.writable().await.unwrap();
        }
    });
}

/// One task reads and one writes: each hears of its own direction.
#[test]
fn two_tasks_on_two_directions_are_woken_each_for_its_own() {
    run("two directions", async || {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let socket = Rc::new(AsyncFd::new(socket).unwrap());
        let stuck_at = fill(&socket).await;
        assert!(stuck_at > 0);
        let polls = Rc::new([Cell::new(0), Cell::new(0)]);
        let reading = runtime::spawn({
            let (socket, polls) = (Rc::clone(&socket), Rc::clone(&polls));
            async move {
                poll_fn(|cx| {
                    polls[0].set(polls[0].get() + 1);
                    socket.poll_read_ready(cx).map(|ready| ready.map(drop))
                })
                .await
            }
        });
        let writing = runtime::spawn({
            let (socket, polls) = (Rc::clone(&socket), Rc::clone(&polls));
            async move {
                poll_fn(|cx| {
                    polls[1].set(polls[1].get() + 1);
                    socket.poll_write_ready(cx).map(|ready| ready.map(drop))
                })
                .await
            }
        });
        some_turns().await;
        assert_eq!([polls[0].get(), polls[1].get()], [1, 1]);

        peer.write_all(b"x").unwrap();
        reading.await.unwrap().unwrap();
        some_turns().await;
        assert!(!writing.is_finished());
        assert_eq!(polls[1].get(), 1, "a writer was woken by bytes to read");

        while peer.read(&mut [0; 4096]).is_ok() {}
        writing.await.unwrap().unwrap();
    });
}

/// Two tasks wait for the same direction: both hear of it.
#[test]
fn two_tasks_on_one_direction_are_both_woken() {
    run("one direction", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Rc::new(AsyncFd::new(reader).unwrap());
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let reader = Rc::clone(&reader);
                runtime::spawn(async move { reader.readable().await.map(drop) })
            })
            .collect();
        some_turns().await;
        writer.write_all(b"x").unwrap();
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_wait_that_is_dropped_loses_no_news() {
    run("dropped waits", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        set_nonblocking(&reader);
        let reader = AsyncFd::new(reader).unwrap();
        for round in 0..100 {
            assert!(reader.readable().now_or_never().is_none());
            if round % 2 == 0 {
                some_turns().await;
            }
            writer.write_all(b"x").unwrap();
            if round % 3 == 0 {
                some_turns().await;
            }
            loop {
                let mut ready = reader.readable().await.unwrap();
                if ready.try_io(|mut pipe| pipe.read(&mut [0; 8])).is_err() {
                    break;
                }
            }
        }
    });
}

/// In whatever direction and state it is dropped, nothing stays behind: `run` counts the operations and the time
/// that the worker takes to end.
#[test]
fn a_watcher_that_is_dropped_while_it_is_armed_leaves_nothing_in_flight() {
    for (reads, writes, turns) in all_of_three() {
        let what = format!("dropped while armed: read {reads}, write {writes}, turns {turns}");
        run(&what, async || {
            for _ in 0..10 {
                let (_peer, socket) = UnixStream::pair().unwrap();
                socket.set_nonblocking(true).unwrap();
                let socket = AsyncFd::new(socket).unwrap();
                fill(&socket).await;
                if reads {
                    assert!(socket.readable().now_or_never().is_none());
                }
                if writes {
                    assert!(socket.writable().now_or_never().is_none());
                }
                if turns {
                    some_turns().await;
                }
                drop(socket);
            }
        });
    }
}

/// The number goes to another file while the old watch is on its way out.
#[test]
fn a_new_watcher_on_a_reused_number_hears_of_its_own_file_only() {
    run("a reused number", async || {
        let mut reused = 0;
        let mut last_number = -1;
        for round in 0..2_000 {
            let (reader, mut writer) = io::pipe().unwrap();
            set_nonblocking(&reader);
            let number = reader.as_raw_fd();
            reused += usize::from(number == last_number);
            last_number = number;
            let reader = AsyncFd::new(reader).unwrap();
            assert!(reader.readable().now_or_never().is_none(), "round {round}");
            if round % 3 == 0 {
                runtime::yield_now().await;
                assert!(reader.readable().now_or_never().is_none(), "round {round}");
            }
            if round % 2 == 0 {
                writer.write_all(b"x").unwrap();
                reader.readable().await.unwrap();
            }
            if round % 5 == 0 {
                // It keeps the old file alive, and with it whatever still watches it.
                let inner = reader.get_ref().as_fd().try_clone_to_owned().unwrap();
                drop(reader);
                writer.write_all(b"for nobody").unwrap();
                drop(inner);
            } else if round % 7 == 0 {
                drop(reader.into_inner());
            }
        }
        // Otherwise the test shows nothing.
        assert!(reused > 1_000, "the number was reused {reused} times");
    });
}

#[test]
fn what_is_given_back_can_be_watched_again() {
    run("watched again", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        set_nonblocking(&reader);
        let mut pipe = reader;
        for round in 0..100 {
            let watched = AsyncFd::new(pipe).unwrap();
            assert!(watched.readable().now_or_never().is_none());
            if round % 2 == 0 {
                runtime::yield_now().await;
            }
            writer.write_all(b"x").unwrap();
            let mut ready = watched.readable().await.unwrap();
            assert_eq!(
                ready
                    .try_io(|mut pipe| pipe.read(&mut [0; 8]))
                    .unwrap()
                    .unwrap(),
                1
            );
            pipe = watched.into_inner();
        }
        // What came while nobody watched is found as well.
        writer.write_all(b"x").unwrap();
        let watched = AsyncFd::new(pipe).unwrap();
        watched.readable().await.unwrap();
    });
}

#[test]
fn a_descriptor_that_nobody_waits_for_is_not_watched() {
    run("not watched", async || {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        let before = runtime::metrics();
        writer.write_all(b"x").unwrap();
        some_turns().await;
        let after = runtime::metrics();
        assert_eq!(after.submissions, before.submissions);
        assert_eq!(after.completions, before.completions);
        poll_fn(|cx| match reader.poll_read_ready(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.map(drop)),
            Poll::Pending => Poll::Pending,
        })
        .await
        .unwrap();
    });
}

/// Writes until the socket takes no more, and returns how much it took.
async fn fill(socket: &AsyncFd<UnixStream>) -> usize {
    let mut written = 0;
    loop {
        let mut ready = socket.writable().await.unwrap();
        match ready.try_io(|mut socket| socket.write(&[7; 4096])) {
            Ok(n) => written += n.unwrap(),
            Err(_would_block) => return written,
        }
    }
}

fn all_of_three() -> impl Iterator<Item = (bool, bool, bool)> {
    (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
}

fn set_nonblocking(fd: &impl AsFd) {
    socket2::SockRef::from(fd).set_nonblocking(true).unwrap();
}

fn eventfd() -> OwnedFd {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    own(fd)
}

fn timerfd() -> OwnedFd {
    // SAFETY: takes no pointer.
    let fd = unsafe {
        libc::timerfd_create(
            libc::CLOCK_MONOTONIC,
            libc::TFD_NONBLOCK | libc::TFD_CLOEXEC,
        )
    };
    own(fd)
}

fn own(fd: libc::c_int) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Expires once, after `delay`.
fn set_timer(timer: &OwnedFd, delay: Duration) {
    let never = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = libc::itimerspec {
        it_interval: never,
        it_value: libc::timespec {
            tv_sec: delay.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(delay.subsec_nanos() as i32),
        },
    };
    // SAFETY: `once` outlives the call; the old value is not asked for.
    let result =
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &once, std::ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn write_event(event: &OwnedFd, value: u64) {
    let mut event = File::from(event.try_clone().unwrap());
    event.write_all(&value.to_ne_bytes()).unwrap();
}

fn read_number(fd: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::from(fd.try_clone()?).read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
