//! One call on one end of a stream, whatever form the end has: whole, borrowed half or owned half.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use bytes::Bytes;
use futures::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt,
};
use net::TcpStream;
use net::tcp::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use runtime::io::{Lease, RecvStream, SendBuf};
use support::{Fate, partial};

use crate::model::{Broken, Direction, End};
use crate::steps::{ReadCall, WriteCall};

pub trait ReadEnd: AsyncRead + AsyncBufRead + Unpin {
    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn peek(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>>;
    fn readable(&self) -> impl Future<Output = io::Result<()>>;
    fn leases(&mut self) -> RecvStream<'_>;
}

pub trait WriteEnd: AsyncWrite + Unpin {
    fn try_write(&self, buf: &[u8]) -> io::Result<usize>;
    fn writable(&self) -> impl Future<Output = io::Result<()>>;
    fn send(&self, buf: SendBuf) -> impl Future<Output = io::Result<()>>;
}

macro_rules! read_end {
    ($type:ty) => {
        impl ReadEnd for $type {
            fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                <$type>::try_read(self, buf)
            }

            fn peek(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
                <$type>::peek(self, buf)
            }

            fn readable(&self) -> impl Future<Output = io::Result<()>> {
                <$type>::readable(self)
            }

            fn leases(&mut self) -> RecvStream<'_> {
                self.recv_stream()
            }
        }
    };
}

macro_rules! write_end {
    ($type:ty) => {
        impl WriteEnd for $type {
            fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                <$type>::try_write(self, buf)
            }

            fn writable(&self) -> impl Future<Output = io::Result<()>> {
                <$type>::writable(self)
            }

            fn send(&self, buf: SendBuf) -> impl Future<Output = io::Result<()>> {
                <$type>::send(self, buf)
            }
        }
    };
}

read_end!(TcpStream);
read_end!(ReadHalf<'_>);
read_end!(OwnedReadHalf);
write_end!(TcpStream);
write_end!(WriteHalf<'_>);
write_end!(OwnedWriteHalf);

/// A lease that was kept, and what it must show for as long.
pub type Kept = Vec<(Lease, Vec<u8>)>;

pub async fn read(
    end: &mut impl ReadEnd,
    call: &ReadCall,
    fate: Fate,
    model: &mut Direction,
    broken: &Broken,
    kept: &mut Kept,
) {
    match *call {
        ReadCall::Read(len) => {
            let mut buf = vec![0; len];
            let done = partial(fate, end.read(&mut buf)).await;
            take(done, &buf, model, broken);
        }
        ReadCall::TryRead(len) => {
            let mut buf = vec![0; len];
            let done = not_yet(end.try_read(&mut buf));
            take(done, &buf, model, broken);
        }
        ReadCall::Vectored(first, second) => {
            let mut buf = vec![0; first + second];
            let (head, tail) = buf.split_at_mut(first);
            let mut slices = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            let done = partial(fate, end.read_vectored(&mut slices)).await;
            take(done, &buf, model, broken);
        }
        ReadCall::Peek(len) => {
            let mut buf = vec![0; len];
            match partial(fate, end.peek(&mut buf)).await {
                Some(Ok(0)) if len > 0 => model.ended(broken),
                Some(Ok(seen)) => model.shows(&buf[..seen]),
                Some(Err(error)) => model.read_failed(&error, broken),
                None => {}
            }
        }
        ReadCall::Readable => {
            if let Some(Err(error)) = partial(fate, end.readable()).await {
                model.read_failed(&error, broken);
            }
        }
        ReadCall::FillBuf(most) => {
            let filled = partial(fate, end.fill_buf()).await;
            let consumed = match filled {
                Some(Ok([])) => return model.ended(broken),
                Some(Ok(bytes)) => {
                    model.shows(bytes);
                    let consumed = bytes.len().min(most);
                    model.took(&bytes[..consumed]);
                    consumed
                }
                Some(Err(error)) => return model.read_failed(&error, broken),
                None => return,
            };
            end.consume_unpin(consumed);
        }
        ReadCall::Lease(keep) => match partial(fate, end.leases().next()).await {
            Some(Some(Ok(lease))) => {
                assert!(!lease.is_empty(), "an empty lease");
                model.took(&lease);
                let shows = lease.to_vec();
                if keep {
                    kept.push((lease, shows));
                }
            }
            Some(Some(Err(error))) => model.read_failed(&error, broken),
            Some(None) => model.ended(broken),
            None => {}
        },
    }
}

fn take(done: Option<io::Result<usize>>, buf: &[u8], model: &mut Direction, broken: &Broken) {
    match done {
        Some(Ok(0)) if !buf.is_empty() => model.ended(broken),
        Some(Ok(len)) => model.took(&buf[..len]),
        Some(Err(error)) => model.read_failed(&error, broken),
        None => {}
    }
}

pub async fn write(
    end: &mut impl WriteEnd,
    call: &WriteCall,
    fate: Fate,
    model: &mut Direction,
    broken: &Broken,
) {
    match *call {
        WriteCall::Write(len) => {
            let offered = model.offer(len);
            let done = partial(fate, end.write(&offered)).await;
            give(done, &offered, model, broken);
        }
        WriteCall::TryWrite(len) => {
            let offered = model.offer(len);
            give(not_yet(end.try_write(&offered)), &offered, model, broken);
        }
        WriteCall::Vectored(first, second) => {
            let offered = model.offer(first + second);
            let (head, tail) = offered.split_at(first);
            let slices = [IoSlice::new(head), IoSlice::new(tail)];
            let done = partial(fate, end.write_vectored(&slices)).await;
            give(done, &offered, model, broken);
        }
        WriteCall::Send(len, shared) => {
            let offered = model.offer(len);
            let buf = match shared {
                true => Bytes::from(offered.clone()).into(),
                false => offered.clone().into(),
            };
            send(end, buf, &offered, fate, model, broken).await;
        }
        WriteCall::Writable => {
            if let Some(Err(error)) = partial(fate, end.writable()).await {
                model.write_failed(&error, broken);
            }
        }
        WriteCall::Flush => {
            if let Some(Err(error)) = partial(fate, end.flush()).await {
                model.write_failed(&error, broken);
            }
        }
        WriteCall::Shutdown => {
            if fate.polls > 0 && model.end == End::Open {
                model.end = End::Wanted;
            }
            match partial(fate, end.close()).await {
                Some(Ok(())) => model.end = End::Sent,
                Some(Err(error)) => model.write_failed(&error, broken),
                None => {}
            }
        }
    }
}

/// All of `buf` or nothing.
pub async fn send(
    end: &impl WriteEnd,
    buf: SendBuf,
    shows: &[u8],
    fate: Fate,
    model: &mut Direction,
    broken: &Broken,
) {
    let done = partial(fate, end.send(buf)).await;
    give(
        done.map(|sent| sent.map(|()| shows.len())),
        shows,
        model,
        broken,
    );
}

fn give(done: Option<io::Result<usize>>, offered: &[u8], model: &mut Direction, broken: &Broken) {
    match done {
        Some(Ok(0)) if offered.is_empty() => {}
        Some(Ok(taken)) => model.wrote(offered, taken),
        Some(Err(error)) => model.write_failed(&error, broken),
        None => {}
    }
}

fn not_yet(tried: io::Result<usize>) -> Option<io::Result<usize>> {
    match tried {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        tried => Some(tried),
    }
}
