//! Several inboxes or outboxes of one socket, at once or one after the other.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::task::Poll;
use std::thread;

use futures::future::{join, join_all};
use runtime::Builder;
use runtime::io::{Inbox, Outbox, Socket};

use crate::{inbox, run, small_pool, some_turns, soon};

fn socket() -> (Socket, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Socket::new(near).unwrap(), far)
}

async fn read(inbox: &Inbox) -> u8 {
    let mut byte = [0];
    let read = poll_fn(|cx| inbox.poll_read(cx, &mut byte));
    assert_eq!(soon("a byte", read).await.unwrap(), 1);
    byte[0]
}

async fn armed(inbox: &Inbox) {
    let nothing = inbox.try_read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    runtime::yield_now().await;
}

#[test]
fn each_byte_goes_to_one_of_several_inboxes() {
    run("several inboxes", Builder::new(), async || {
        let (socket, mut far) = socket();
        let inboxes = [0; 3].map(|_| Inbox::new(socket.clone()));
        let reads = join_all(inboxes.iter().map(read));
        let writes = async {
            some_turns().await;
            far.write_all(&[1, 2, 3]).unwrap();
        };
        let (mut bytes, ()) = join(reads, writes).await;
        bytes.sort_unstable();
        assert_eq!(bytes, [1, 2, 3]);
        // The others go on when one is gone, and what had arrived is still there.
        far.write_all(&[4, 5]).unwrap();
        let [first, second, third] = inboxes;
        assert_eq!(read(&first).await, 4);
        drop(first);
        assert_eq!(read(&third).await, 5);
        drop(third);
        armed(&second).await;
        far.write_all(&[6]).unwrap();
        assert_eq!(read(&second).await, 6);
    });
}

#[test]
fn an_inbox_after_the_last_one_begins_afresh() {
    run("an inbox after the last one", Builder::new(), async || {
        let (socket, mut far) = socket();
        for byte in 0..50 {
            let inbox = Inbox::new(socket.clone());
            far.write_all(&[byte, 255]).unwrap();
            assert_eq!(read(&inbox).await, byte);
            poll_fn(|cx| inbox.poll_stop(cx)).await;
            // What it has not read goes with it.
            assert_eq!(inbox.unread(), 1);
        }
        drop(far);
        for _ in 0..2 {
            let inbox = Inbox::new(socket.clone());
            let mut byte = [0];
            let end = poll_fn(|cx| inbox.poll_read(cx, &mut byte));
            assert_eq!(soon("the end", end).await.unwrap(), 0);
        }
        drop(socket.try_into_fd().expect("nothing else uses it"));
    });
}

/// The kernel may still write to the buffer of the first when the second brings its own.
#[test]
fn an_inbox_after_one_that_starved_has_a_buffer_of_its_own() {
    run(
        "an inbox after one that starved",
        small_pool(),
        async || {
            let (mut greedy, mut feeder) = inbox();
            let mut held = Vec::new();
            while held.len() < 2 {
                feeder.write_all(&[0; 4096]).unwrap();
                let lease = poll_fn(|cx| greedy.poll_lease(cx));
                held.push(soon("a lease", lease).await.unwrap().unwrap());
            }
            let (socket, mut far) = socket();
            for byte in 0..20 {
                let starved = Inbox::new(socket.clone());
                assert!(
                    poll_fn(|cx| Poll::Ready(starved.poll_read(cx, &mut [0])))
                        .await
                        .is_pending()
                );
                runtime::yield_now().await;
                drop(starved);
                let next = Inbox::new(socket.clone());
                assert!(
                    poll_fn(|cx| Poll::Ready(next.poll_read(cx, &mut [0])))
                        .await
                        .is_pending()
                );
                some_turns().await;
                far.write_all(&[byte]).unwrap();
                assert_eq!(read(&next).await, byte);
                poll_fn(|cx| next.poll_stop(cx)).await;
            }
            drop(held);
            assert_eq!(greedy.take_unread().len() % 4096, 0);
        },
    );
}

#[test]
fn several_outboxes_keep_the_order_of_the_writes_and_the_last_one_ends_the_direction() {
    run("several outboxes", Builder::new(), async || {
        let (socket, mut far) = socket();
        let outboxes = [0; 3].map(|_| Outbox::new(socket.clone()));
        for outbox in &outboxes {
            outbox.shutdown_on_drop(true);
        }
        let mut expected = Vec::new();
        for byte in 0..90 {
            assert_eq!(outboxes[byte % 3].try_write(&[byte as u8]).unwrap(), 1);
            expected.push(byte as u8);
            if byte % 7 == 0 {
                runtime::yield_now().await;
            }
        }
        let [first, second, third] = outboxes;
        drop((first, third));
        some_turns().await;
        assert_eq!(second.try_write(b"!").unwrap(), 1);
        expected.push(b'!');
        drop(second);
        let reading = thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            received
        });
        while !reading.is_finished() {
            runtime::yield_now().await;
        }
        assert_eq!(reading.join().unwrap(), expected);
        // The direction has ended for whoever comes later, too.
        let late = Outbox::new(socket).try_write(b"?").unwrap_err();
        assert_eq!(late.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn an_outbox_takes_over_what_the_last_one_has_left() {
    run("an outbox after the last one", Builder::new(), async || {
        let (socket, mut far) = socket();
        let mut expected = Vec::new();
        for round in 0..4_u8 {
            let outbox = Outbox::new(socket.clone());
            // The peer does not read, so the socket and then the outbox are full.
            let mut waits = 0;
            while waits < 100 {
                match outbox.try_write(&[round; 999]) {
                    Ok(taken) => expected.resize(expected.len() + taken, round),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        waits += 1;
                    }
                }
                runtime::yield_now().await;
            }
            drop(outbox);
            some_turns().await;
            // Room for a little of it.
            let mut received = vec![0; 30_000];
            far.read_exact(&mut received).unwrap();
            assert!(expected.drain(..received.len()).eq(received));
            some_turns().await;
        }
        let last = Outbox::new(socket);
        let length = expected.len();
        let reading = thread::spawn(move || {
            let mut received = vec![0; length];
            far.read_exact(&mut received).unwrap();
            (received, far)
        });
        soon("the drain", poll_fn(|cx| last.poll_drain(cx)))
            .await
            .unwrap();
        let (received, _far) = reading.join().unwrap();
        assert_eq!(received, expected);
    });
}
