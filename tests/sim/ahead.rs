//! Reading ahead: a multishot that the kernel has ended is started anew at once, though nobody asks for more.
//!
//! Without it nothing would be lost, as whoever asks starts one. But what comes meanwhile would wait in the kernel,
//! where the next to ask has to wait for it.

use std::io::ErrorKind;
use std::pin::pin;
use std::task::Poll;

use futures::{AsyncReadExt, AsyncWriteExt, poll};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::sim::{Faults, Simulation};
use runtime::time::{Duration, sleep};

use crate::streams::connect;

const COUNT: u8 = 20;

/// Every multishot ends with its first completion, and nothing else goes wrong.
fn run(program: impl AsyncFnOnce()) {
    let mut faults = Faults::none();
    faults.multishot_ends = 1.0;
    Simulation::new(0)
        .faults(faults)
        .builder(Builder::new())
        .without(&[])
        .run(program());
}

#[test]
fn a_receive_that_the_kernel_has_ended_goes_on_unasked() {
    run(async || {
        let (mut client, mut server) = connect(1).await.expect("connected").remove(0);
        client.write_all(&[0]).await.expect("written");
        let mut byte = [0];
        server.read_exact(&mut byte).await.expect("read");

        for number in 1..=COUNT {
            client.write_all(&[number]).await.expect("written");
            sleep(Duration::from_millis(1)).await;
        }
        let mut read: Vec<u8> = Vec::new();
        loop {
            let mut bytes = [0; 8];
            match server.try_read(&mut bytes) {
                Ok(some) => read.extend_from_slice(&bytes[..some]),
                Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(read, (1..=COUNT).collect::<Vec<_>>());
    });
}

#[test]
fn an_accept_that_the_kernel_has_ended_goes_on_unasked() {
    run(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let mut clients = Vec::new();
        let first = futures::join!(listener.accept(), TcpStream::connect(address));
        clients.push(first.1.expect("connected"));

        for _ in 0..COUNT {
            clients.push(TcpStream::connect(address).await.expect("connected"));
            sleep(Duration::from_millis(1)).await;
        }
        for number in 0..COUNT {
            let accepted = poll!(pin!(listener.accept()));
            assert!(
                matches!(accepted, Poll::Ready(Ok(_))),
                "connection {number}"
            );
        }
    });
}
