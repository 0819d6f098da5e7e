use std::io::{ErrorKind, IoSlice, Read};
use std::net::TcpStream as Peer;
use std::thread;

use futures::AsyncWriteExt;
use net::TcpStream;
use runtime::Builder;
use runtime::time::timeout;
use socket2::SockRef;
use support::{Fate, Rng, partial, pattern};

use crate::{listen, random_pause, run};

const STREAM_BYTES: u64 = 2 << 20;
const CHUNK: usize = 32 << 10;

/// The peer gets what the writes have reported as written, no byte more and no byte less.
#[test]
fn given_up_writes_send_what_they_have_reported() {
    run("given-up writes", Builder::new(), async |mut rng| {
        let listener = listen().await;
        let mut writers = Vec::new();
        for _ in 0..4 {
            let (stream, peer) = support::pair(&listener).await;
            // So that a write has to wait, again and again.
            SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
            let mut receiver_rng = rng.fork();
            let receiver = thread::spawn(move || receive(peer, &mut receiver_rng));
            let writer = runtime::spawn(write_waveringly(stream, rng.fork()));
            writers.push((receiver, writer));
        }
        for (receiver, writer) in writers {
            let reported = writer.await.unwrap();
            assert_eq!(receiver.join().unwrap(), reported, "bytes at the peer");
        }
    });
}

fn receive(mut peer: Peer, rng: &mut Rng) -> u64 {
    let mut buf = vec![0; CHUNK];
    let mut position = 0;
    loop {
        let len = peer.read(&mut buf[..rng.size(CHUNK)]).unwrap();
        if len == 0 {
            return position;
        }
        pattern::check(&buf[..len], position);
        position += len as u64;
        if rng.one_in(64) {
            thread::sleep(random_pause(rng));
        }
    }
}

/// Writes by all means that there are, and gives up most of them. Returns how many bytes were taken.
async fn write_waveringly(mut stream: TcpStream, mut rng: Rng) -> u64 {
    let mut position = 0;
    while position < STREAM_BYTES {
        let fate = Fate::random(&mut rng);
        let bytes = pattern::bytes(position, rng.size(CHUNK));
        let written = match rng.below(8) {
            0 | 1 => partial(fate, stream.write(&bytes)).await,
            2 => {
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                let parts = [head, &[], tail].map(IoSlice::new);
                partial(fate, stream.write_vectored(&parts)).await
            }
            3 => {
                let sent = partial(fate, stream.send(bytes.clone())).await;
                sent.map(|sent| sent.map(|()| bytes.len()))
            }
            4 => {
                if let Some(flushed) = partial(fate, stream.flush()).await {
                    flushed.unwrap();
                }
                None
            }
            5 => match partial(fate, stream.writable()).await {
                None => None,
                Some(writable) => {
                    writable.unwrap();
                    // It was writable, and nobody else has written since.
                    Some(stream.try_write(&bytes))
                }
            },
            6 => match stream.try_write(&bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                written => Some(written),
            },
            _ => {
                let patience = random_pause(&mut rng);
                timeout(patience, stream.write(&bytes)).await.ok()
            }
        };
        match written {
            Some(written) => position += written.unwrap() as u64,
            None => runtime::yield_now().await,
        }
    }
    stream.close().await.unwrap();
    position
}
