//! Nobody who is ready waits for somebody else who always is.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use runtime::io::{Inbox, Socket};

use crate::{run, some_turns};

/// Reads of the busy socket, of about one turn each, that may pass until the other socket's byte is seen.
const PATIENCE: usize = 100;

/// One socket has more to read than it can be read in many turns, one task is never idle: so the worker never sleeps,
/// and has to look for news all the same.
#[test]
fn a_busy_socket_beside_a_busy_task_does_not_hide_the_news_of_another_socket() {
    run("a busy socket", async || {
        let (flood, mut flood_peer) = inbox();
        let (quiet, mut quiet_peer) = inbox();
        flood_peer.set_nonblocking(true).unwrap();
        while flood_peer.write(&[7; 4096]).is_ok() {}

        let seen = Rc::new(Cell::new(false));
        let busy = runtime::spawn({
            let seen = Rc::clone(&seen);
            async move {
                while !seen.get() {
                    runtime::yield_now().await;
                }
            }
        });
        let quiet = runtime::spawn({
            let seen = Rc::clone(&seen);
            async move {
                let read = poll_fn(|cx| quiet.poll_read(cx, &mut [0])).await;
                seen.set(true);
                read
            }
        });
        some_turns().await;

        let mut chunk = [0; 32 << 10];
        for reads in 0.. {
            // Not before the first read, from which on the busy socket is known to be so.
            if reads == 1 {
                quiet_peer.write_all(&[1]).unwrap();
            }
            if seen.get() {
                break;
            }
            assert!(
                reads < PATIENCE,
                "{reads} reads, and the other byte is not seen"
            );
            let n = poll_fn(|cx| flood.poll_read(cx, &mut chunk)).await.unwrap();
            assert!(n > 0);
            while flood_peer.write(&chunk).is_ok() {}
        }
        assert_eq!(quiet.await.unwrap().unwrap(), 1);
        busy.await.unwrap();
    });
}

fn inbox() -> (Inbox, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Inbox::new(Socket::new(near).unwrap()), far)
}
