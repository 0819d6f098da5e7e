//! The public API of `net`, one behaviour per test, against peers that are threads with `std::net`.

mod accept;
mod close;
mod connect;
mod handover;
mod many;
mod transfer;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use runtime::time::timeout;

/// Far above what any of these tests needs. A test that hangs fails instead.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn block_on<F: Future>(test: F) -> F::Output {
    let runtime = runtime::Builder::new().build().expect("a runtime");
    runtime.block_on(async { timeout(TIME_LIMIT, test).await.expect("the test hangs") })
}

/// Starts `work` on a thread of its own; the future is its result.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> {
    let (done, result) = oneshot::channel();
    // A test that has failed does not wait for the result.
    thread::spawn(move || done.send(work()).ok());
    async { result.await.expect("the peer's thread panicked") }
}

/// One connection: our end, and the end of a peer that is blocking and knows nothing of us.
async fn connected() -> io::Result<(net::TcpStream, std::net::TcpStream)> {
    let listener = std::net::TcpListener::bind(ANY_PORT)?;
    let ours = net::TcpStream::connect(listener.local_addr()?).await?;
    let (peer, _) = listener.accept()?;
    Ok((ours, peer))
}

/// Resets the connection: with a linger of zero the kernel sends RST instead of FIN.
fn reset(peer: std::net::TcpStream) {
    let socket = socket2::SockRef::from(&peer);
    socket.set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
}

/// An address of this machine where nobody listens.
fn refusing_address() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind(ANY_PORT)?.local_addr()
}

/// A sequence that shows any byte that is lost, doubled or moved: a counter in every four bytes.
fn numbered(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 3);
    let mut numbers = 0u32..;
    while bytes.len() < len {
        bytes.extend_from_slice(&numbers.next().unwrap().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// `assert_eq` for long byte strings, which names the place instead of printing both.
#[track_caller]
fn assert_same(received: &[u8], sent: &[u8]) {
    if received != sent {
        let difference = received.iter().zip(sent).position(|(r, s)| r != s);
        let (received, sent) = (received.len(), sent.len());
        panic!("{received} bytes are not the {sent} that were sent; first at {difference:?}");
    }
}
