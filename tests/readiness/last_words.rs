//! A peer says something and goes away in the same moment: all that it said is heard, and then its end.
//!
//! The kernel tells a multishot receive of data and end with one piece of news, and may spend it on the data alone.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream as Peer;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use net::TcpListener;
use runtime::Builder;
use runtime::io::{Inbox, Socket};
use support::pattern;

use crate::alone;

const CHUNK: usize = 64;
/// The kernel tries a multishot 32 times in one go, then comes back to it.
const CHUNKS: [usize; 9] = [1, 2, 31, 32, 33, 34, 64, 65, 100];

#[test]
fn a_reset_right_behind_the_last_bytes_is_heard() {
    check("a reset behind data", async |listener| {
        let peer = support::connect(listener.local_addr().unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        let (stream, _) = stream.into_std().await.unwrap();
        let end = |peer: Peer| {
            support::reset(peer);
            Err(ErrorKind::ConnectionReset)
        };
        (peer, stream.into(), end)
    });
}

#[test]
fn an_end_right_behind_the_last_bytes_is_heard() {
    check("an end behind data", async |listener| {
        let peer = support::connect(listener.local_addr().unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        let (stream, _) = stream.into_std().await.unwrap();
        let end = |peer: Peer| {
            drop(peer);
            Ok(0)
        };
        (peer, stream.into(), end)
    });
}

#[test]
fn a_unix_peer_that_speaks_and_closes_is_heard_to_the_end() {
    check("a unix end behind data", async |_| {
        let (peer, stream) = UnixStream::pair().unwrap();
        let end = |peer: UnixStream| {
            drop(peer);
            Ok(0)
        };
        (peer, stream.into(), end)
    });
}

#[test]
fn a_unix_peer_that_speaks_and_closes_with_unread_bytes_is_heard_to_the_end() {
    check("a unix reset behind data", async |_| {
        let (peer, stream) = UnixStream::pair().unwrap();
        (&stream).write_all(b"never read").unwrap();
        let end = |peer: UnixStream| {
            drop(peer);
            Err(ErrorKind::ConnectionReset)
        };
        (peer, stream.into(), end)
    });
}

/// `connect` gives a peer, the descriptor of the near end, and how the peer ends, with the end that is then to be heard.
fn check<P, E>(what: &str, connect: impl AsyncFn(&TcpListener) -> (P, OwnedFd, E))
where
    P: Write,
    E: FnOnce(P) -> Result<usize, ErrorKind>,
{
    let _alone = alone(what);
    let runtime = (Builder::new().buffers(256).buffer_size(CHUNK))
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        for chunks in CHUNKS {
            for armed in [false, true] {
                let (mut peer, near, end) = connect(&listener).await;
                let inbox = Inbox::new(Socket::new(near).unwrap());
                if armed {
                    assert!(inbox.try_read(&mut [0]).is_err());
                    runtime::yield_now().await;
                    runtime::yield_now().await;
                }
                let bytes = pattern::bytes(0, chunks * CHUNK);
                peer.write_all(&bytes).unwrap();
                let expected = end(peer);
                let (heard, end) = hear(&inbox).await;
                let case = format!("{chunks} chunks, armed: {armed}");
                assert!(heard == bytes, "{case}: {} bytes", heard.len());
                assert_eq!(end.map_err(|error| error.kind()), expected, "{case}");
            }
        }
    });
}

/// All bytes, and then the end.
async fn hear(inbox: &Inbox) -> (Vec<u8>, io::Result<usize>) {
    let mut heard = Vec::new();
    loop {
        let mut buf = [0; 1000];
        match poll_fn(|cx| inbox.poll_read(cx, &mut buf)).await {
            Ok(len) if len > 0 => heard.extend_from_slice(&buf[..len]),
            end => return (heard, end),
        }
    }
}
