//! What goes over a connection: a request of the client, then bytes that follow from their position.
//!
//! Here are also the many ways to read and to write them, drawn one by one.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpStream;
use net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use runtime::io::Lease;
use runtime::time::{sleep, timeout};
use socket2::SockRef;
use support::{Fate, Rng, partial, pattern};

use crate::ledger::Ledger;

/// The most that one read or write is asked for.
pub const CHUNK: usize = 16 << 10;

/// What the server shall do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Send back what comes, to its end.
    Echo,
    /// Send `len` bytes.
    Source,
    /// Read to the end, then say how many bytes it were.
    Sink,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub work: Work,
    /// Either side may leave at any moment, and an error is none.
    pub fragile: bool,
    /// The position of the first byte. No two connections have the same, so bytes of another one show.
    pub base: u64,
    pub len: u64,
}

impl Request {
    pub const LEN: usize = 32;

    pub fn new(work: Work, len: u64, rng: &mut Rng) -> Self {
        Self {
            work,
            fragile: false,
            base: rng.next_u64() >> 1,
            len,
        }
    }

    pub fn fragile(self) -> Self {
        Self {
            fragile: true,
            ..self
        }
    }

    pub fn encode(self) -> [u8; Self::LEN] {
        let kind = self.work as u64 | u64::from(self.fragile) << 8;
        let words = [kind, self.base, self.len, Self::checksum(kind, self.base)];
        let mut bytes = [0; Self::LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` if these are not the bytes of a request.
    pub fn decode(bytes: [u8; Self::LEN]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let (kind, base, len) = (word(0), word(1), word(2));
        let work = match kind & 0xFF {
            0 => Work::Echo,
            1 => Work::Source,
            2 => Work::Sink,
            _ => return None,
        };
        (word(3) == Self::checksum(kind, base)).then_some(Self {
            work,
            fragile: kind >> 8 != 0,
            base,
            len,
        })
    }

    fn checksum(kind: u64, base: u64) -> u64 {
        pattern::mix(base ^ kind)
    }
}

/// What one attempt to read has brought.
pub enum Received {
    /// It was given up, or has only looked.
    Nothing,
    /// So many bytes, in the caller's buffer.
    Copied(usize),
    Leased(Lease),
    End,
}

/// How somebody reads and writes.
#[derive(Debug)]
pub struct Habits<'a> {
    pub rng: Rng,
    /// Gives up most of what it begins.
    pub hasty: bool,
    /// Stops for a while, now and then.
    pub slow: bool,
    pub ledger: &'a Ledger,
}

impl Habits<'_> {
    pub async fn pause(&mut self) {
        if self.slow && self.rng.one_in(4) {
            sleep(pause(&mut self.rng)).await;
        }
    }

    /// Reads in one of the ways that there are.
    pub async fn receive(
        &mut self,
        rx: &mut OwnedReadHalf,
        buf: &mut [u8],
        position: u64,
    ) -> io::Result<Received> {
        let size = self.rng.size(buf.len());
        let buf = &mut buf[..size];
        let way = self.rng.below(6);
        let read = match way {
            0 | 1 => self.wavering(rx.read(buf)).await,
            2 => match self.wavering(rx.fill_buf()).await.transpose()? {
                None => None,
                Some(lent) => {
                    let len = lent.len().min(size);
                    buf[..len].copy_from_slice(&lent[..len]);
                    rx.consume_unpin(len);
                    Some(Ok(len))
                }
            },
            3 => match self.wavering(rx.recv_stream().next()).await {
                None => None,
                Some(None) => Some(Ok(0)),
                Some(Some(lease)) => return Ok(Received::Leased(lease?)),
            },
            4 => {
                if let Some(peeked) = self.wavering(rx.peek(buf)).await.transpose()? {
                    self.ledger.verify(&buf[..peeked], position);
                }
                None
            }
            _ => {
                let readable = self.wavering(rx.readable()).await.transpose()?;
                // It was ready, and nobody else has read since.
                readable.map(|()| rx.try_read(buf))
            }
        };
        Ok(match read.transpose()? {
            None => Received::Nothing,
            Some(0) => Received::End,
            Some(len) => Received::Copied(len),
        })
    }

    /// Writes in one of the ways that there are, and says how many bytes were taken.
    pub async fn transmit(&mut self, tx: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<usize> {
        let way = self.rng.below(6);
        let written = match way {
            0..=2 => self.wavering(tx.write(bytes)).await,
            3 => {
                let sent = self.wavering(tx.send(bytes.to_vec())).await;
                sent.map(|sent| sent.map(|()| bytes.len()))
            }
            4 => {
                self.wavering(tx.flush()).await.transpose()?;
                None
            }
            _ => {
                let writable = self.wavering(tx.writable()).await.transpose()?;
                // It was writable, and nobody else has written since.
                writable.map(|()| tx.try_write(bytes))
            }
        };
        Ok(written.transpose()?.unwrap_or(0))
    }

    /// Writes all of it, in pieces.
    pub async fn transmit_all(
        &mut self,
        tx: &mut OwnedWriteHalf,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.transmit(tx, bytes).await?;
            bytes = &bytes[taken..];
            if taken == 0 {
                runtime::yield_now().await;
            }
        }
        Ok(())
    }

    /// Writes `len` bytes of the stream that begins at `base`.
    pub async fn write_pattern(
        &mut self,
        tx: &mut OwnedWriteHalf,
        base: u64,
        len: u64,
    ) -> io::Result<()> {
        let mut sent = 0;
        while sent < len {
            let most = usize::try_from(len - sent).map_or(CHUNK, |left| left.min(CHUNK));
            let bytes = pattern::bytes(base + sent, self.rng.size(most));
            self.transmit_all(tx, &bytes).await?;
            sent += bytes.len() as u64;
            self.pause().await;
        }
        Ok(())
    }

    /// Reads and checks the stream that begins at `base`, to its end. Returns how many bytes it had.
    pub async fn read_pattern(&mut self, rx: &mut OwnedReadHalf, base: u64) -> io::Result<u64> {
        let mut buf = vec![0; CHUNK];
        let mut position = base;
        loop {
            match self.receive(rx, &mut buf, position).await? {
                Received::Nothing => runtime::yield_now().await,
                Received::Copied(len) => {
                    self.ledger.verify(&buf[..len], position);
                    position += len as u64;
                }
                Received::Leased(lease) => {
                    self.ledger.verify(&lease, position);
                    position += lease.len() as u64;
                }
                Received::End => return Ok(position - base),
            }
            self.pause().await;
        }
    }

    /// Awaits `future`. The hasty mostly give it up, by a timer or after some polls.
    pub async fn wavering<F: Future>(&mut self, future: F) -> Option<F::Output> {
        if !self.hasty {
            return Some(future.await);
        }
        let output = if self.rng.one_in(4) {
            timeout(pause(&mut self.rng), future).await.ok()
        } else {
            partial(Fate::dropped(&mut self.rng), future).await
        };
        if output.is_none() {
            self.ledger.cancels.fetch_add(1, Relaxed);
        }
        output
    }
}

/// Lets some sockets take so little at once that sends go short.
pub fn narrow(stream: &TcpStream, rng: &mut Rng) -> io::Result<()> {
    if rng.one_in(3) {
        SockRef::from(stream).set_send_buffer_size(4096)?;
    }
    Ok(())
}

/// Makes a stream of its two halves again.
pub fn reunite(rx: OwnedReadHalf, tx: OwnedWriteHalf) -> io::Result<TcpStream> {
    // The error holds the halves, which stay on this worker.
    rx.reunite(tx)
        .map_err(|error| io::Error::other(error.to_string()))
}

/// From nothing to 2 ms: on both sides of what a loopback connection takes to react.
pub fn pause(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(2000) as u64)
}

/// What a connection may end with when either side may leave at any moment.
pub fn is_break(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof
    )
}
