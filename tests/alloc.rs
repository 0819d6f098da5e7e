//! The steady state allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpStream;
use support::{Alone, Pinger, Server};

const CONNECTIONS: usize = 50;
const MESSAGES: usize = 100_000;
const MESSAGE_LEN: usize = 64;
const WARM_UP_ROUNDS: usize = 100;

#[test]
fn reading_and_writing_allocate_nothing() {
    let _alone = alone();
    assert_steady_state_allocates_nothing(async |mut stream: TcpStream, tally: &Tally| {
        let mut buf = [0; MESSAGE_LEN];
        loop {
            let len = stream.read(&mut buf).await?;
            if len == 0 {
                return Ok(());
            }
            tally.add(len);
            stream.write_all(&buf[..len]).await?;
        }
    });
}

#[test]
fn copying_from_the_kernels_buffers_allocates_nothing() {
    let _alone = alone();
    assert_steady_state_allocates_nothing(async |mut stream: TcpStream, tally: &Tally| {
        let (reader, mut writer) = TcpStream::split(&mut stream);
        let reader = Tallied { reader, tally };
        futures::io::copy_buf(reader, &mut writer).await?;
        Ok(())
    });
}

#[test]
fn leases_allocate_nothing() {
    let _alone = alone();
    assert_steady_state_allocates_nothing(async |mut stream: TcpStream, tally: &Tally| {
        let (mut reader, writer) = TcpStream::split(&mut stream);
        let mut chunks = reader.recv_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            tally.add(chunk.len());
            writer.send(chunk).await?;
        }
        Ok(())
    });
}

fn assert_steady_state_allocates_nothing<H>(handler: H)
where
    H: AsyncFn(TcpStream, &Tally) -> io::Result<()> + Clone + Send + 'static,
{
    let (report, counted) = channel();
    let server = Server::start(move |stream| {
        let tally = Tally {
            report: report.clone(),
        };
        let handler = handler.clone();
        async move { handler(stream, &tally).await }
    });
    let streams = support::connect_many(server.addr(), CONNECTIONS);
    let mut pinger = Pinger::new(streams, MESSAGE_LEN);
    for _ in 0..WARM_UP_ROUNDS {
        // The most that can be there at once: all messages in one turn. Queues have their size after that.
        server.hold(|| pinger.send());
        pinger.receive();
    }
    pinger.rounds(MESSAGES / CONNECTIONS);
    let counted = counted.recv().unwrap();
    drop(pinger);
    server.stop();
    let Counted {
        allocations,
        last_bytes,
    } = counted;
    assert_eq!(
        allocations, 0,
        "allocations, the last one of {last_bytes} bytes"
    );
}

fn alone() -> Alone {
    support::alone("counting allocations", Duration::from_secs(120))
}

/// What was allocated on the server's thread in its steady state.
#[derive(Clone, Copy, Debug)]
struct Counted {
    allocations: usize,
    /// Size of the last one, to find its place by.
    last_bytes: usize,
}

thread_local! {
    // Constant and without a destructor, so the allocator can reach them at any time without allocating.
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static COUNTED: Cell<Counted> = const { Cell::new(Counted { allocations: 0, last_bytes: 0 }) };
    static ECHOED_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Switches the counting on and off, from inside the handlers of the one worker.
struct Tally {
    report: Sender<Counted>,
}

impl Tally {
    /// `len` bytes have been received.
    fn add(&self, len: usize) {
        const START: usize = WARM_UP_ROUNDS * CONNECTIONS * MESSAGE_LEN;
        const END: usize = START + MESSAGES * MESSAGE_LEN;
        let echoed_bytes = ECHOED_BYTES.get() + len;
        ECHOED_BYTES.set(echoed_bytes);
        if echoed_bytes == END {
            COUNTING.set(false);
            self.report.send(COUNTED.get()).unwrap();
        } else if echoed_bytes > START {
            COUNTING.set(true);
        }
    }
}

/// Counts what passes through a reader.
struct Tallied<'a, R> {
    reader: R,
    tally: &'a Tally,
}

impl<R: AsyncRead + Unpin> AsyncRead for Tallied<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl<R: AsyncBufRead + Unpin> AsyncBufRead for Tallied<'_, R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().reader).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        self.tally.add(len);
        Pin::new(&mut self.reader).consume(len);
    }
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

impl CountingAllocator {
    fn count(bytes: usize) {
        if COUNTING.get() {
            let counted = COUNTED.get();
            COUNTED.set(Counted {
                allocations: counted.allocations + 1,
                last_bytes: bytes,
            });
        }
    }
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        Self::count(new_bytes);
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.realloc(block, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.dealloc(block, layout) }
    }
}
