//! Reading and writing: every way, mixed, at the edges.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

use bytes::Bytes;
use futures::stream::FusedStream;
use futures::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt, try_join};
use socket2::SockRef;

use crate::{assert_same, block_on, connected, numbered, on_thread, reset};

const MIB: usize = 1 << 20;

#[test]
fn bytes_cross_in_both_directions_and_then_end() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        let peer = on_thread(move || {
            let mut question = [0; 8];
            peer.read_exact(&mut question)?;
            peer.write_all(b"answer").map(|()| question)
        });
        stream.write_all(b"question").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert_eq!(answer, "answer");
        assert_eq!(&peer.await?, b"question");
        // The end stays the end, in every way of reading.
        assert_eq!(stream.read(&mut [0; 4]).await?, 0);
        assert_eq!(stream.peek(&mut [0; 4]).await?, 0);
        assert_eq!(stream.fill_buf().await?, b"");
        assert!(stream.recv_stream().next().await.is_none());
        stream.readable().await?;
        assert_eq!(stream.try_read(&mut [0; 4])?, 0);
        Ok(())
    })
}

/// B37.
#[test]
fn empty_buffers_give_zero_at_once() -> io::Result<()> {
    block_on(async {
        let (mut stream, _peer) = connected().await?;
        // Nothing has arrived, and nothing will.
        assert_eq!(stream.read(&mut []).await?, 0);
        assert_eq!(stream.peek(&mut []).await?, 0);
        assert_eq!(stream.try_read(&mut [])?, 0);
        assert_eq!(stream.read_vectored(&mut []).await?, 0);
        let mut bufs = [IoSliceMut::new(&mut []), IoSliceMut::new(&mut [])];
        assert_eq!(stream.try_read_vectored(&mut bufs)?, 0);
        assert_eq!(stream.read_vectored(&mut bufs).await?, 0);

        assert_eq!(stream.write(&[]).await?, 0);
        assert_eq!(stream.try_write(&[])?, 0);
        assert_eq!(stream.write_vectored(&[]).await?, 0);
        let bufs = [IoSlice::new(&[]), IoSlice::new(&[])];
        assert_eq!(stream.write_vectored(&bufs).await?, 0);
        assert_eq!(stream.try_write_vectored(&bufs)?, 0);
        stream.send("").await?;
        stream.flush().await
    })
}

/// B37.
#[test]
fn write_vectored_takes_more_slices_than_the_kernel_would() -> io::Result<()> {
    block_on(async {
        // The kernel's limit is 1024. Every third member is empty.
        let sent = numbered(6000);
        let mut slices: Vec<_> = sent
            .chunks(2)
            .flat_map(|pair| {
                [
                    IoSlice::new(&pair[..1]),
                    IoSlice::new(&[]),
                    IoSlice::new(&pair[1..]),
                ]
            })
            .collect();
        let (mut stream, mut peer) = connected().await?;
        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).map(|_| received)
        });
        write_all_vectored(&mut stream, &mut slices).await?;
        stream.close().await?;
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

/// B37.
#[test]
fn short_vectored_writes_go_on_at_the_right_place() -> io::Result<()> {
    block_on(async {
        let sent = numbered(4 * MIB);
        // Sizes that share no divisor with any buffer, so that a write ends inside of a slice.
        let mut slices: Vec<_> = sent.chunks(1021).map(IoSlice::new).collect();
        let (mut stream, mut peer) = connected().await?;
        SockRef::from(&stream).set_send_buffer_size(4096)?;
        let received = on_thread(move || read_and_acknowledge(&mut peer));
        write_all_vectored(&mut stream, &mut slices).await?;
        stream.close().await?;
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

async fn write_all_vectored(
    stream: &mut net::TcpStream,
    mut slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // skips empty members, so that 0 means no progress
    while !slices.is_empty() {
        let written = stream.write_vectored(slices).await?;
        assert_ne!(written, 0);
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

#[test]
fn read_vectored_fills_its_buffers_in_order() -> io::Result<()> {
    block_on(async {
        let sent = numbered(3000);
        let (mut stream, mut peer) = connected().await?;
        peer.write_all(&sent)?;
        drop(peer);

        let mut received = Vec::new();
        loop {
            let mut bytes = [[0u8; 1]; 1500];
            let mut nothing = [];
            let mut bufs = vec![IoSliceMut::new(&mut nothing)];
            bufs.extend(bytes.iter_mut().map(|byte| IoSliceMut::new(byte)));
            let read = stream.read_vectored(&mut bufs).await?;
            if read == 0 {
                break;
            }
            received.extend_from_slice(&bytes.as_flattened()[..read]);
        }
        assert_same(&received, &sent);
        Ok(())
    })
}

/// B37.
#[test]
fn write_all_of_64_mib_through_a_send_buffer_of_4_kib() -> io::Result<()> {
    block_on(async {
        let sent = numbered(64 * MIB);
        let (mut stream, mut peer) = connected().await?;
        SockRef::from(&stream).set_send_buffer_size(4096)?;
        let received = on_thread(move || read_and_acknowledge(&mut peer));
        stream.write_all(&sent).await?;
        stream.close().await?;
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

/// Reads to the end. A sender with so small a buffer gets on only as fast as its bytes are
/// acknowledged, and the kernel puts that off by up to 40 ms unless it is told not to, each time.
fn read_and_acknowledge(peer: &mut std::net::TcpStream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    loop {
        SockRef::from(&*peer).set_tcp_quickack(true)?;
        let before = received.len();
        received.resize(before + 64 * 1024, 0);
        let read = peer.read(&mut received[before..])?;
        received.truncate(before + read);
        if read == 0 {
            return Ok(received);
        }
    }
}

#[test]
fn a_buffer_that_is_sent_may_be_larger_than_the_outbox() -> io::Result<()> {
    block_on(async {
        let sent = numbered(4 * MIB);
        let (mut stream, mut peer) = connected().await?;
        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).map(|_| received)
        });
        stream.send(sent.clone()).await?;
        stream.close().await?;
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

/// B35.
#[test]
fn writes_and_sends_of_every_kind_keep_their_order() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        peer.write_all(b"leased ")?;
        let lease = stream.recv_stream().next().await.unwrap()?;

        stream.write_all(b"written ").await?;
        stream.send("static ").await?;
        stream.send(lease).await?;
        assert_eq!(stream.try_write(b"tried ")?, 6);
        stream.send(Vec::from("vec ")).await?;
        stream.send(String::from("string ")).await?;
        let vectored = [IoSlice::new(b"vec"), IoSlice::new(b"tored ")];
        assert_eq!(stream.write_vectored(&vectored).await?, 9);
        stream.send(Bytes::from_static(b"bytes ")).await?;
        stream.send(Box::<[u8]>::from(*b"box")).await?;
        stream.close().await?;

        let received = on_thread(move || io::read_to_string(&mut peer)).await?;
        assert_eq!(
            received,
            "written static leased tried vec string vectored bytes box"
        );
        Ok(())
    })
}

#[test]
fn peek_takes_nothing() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        peer.write_all(b"peeked")?;
        for _ in 0..2 {
            let mut first = [0; 1];
            assert_eq!(stream.peek(&mut first).await?, 1);
            assert_eq!(&first, b"p");
        }
        drop(peer);
        let mut received = String::new();
        stream.read_to_string(&mut received).await?;
        assert_eq!(received, "peeked");
        Ok(())
    })
}

#[test]
fn all_ways_of_reading_can_be_mixed_on_one_stream() -> io::Result<()> {
    block_on(async {
        let sent = numbered(4 * MIB);
        let (mut stream, mut peer) = connected().await?;
        let to_send = sent.clone();
        let writer = on_thread(move || peer.write_all(&to_send));

        let mut received = Vec::new();
        for way in 0.. {
            let before = received.len();
            read_somehow(&mut stream, way, &mut received).await?;
            if received.len() == before {
                break;
            }
        }
        assert_same(&received, &sent);
        writer.await
    })
}

/// Reads something in one of seven ways; nothing only at the end of the stream.
async fn read_somehow(
    stream: &mut net::TcpStream,
    way: usize,
    received: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buf = [0; 1999];
    match way % 7 {
        0 => {
            let read = stream.read(&mut buf).await?;
            received.extend_from_slice(&buf[..read]);
        }
        1 => {
            let available = stream.fill_buf().await?;
            let half = available.len().div_ceil(2);
            received.extend_from_slice(&available[..half]);
            stream.consume_unpin(half);
        }
        2 => {
            // A lease that is dropped half read would lose its rest: it belongs to its owner.
            if let Some(lease) = stream.recv_stream().next().await {
                received.extend_from_slice(&lease?);
            }
        }
        3 => {
            let peeked = stream.peek(&mut buf[..100]).await?;
            let mut read = [0; 100];
            stream.read_exact(&mut read[..peeked]).await?;
            assert_eq!(buf[..peeked], read[..peeked]);
            received.extend_from_slice(&read[..peeked]);
        }
        4 => loop {
            stream.readable().await?;
            match stream.try_read(&mut buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                outcome => break received.extend_from_slice(&buf[..outcome?]),
            }
        },
        5 => {
            let (head, tail) = buf.split_at_mut(7);
            let mut bufs = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            let read = stream.read_vectored(&mut bufs).await?;
            received.extend_from_slice(&buf[..read]);
        }
        _ => {
            let (mut rx, _tx) = net::TcpStream::split(stream);
            let read = rx.read(&mut buf).await?;
            received.extend_from_slice(&buf[..read]);
        }
    }
    Ok(())
}

#[test]
fn a_stream_of_chunks_gives_each_of_them_and_ends_once() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        let sent = numbered(MIB);
        let to_send = sent.clone();
        let writer = on_thread(move || peer.write_all(&to_send));
        let mut received = Vec::new();
        let mut chunks = stream.recv_stream();
        while let Some(chunk) = chunks.next().await {
            assert!(!chunks.is_terminated());
            received.extend_from_slice(&chunk?);
        }
        assert!(chunks.is_terminated());
        assert!(chunks.next().await.is_none());
        assert_same(&received, &sent);
        writer.await
    })
}

#[test]
fn a_stream_of_chunks_ends_after_an_error() -> io::Result<()> {
    block_on(async {
        let (mut stream, peer) = connected().await?;
        let mut chunks = stream.recv_stream();
        assert!(chunks.next().now_or_never().is_none());
        assert!(!chunks.is_terminated());
        reset(peer);
        let error = chunks.next().await.expect("an error").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(chunks.is_terminated());
        assert!(chunks.next().await.is_none());
        Ok(())
    })
}

#[test]
fn try_read_would_block_until_something_arrives() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let mut buf = [0; 8];
        let error = stream.try_read(&mut buf).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let error = stream
            .try_read_vectored(&mut [IoSliceMut::new(&mut buf)])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(stream.readable().now_or_never().is_none());

        peer.write_all(b"arrived")?;
        stream.readable().await?;
        assert_eq!(stream.try_read(&mut buf)?, 7);
        assert_eq!(&buf[..7], b"arrived");
        let error = stream.try_read(&mut buf).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        Ok(())
    })
}

#[test]
fn try_write_would_block_until_the_outbox_has_room() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        let chunk = numbered(16 * 1024);
        let mut sent = Vec::new();
        // Nothing leaves the outbox before this task gives way.
        let error = loop {
            match stream.try_write(&chunk) {
                Ok(accepted) => sent.extend_from_slice(&chunk[..accepted]),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let more = [IoSlice::new(b"mo"), IoSlice::new(b"re")];
        let error = stream.try_write_vectored(&more).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(stream.writable().now_or_never().is_none());
        assert!(stream.write(b"more").now_or_never().is_none());
        assert!(stream.write_vectored(&more).now_or_never().is_none());
        assert!(stream.send("more").now_or_never().is_none());

        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).map(|_| received)
        });
        stream.writable().await?;
        assert_eq!(stream.try_write_vectored(&more)?, 4);
        sent.extend_from_slice(b"more");
        stream.close().await?;
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

#[test]
fn dropped_reads_lose_nothing() -> io::Result<()> {
    block_on(async {
        let sent = numbered(MIB);
        let (mut stream, mut peer) = connected().await?;
        let to_send = sent.clone();
        let writer = on_thread(move || peer.write_all(&to_send));

        let mut received = Vec::new();
        let mut buf = [0; 777];
        loop {
            // Every way of waiting, each dropped after one poll.
            let _ = stream.peek(&mut buf).now_or_never();
            let _ = stream.readable().now_or_never();
            let _ = stream.fill_buf().now_or_never();
            match stream.read(&mut buf).now_or_never() {
                Some(read) => match read? {
                    0 => break,
                    read => received.extend_from_slice(&buf[..read]),
                },
                None => runtime::yield_now().await,
            }
        }
        assert_same(&received, &sent);
        writer.await
    })
}

#[test]
fn a_shared_reference_reads_and_writes() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let echo = on_thread(move || {
            let mut received = [0; 1000];
            peer.read_exact(&mut received)?;
            peer.write_all(&received)
        });
        let sent = numbered(1000);
        let mut received = vec![0; 1000];
        let (mut rx, mut tx) = (&stream, &stream);
        try_join!(rx.read_exact(&mut received), tx.write_all(&sent))?;
        assert_same(&received, &sent);
        echo.await
    })
}

#[test]
fn lines_can_be_read_from_a_stream() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        peer.write_all(b"one\ntwo\nthree")?;
        drop(peer);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        assert_eq!(line, "one\n");
        let rest: Vec<_> = stream.lines().collect().await;
        let rest: io::Result<Vec<_>> = rest.into_iter().collect();
        assert_eq!(rest?, ["two", "three"]);
        Ok(())
    })
}
