//! The user's code runs inside ours, and then calls us or panics.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use bytes::Bytes;
use runtime::Builder;
use runtime::io::{Outbox, Socket};

use crate::{alone, inbox, read_to_end_at, run, some_turns, soon};

#[test]
fn the_destructor_of_a_sent_buffer_may_write_to_the_same_stream() {
    run("a destructor writes", Builder::new(), async || {
        let mut peer = send_owned(|outbox| {
            assert_eq!(outbox.try_write(b"done").unwrap(), 4);
        })
        .await;
        let received = read_to_end_at(&mut peer).await;
        assert_eq!(received.len(), 5_004);
        assert!(received.ends_with(b"done"));
    });
}

#[test]
fn the_destructor_of_a_sent_buffer_may_drop_the_same_stream() {
    run("a destructor drops", Builder::new(), async || {
        let mut peer = send_owned(drop).await;
        assert_eq!(read_to_end_at(&mut peer).await, [1; 5_000]);
    });
}

/// B05: one panic, and as many sockets whose bytes came in the same turn, before it and after it.
#[test]
fn a_panic_in_a_waker_loses_no_completion_of_another_socket() {
    const OTHERS: usize = 10;
    let _alone = alone("a waker panics");
    let runtime = Builder::new().build().unwrap();
    let (inboxes, mut peers): (Vec<_>, Vec<_>) = runtime.block_on(async {
        let pairs: (Vec<_>, Vec<_>) = (0..OTHERS).map(|_| inbox()).unzip();
        for (index, inbox) in pairs.0.iter().enumerate() {
            if index == OTHERS / 2 {
                let waker = Waker::from(Arc::new(Panicking));
                let mut cx = Context::from_waker(&waker);
                assert!(inbox.poll_read(&mut cx, &mut [0]).is_pending());
            } else {
                assert!(inbox.try_read(&mut [0]).is_err());
            }
        }
        some_turns().await;
        pairs
    });
    for peer in &mut peers {
        peer.write_all(b"y").unwrap();
    }
    let turns = || runtime.block_on(some_turns());
    assert!(
        catch_unwind(AssertUnwindSafe(turns)).is_err(),
        "it panics once"
    );
    runtime.block_on(async {
        for inbox in &inboxes {
            let mut byte = [0];
            let len = soon("a byte", poll_fn(|cx| inbox.poll_read(cx, &mut byte))).await;
            assert_eq!((len.unwrap(), byte), (1, *b"y"));
        }
    });
}

/// Sends a buffer whose destructor gives the stream that it was sent on to `call_back`.
async fn send_owned(call_back: impl FnOnce(Rc<Outbox>) + Send + 'static) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    let outbox = Rc::new(Outbox::new(Socket::new(near).unwrap()));
    OUTBOX.set(Some(Rc::clone(&outbox)));
    let owner = Owner {
        bytes: vec![1; 5_000],
        call_back: Some(Box::new(call_back)),
    };
    let mut buffer = Some(Bytes::from_owner(owner).into());
    poll_fn(|cx| outbox.poll_send(cx, &mut buffer))
        .await
        .unwrap();
    far
}

thread_local! {
    static OUTBOX: RefCell<Option<Rc<Outbox>>> = const { RefCell::new(None) };
}

struct Owner {
    bytes: Vec<u8>,
    call_back: Option<Box<dyn FnOnce(Rc<Outbox>) + Send>>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let outbox = OUTBOX.take().unwrap();
        (self.call_back.take().unwrap())(outbox);
    }
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("this waker always does that");
    }
}
