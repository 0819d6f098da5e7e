//! Ends: half close, halves, drops, resets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt, join, try_join};
use net::TcpStream;
use net::tcp::ReuniteError;

use crate::{assert_same, block_on, connected, numbered, on_thread, reset};

fn read_to_end(mut peer: std::net::TcpStream) -> impl Future<Output = io::Result<Vec<u8>>> {
    on_thread(move || {
        let mut received = Vec::new();
        peer.read_to_end(&mut received).map(|_| received)
    })
}

#[test]
fn a_peer_that_has_finished_can_still_be_answered() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        peer.write_all(b"question")?;
        peer.shutdown(Shutdown::Write)?;
        let mut question = String::new();
        stream.read_to_string(&mut question).await?;
        assert_eq!(question, "question");
        stream.write_all(b"answer").await?;
        drop(stream);
        assert_eq!(read_to_end(peer).await?, b"answer");
        Ok(())
    })
}

#[test]
fn closing_finishes_the_writing_side_only() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        let answered = on_thread(move || {
            let mut question = String::new();
            peer.read_to_string(&mut question)?;
            peer.write_all(b"answer").map(|()| question)
        });
        stream.write_all(b"question").await?;
        stream.close().await?;
        stream.close().await?; // again is fine
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert_eq!(answer, "answer");
        assert_eq!(answered.await?, "question");
        Ok(())
    })
}

#[test]
fn writing_after_the_writing_side_was_shut_down_is_a_broken_pipe() -> io::Result<()> {
    block_on(async {
        let (mut stream, _peer) = connected().await?;
        stream.shutdown(Shutdown::Write).await?;
        let error = stream.write_all(b"late").await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        let error = stream.try_write(b"late").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        let error = stream.send("late").await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        Ok(())
    })
}

#[test]
fn shutting_the_reading_side_down_ends_a_read_that_waits() -> io::Result<()> {
    block_on(async {
        let (stream, peer) = connected().await?;
        let mut buf = [0; 1];
        let mut reader = &stream;
        let (read, shut) = join!(reader.read(&mut buf), stream.shutdown(Shutdown::Read));
        shut?;
        assert_eq!(read?, 0);
        // The other direction is as it was.
        stream.send("still here").await?;
        drop(stream);
        assert_eq!(read_to_end(peer).await?, b"still here");
        Ok(())
    })
}

#[test]
fn shutting_both_sides_down_sends_what_was_written_first() -> io::Result<()> {
    block_on(async {
        let sent = numbered(1 << 20);
        let (mut stream, mut peer) = connected().await?;
        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).map(|_| (received, peer))
        });
        stream.send(sent.clone()).await?;
        stream.shutdown(Shutdown::Both).await?;
        let (received, _peer) = received.await?; // the peer has not closed its side
        assert_same(&received, &sent);
        assert_eq!(stream.read(&mut [0; 1]).await?, 0);
        Ok(())
    })
}

#[test]
fn dropping_a_stream_sends_what_was_written_and_then_ends() -> io::Result<()> {
    block_on(async {
        let sent = numbered(8 << 20);
        let (stream, peer) = connected().await?;
        stream.send(sent.clone()).await?;
        drop(stream);
        assert_same(&read_to_end(peer).await?, &sent);
        Ok(())
    })
}

#[test]
fn what_was_written_leaves_even_if_the_program_ends_at_once() -> io::Result<()> {
    let (sent, peer) = block_on(async {
        let (stream, peer) = connected().await?;
        let received = std::thread::spawn(move || io::read_to_string(peer));
        let sent = "x".repeat(4 << 20);
        stream.send(sent.clone()).await?;
        io::Result::Ok((sent, received))
    })?;
    assert_same(peer.join().unwrap()?.as_bytes(), sent.as_bytes());
    Ok(())
}

#[test]
fn closing_does_not_wait_for_the_reader() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let (mut rx, mut tx) = stream.into_split();
        let reader = runtime::spawn(async move { rx.read(&mut [0; 1]).await });
        runtime::yield_now().await; // the reader waits now
        tx.close().await?;
        let peer_saw = on_thread(move || peer.read(&mut [0; 1]).map(|read| (read, peer)));
        let (read, peer) = peer_saw.await?;
        assert_eq!(read, 0);
        drop(peer);
        assert_eq!(reader.await.unwrap()?, 0);
        Ok(())
    })
}

#[test]
fn dropping_the_write_half_sends_the_rest_and_then_ends() -> io::Result<()> {
    block_on(async {
        let sent = numbered(4 << 20);
        let (stream, mut peer) = connected().await?;
        let (mut rx, tx) = stream.into_split();
        tx.send(sent.clone()).await?;
        drop(tx);
        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received)?;
            peer.write_all(b"bye").map(|()| received)
        });
        let mut bye = String::new();
        rx.read_to_string(&mut bye).await?;
        assert_eq!(bye, "bye");
        assert_same(&received.await?, &sent);
        Ok(())
    })
}

#[test]
fn forgetting_the_write_half_keeps_the_writing_side_open() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let (mut rx, tx) = stream.into_split();
        tx.send("sent").await?;
        tx.forget();
        peer.write_all(b"received")?;
        let mut received = [0; 8];
        rx.read_exact(&mut received).await?;

        let sent = on_thread(move || {
            let mut sent = [0; 4];
            peer.read_exact(&mut sent)?;
            peer.set_nonblocking(true)?;
            let error = peer.read(&mut [0; 1]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock); // not the end
            peer.set_nonblocking(false)?;
            io::Result::Ok((sent, peer))
        });
        let (sent, peer) = sent.await?;
        assert_eq!(&sent, b"sent");
        drop(rx);
        assert_eq!(read_to_end(peer).await?, b"");
        Ok(())
    })
}

#[test]
fn reunited_halves_are_the_stream_that_they_were() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let (mut rx, tx) = stream.into_split();
        peer.write_all(b"head tail")?;
        let mut head = [0; 5];
        rx.read_exact(&mut head).await?;
        tx.send("early ").await?;

        let mut stream = rx.reunite(tx).unwrap();
        let mut tail = [0; 4];
        stream.read_exact(&mut tail).await?;
        assert_eq!(&tail, b"tail");
        stream.send("late").await?;
        let (rx, tx) = stream.into_split();
        drop(tx.reunite(rx).unwrap());
        assert_eq!(read_to_end(peer).await?, b"early late");
        Ok(())
    })
}

#[test]
fn halves_of_two_streams_are_handed_back() -> io::Result<()> {
    block_on(async {
        let ((one, _peer), (two, _other_peer)) = (connected().await?, connected().await?);
        let (one_rx, one_tx) = one.into_split();
        let (two_rx, two_tx) = two.into_split();
        let error = one_rx.reunite(two_tx).unwrap_err();
        assert_eq!(error.to_string(), "the halves are of different streams");
        let ReuniteError(one_rx, two_tx) = error;
        assert!(one_tx.reunite(one_rx).is_ok());
        assert!(two_rx.reunite(two_tx).is_ok());
        Ok(())
    })
}

#[test]
fn halves_have_what_the_stream_has() -> io::Result<()> {
    block_on(async {
        let (mut stream, mut peer) = connected().await?;
        let (local, remote, fd) = (
            stream.local_addr()?,
            stream.peer_addr()?,
            stream.as_raw_fd(),
        );

        peer.write_all(b"borrowed")?;
        let (mut rx, mut tx) = TcpStream::split(&mut stream);
        assert_eq!(
            (rx.local_addr()?, rx.peer_addr()?, rx.as_raw_fd()),
            (local, remote, fd)
        );
        assert_eq!(
            (tx.local_addr()?, tx.peer_addr()?, tx.as_raw_fd()),
            (local, remote, fd)
        );
        assert!(format!("{rx:?}").starts_with("ReadHalf"));
        assert!(format!("{tx:?}").starts_with("WriteHalf"));
        rx.readable().await?;
        let mut buf = [0; 8];
        assert_eq!(rx.peek(&mut buf[..4]).await?, 4);
        assert_eq!(rx.try_read(&mut buf[..4])?, 4);
        assert_eq!(&*rx.recv_stream().next().await.unwrap()?, b"owed");
        tx.writable().await?;
        tx.try_write(b"1")?;
        tx.write_all(b"2").await?;
        tx.send("3").await?;

        peer.write_all(b"owned")?;
        let (mut rx, mut tx) = stream.into_split();
        assert_eq!(
            (rx.local_addr()?, rx.peer_addr()?, rx.as_raw_fd()),
            (local, remote, fd)
        );
        assert_eq!(
            (tx.local_addr()?, tx.peer_addr()?, tx.as_raw_fd()),
            (local, remote, fd)
        );
        assert!(format!("{rx:?}").starts_with("OwnedReadHalf"));
        assert!(format!("{tx:?}").starts_with("OwnedWriteHalf"));
        rx.readable().await?;
        assert_eq!(rx.peek(&mut buf[..2]).await?, 2);
        assert_eq!(rx.try_read(&mut buf[..2])?, 2);
        assert_eq!(&*rx.recv_stream().next().await.unwrap()?, b"ned");
        tx.writable().await?;
        tx.try_write(b"4")?;
        tx.write_all(b"5").await?;
        tx.send("6").await?;
        tx.close().await?;
        assert_eq!(read_to_end(peer).await?, b"123456");
        Ok(())
    })
}

#[test]
fn a_reset_reaches_a_read_that_waits() -> io::Result<()> {
    block_on(async {
        let (mut stream, peer) = connected().await?;
        let mut buf = [0; 1];
        let (read, ()) = join!(stream.read(&mut buf), async { reset(peer) });
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
        Ok(())
    })
}

#[test]
fn a_reset_reaches_a_recv_stream_that_waits() -> io::Result<()> {
    block_on(async {
        let (mut stream, peer) = connected().await?;
        let mut chunks = stream.recv_stream();
        let (item, ()) = join!(chunks.next(), async { reset(peer) });
        let error = item.unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        assert!(chunks.next().await.is_none());
        Ok(())
    })
}

#[test]
fn a_reset_makes_a_waiting_stream_readable() -> io::Result<()> {
    block_on(async {
        let (stream, peer) = connected().await?;
        let (ready, ()) = join!(stream.readable(), async { reset(peer) });
        ready?;
        let error = stream.try_read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        Ok(())
    })
}

#[test]
fn a_reset_ends_a_write_that_waits() -> io::Result<()> {
    block_on(async {
        let (mut stream, peer) = connected().await?;
        let endless = vec![0; 64 << 20];
        let (written, ()) = join!(stream.write_all(&endless), async { reset(peer) });
        assert_gone(&written.unwrap_err());
        Ok(())
    })
}

#[test]
fn writing_to_a_peer_that_is_gone_becomes_an_error_and_no_signal() -> io::Result<()> {
    // SAFETY: the default action has no handler that could be wrong. std ignores SIGPIPE, which
    // would hide a send without MSG_NOSIGNAL; the peers of the other tests use that flag too.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    block_on(async {
        let (mut stream, peer) = connected().await?;
        drop(peer);
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 1000]).await {
                break error;
            }
            runtime::yield_now().await;
        };
        assert_gone(&error);
        Ok(())
    })
}

/// The kernel says either, by whether the reset came before or after the send.
fn assert_gone(error: &io::Error) {
    let errno = error.raw_os_error();
    assert!(
        matches!(errno, Some(libc::EPIPE | libc::ECONNRESET)),
        "{error:?}"
    );
}

#[test]
fn a_linger_of_zero_resets() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        stream.set_linger(Some(Duration::ZERO))?;
        drop(stream);
        let error = on_thread(move || peer.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        Ok(())
    })
}

#[test]
fn a_peer_that_has_finished_and_reads_late_gets_everything() -> io::Result<()> {
    block_on(async {
        let sent = numbered(10 << 20);
        let (mut stream, peer) = connected().await?;
        peer.shutdown(Shutdown::Write)?;
        assert_eq!(stream.read(&mut [0; 1]).await?, 0);

        // The peer starts to read only after the writer has filled every buffer on the way.
        let mut writing = Box::pin(async move {
            stream.write_all(&sent).await?;
            stream.close().await.map(|()| sent)
        });
        while (&mut writing).now_or_never().is_none() && writing_can_go_on(&peer)? {
            runtime::yield_now().await;
        }
        let (received, sent) = try_join!(read_to_end(peer), writing)?;
        assert_same(&received, &sent);
        Ok(())
    })
}

/// Whether less than a good part of the kernel's receive buffer is filled.
fn writing_can_go_on(peer: &std::net::TcpStream) -> io::Result<bool> {
    let mut waiting = [0; 16 * 1024];
    peer.set_nonblocking(true)?;
    let peeked = peer.peek(&mut waiting);
    peer.set_nonblocking(false)?;
    match peeked {
        Ok(peeked) => Ok(peeked < waiting.len()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}
