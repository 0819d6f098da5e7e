//! Our own clients: one runtime on a thread of its own, with the default options.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, try_join};
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::io::Lease;
use runtime::time::{sleep, timeout};
use support::{Fate, Rng, partial, pattern};

use crate::PATIENCE;
use crate::chores::Chores;
use crate::ledger::{Ledger, Side};
use crate::wire::{CHUNK, Habits, Received, Request, Work, is_break, narrow, pause, reunite};

/// Runs the loads until the ledger says that the time is over.
pub async fn run(ledger: Arc<Ledger>, mut rng: Rng, addr: SocketAddr) -> io::Result<()> {
    let chores = Chores::start(&ledger, Side::Clients, &mut rng);
    let mut loads = Vec::new();
    for (load, name, count) in LOADS {
        ledger.start_load(name);
        for _ in 0..count {
            loads.push(runtime::spawn(repeat(
                load,
                name,
                addr,
                rng.fork(),
                ledger.clone(),
            )));
        }
    }
    for load in loads {
        if let Err(error) = load.await {
            ledger.complain(format_args!("a client: {error}"));
        }
    }
    chores.finish().await;
    Ok(())
}

/// Each has its name and how many do it at once.
const LOADS: [(Load, &str, usize); 9] = [
    (Load::Echo, "echo", 4),
    (Load::Short, "short connections", 4),
    (Load::SlowReader, "slow readers", 6),
    (Load::Dropper, "droppers", 6),
    (Load::Canceller, "cancellers", 4),
    (Load::Hoarder, "lease holders", 2),
    (Load::HalfCloser, "half-closers", 2),
    (Load::Mover, "to std and back", 2),
    (Load::Listener, "listeners", 1),
];

#[derive(Clone, Copy)]
enum Load {
    Echo,
    Short,
    SlowReader,
    Dropper,
    Canceller,
    Hoarder,
    HalfCloser,
    Mover,
    Listener,
}

async fn repeat(
    load: Load,
    name: &'static str,
    addr: SocketAddr,
    mut rng: Rng,
    ledger: Arc<Ledger>,
) {
    while !ledger.is_stopping() {
        let rng_of_round = rng.fork();
        let seed = rng_of_round.seed();
        let mut round = Round {
            addr,
            habits: Habits {
                rng: rng_of_round,
                hasty: false,
                slow: false,
                ledger: &ledger,
            },
        };
        match timeout(PATIENCE, round.run(load)).await {
            Ok(Ok(())) => ledger.finish_round(name),
            Ok(Err(error)) => {
                ledger.complain(format_args!("{name}, seed {seed}: {error}"));
                sleep(Duration::from_millis(100)).await;
            }
            Err(_elapsed) => ledger.complain(format_args!("{name}, seed {seed}: stalled")),
        }
        sleep(pause(&mut rng)).await;
    }
}

/// One connection, or a few, from their beginning to their end.
struct Round<'a> {
    addr: SocketAddr,
    habits: Habits<'a>,
}

impl Round<'_> {
    async fn run(&mut self, load: Load) -> io::Result<()> {
        match load {
            Load::Echo => self.echo().await,
            Load::Short => self.short().await,
            Load::SlowReader => self.slow_reader().await,
            Load::Dropper => self.dropper().await,
            Load::Canceller => self.canceller().await,
            Load::Hoarder => self.hoarder().await,
            Load::HalfCloser => self.half_closer().await,
            Load::Mover => self.mover().await,
            Load::Listener => self.listener().await,
        }
    }

    async fn echo(&mut self) -> io::Result<()> {
        let request = self.request(Work::Echo, 2 << 20);
        let stream = self.connect(request).await?;
        self.echo_over(stream, request).await
    }

    /// Writes and reads at once.
    async fn echo_over(&mut self, stream: TcpStream, request: Request) -> io::Result<()> {
        let Request { base, len, .. } = request;
        let (mut rx, mut tx) = stream.into_split();
        let rng = self.habits.rng.fork();
        let mut reader = Habits { rng, ..self.habits };
        let ((), received) = try_join!(
            async {
                self.habits.write_pattern(&mut tx, base, len).await?;
                tx.close().await
            },
            reader.read_pattern(&mut rx, base),
        )?;
        self.habits.ledger.verify_length(received, len);
        Ok(())
    }

    /// A few bytes there and back; either side may close first.
    async fn short(&mut self) -> io::Result<()> {
        for _ in 0..8 {
            let request = self.request(Work::Echo, 64);
            let mut stream = self.connect(request).await?;
            let sent = pattern::bytes(request.base, request.len as usize);
            stream.write_all(&sent).await?;
            let mut echoed = vec![0; sent.len()];
            if self.habits.rng.one_in(2) {
                stream.shutdown(Shutdown::Write).await?;
                stream.read_exact(&mut echoed).await?;
                self.habits
                    .ledger
                    .verify_length(stream.read(&mut [0; 1]).await? as u64, 0);
            } else {
                stream.read_exact(&mut echoed).await?;
            }
            self.habits.ledger.verify(&echoed, request.base);
        }
        Ok(())
    }

    async fn slow_reader(&mut self) -> io::Result<()> {
        self.habits.slow = true;
        let narrow = self.habits.rng.one_in(2);
        let most = if narrow { NARROW_MOST } else { 1 << 20 };
        let request = self.request(Work::Source, most);
        let stream = if narrow {
            // The kernel keeps little here, so it is the server that has to wait.
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4096)?;
            self.begin(socket.connect(self.addr).await?, request)
                .await?
        } else {
            self.connect(request).await?
        };
        // It has not begun to read when both sides are full.
        sleep(pause(&mut self.habits.rng) * 20).await;
        let (mut rx, tx) = stream.into_split();
        let received = self.habits.read_pattern(&mut rx, request.base).await?;
        drop(tx);
        self.habits.ledger.verify_length(received, request.len);
        Ok(())
    }

    /// Leaves at any moment, in any way.
    async fn dropper(&mut self) -> io::Result<()> {
        self.habits.hasty = true;
        let work = [Work::Echo, Work::Source, Work::Sink][self.habits.rng.below(3)];
        let request = self.request(work, 1 << 20).fragile();
        match self.leave_early(request).await {
            // The server may have left before.
            Err(error) if !is_break(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn leave_early(&mut self, request: Request) -> io::Result<()> {
        let stream = self.connect(request).await?;
        if self.habits.rng.one_in(3) {
            // RST instead of FIN.
            stream.set_linger(Some(Duration::ZERO))?;
        }
        let (mut rx, mut tx) = stream.into_split();
        let mut buf = vec![0; CHUNK];
        let (mut sent, mut received) = (request.base, request.base);
        let step_count = self.habits.rng.size(64);
        for _ in 0..step_count {
            if self.habits.rng.one_in(2) && request.work != Work::Source {
                let bytes = pattern::bytes(sent, self.habits.rng.size(CHUNK));
                sent += self.habits.transmit(&mut tx, &bytes).await? as u64;
            } else {
                match self.habits.receive(&mut rx, &mut buf, received).await? {
                    Received::Nothing => runtime::yield_now().await,
                    Received::Copied(len) => {
                        self.habits.ledger.verify(&buf[..len], received);
                        received += len as u64;
                    }
                    Received::Leased(lease) => {
                        self.habits.ledger.verify(&lease, received);
                        received += lease.len() as u64;
                    }
                    Received::End => break,
                }
            }
        }
        match self.habits.rng.below(4) {
            0 => drop(rx),
            1 => drop(tx),
            2 => tx.forget(),
            _ => drop(reunite(rx, tx)?),
        }
        Ok(())
    }

    /// Gives up what it begins, connects included, and still gets every byte.
    async fn canceller(&mut self) -> io::Result<()> {
        self.habits.hasty = true;
        for _ in 0..8 {
            let connect = TcpStream::connect(self.addr);
            let fate = Fate::dropped(&mut self.habits.rng);
            let _ = partial(fate, connect).await;
        }
        let stream = loop {
            let connect = TcpStream::connect(self.addr);
            if let Some(stream) = self.habits.wavering(connect).await {
                break stream?;
            }
        };
        let request = self.request(Work::Echo, 1 << 20);
        let stream = self.begin(stream, request).await?;
        self.echo_over(stream, request).await
    }

    /// Keeps what it receives, buffers and all, and looks at it again later.
    async fn hoarder(&mut self) -> io::Result<()> {
        let request = self.request(Work::Source, 4 << 20);
        let mut stream = self.connect(request).await?;
        let mut hoard: VecDeque<(u64, Lease)> = VecDeque::new();
        let room = self.habits.rng.size(200);
        let mut position = request.base;
        while let Some(lease) = stream.recv_stream().next().await {
            let lease = lease?;
            let len = lease.len() as u64;
            hoard.push_back((position, lease));
            position += len;
            while hoard.len() > room
                && let Some((position, lease)) = hoard.pop_front()
            {
                self.habits.ledger.verify(&lease, position);
            }
        }
        sleep(pause(&mut self.habits.rng) * 20).await;
        for (position, lease) in hoard {
            self.habits.ledger.verify(&lease, position);
        }
        let received = position - request.base;
        self.habits.ledger.verify_length(received, request.len);
        Ok(())
    }

    /// Says all, closes its direction, and then gets the answer.
    async fn half_closer(&mut self) -> io::Result<()> {
        let request = self.request(Work::Sink, 1 << 20);
        let stream = self.connect(request).await?;
        let (mut rx, mut tx) = stream.into_split();
        self.habits
            .write_pattern(&mut tx, request.base, request.len)
            .await?;
        let stream = if self.habits.rng.one_in(2) {
            drop(tx);
            None
        } else {
            let stream = reunite(rx, tx)?;
            stream.shutdown(Shutdown::Write).await?;
            let (read_half, tx) = stream.into_split();
            rx = read_half;
            Some(tx)
        };
        let mut count = [0; 8];
        rx.read_exact(&mut count).await?;
        let ledger = self.habits.ledger;
        ledger.verify_length(u64::from_le_bytes(count), request.len);
        ledger.verify_length(rx.read(&mut [0; 1]).await? as u64, 0);
        drop(stream);
        Ok(())
    }

    /// Takes its stream out of the runtime and puts it back, in the middle of what arrives.
    async fn mover(&mut self) -> io::Result<()> {
        let request = self.request(Work::Source, 1 << 20);
        let mut stream = self.connect(request).await?;
        let mut buf = vec![0; CHUNK];
        let mut position = request.base;
        loop {
            let size = self.habits.rng.size(CHUNK);
            let len = stream.read(&mut buf[..size]).await?;
            self.habits.ledger.verify(&buf[..len], position);
            position += len as u64;
            if len == 0 {
                break;
            }
            if self.habits.rng.one_in(16) {
                let (outside, unread) = stream.into_std().await?;
                self.habits.ledger.verify(&unread, position);
                position += unread.len() as u64;
                stream = TcpStream::from_std(outside)?;
            }
        }
        let received = position - request.base;
        self.habits.ledger.verify_length(received, request.len);
        Ok(())
    }

    /// Listens, accepts some and leaves the others, which then see the end.
    async fn listener(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(support::loopback()).await?;
        let addr = listener.local_addr()?;
        let mut peers = Vec::new();
        for _ in 0..1 + self.habits.rng.below(16) {
            peers.push(TcpStream::connect(addr).await?);
            self.habits.ledger.connections.fetch_add(1, Relaxed);
        }
        for _ in 0..self.habits.rng.below(16) {
            let fate = Fate::dropped(&mut self.habits.rng);
            drop(partial(fate, listener.accept()).await.transpose()?);
        }
        drop(listener);
        for mut peer in peers {
            match peer.read(&mut [0; 1]).await {
                Ok(len) => self.habits.ledger.verify_length(len as u64, 0),
                Err(error) if is_break(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn request(&mut self, work: Work, most: usize) -> Request {
        let len = self.habits.rng.size(most) as u64;
        Request::new(work, len, &mut self.habits.rng)
    }

    async fn connect(&mut self, request: Request) -> io::Result<TcpStream> {
        let stream = loop {
            match TcpStream::connect(self.addr).await {
                // All ports of this machine have been used within the last second.
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    sleep(Duration::from_millis(100)).await;
                }
                connected => break connected?,
            }
        };
        self.begin(stream, request).await
    }

    async fn begin(&mut self, mut stream: TcpStream, request: Request) -> io::Result<TcpStream> {
        self.habits.ledger.connections.fetch_add(1, Relaxed);
        narrow(&stream, &mut self.habits.rng)?;
        stream.write_all(&request.encode()).await?;
        Ok(stream)
    }
}

/// The most that is sent to a socket with the smallest receive buffer. Once the window that it offers is smaller than a
/// segment, TCP sends on nothing but its persist timer: some 2 KB each 200 ms.
const NARROW_MOST: usize = 64 << 10;
