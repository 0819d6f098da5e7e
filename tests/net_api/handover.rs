//! Sockets that come from `std` and go back to it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use futures::{AsyncReadExt, FutureExt};
use net::{TcpListener, TcpSocket, TcpStream};
use socket2::SockRef;

use crate::{ANY_PORT, assert_same, block_on, connected, numbered, on_thread};

#[test]
fn a_stream_goes_back_with_the_bytes_that_nobody_read() -> io::Result<()> {
    block_on(async {
        let sent = numbered(300_000);
        let (mut stream, mut peer) = connected().await?;
        let to_send = sent.clone();
        let writer = on_thread(move || peer.write_all(&to_send));
        let mut received = vec![0; 1000];
        stream.read_exact(&mut received).await?;
        stream.readable().await?;

        let (mut stream, unread) = stream.into_std().await?;
        assert!(!unread.is_empty());
        received.extend(unread);
        let rest = on_thread(move || {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).map(|_| rest)
        });
        received.extend(rest.await?);
        assert_same(&received, &sent);
        writer.await
    })
}

#[test]
fn a_stream_goes_back_once_its_outbox_is_empty() -> io::Result<()> {
    block_on(async {
        let sent = numbered(8 << 20);
        let (stream, mut peer) = connected().await?;
        stream.send(sent.clone()).await?;
        let received = on_thread(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).map(|_| received)
        });
        let (mut stream, unread) = stream.into_std().await?;
        assert!(unread.is_empty());
        stream.write_all(b"by std")?;
        drop(stream);
        assert_same(&received.await?, &[&sent[..], b"by std"].concat());
        Ok(())
    })
}

#[test]
fn a_stream_that_was_never_used_goes_back() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let (mut stream, unread) = stream.into_std().await?;
        assert!(unread.is_empty());
        peer.write_all(b"x")?;
        assert_eq!(stream.read(&mut [0; 1])?, 1);
        Ok(())
    })
}

#[test]
fn a_reunited_stream_goes_back_with_both_directions() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        let (rx, tx) = stream.into_split();
        let (mut stream, _) = rx.reunite(tx).unwrap().into_std().await?;
        stream.write_all(b"x")?; // dropping a write half would have ended this direction
        assert_eq!(peer.read(&mut [0; 1])?, 1);
        Ok(())
    })
}

#[test]
fn a_stream_that_has_ended_goes_back() -> io::Result<()> {
    block_on(async {
        let (stream, mut peer) = connected().await?;
        peer.write_all(b"end")?;
        drop(peer);
        stream.readable().await?;
        let (mut stream, mut received) = stream.into_std().await?;
        stream.read_to_end(&mut received)?;
        assert_eq!(received, b"end");
        Ok(())
    })
}

#[test]
fn a_stream_comes_and_goes_many_times() -> io::Result<()> {
    block_on(async {
        let sent = numbered(64 * 1024);
        let (mut stream, mut peer) = connected().await?;
        let to_send = sent.clone();
        let writer = on_thread(move || peer.write_all(&to_send));
        let mut received = Vec::new();
        loop {
            stream.readable().await?;
            let mut buf = [0; 10];
            match stream.read(&mut buf).await? {
                0 => break,
                read => received.extend_from_slice(&buf[..read]),
            }
            let (plain, unread) = stream.into_std().await?;
            received.extend(unread);
            stream = TcpStream::try_from(plain)?;
        }
        assert_same(&received, &sent);
        writer.await
    })
}

#[test]
fn sockets_from_std_may_be_nonblocking_and_go_back_blocking() -> io::Result<()> {
    block_on(async {
        let listener = std::net::TcpListener::bind(ANY_PORT)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;

        let client = std::net::TcpStream::connect(listener.local_addr()?)?;
        client.set_nonblocking(true)?;
        let client = TcpStream::from_std(client)?;

        let (mut stream, _) = listener.accept().await?;
        client.send("works").await?;
        let mut received = [0; 5];
        stream.read_exact(&mut received).await?;

        for plain in [client.into_std().await?.0, stream.into_std().await?.0] {
            assert!(!SockRef::from(&plain).nonblocking()?);
        }
        let (listener, _) = listener.into_std().await?;
        assert!(!SockRef::from(&listener).nonblocking()?);
        Ok(())
    })
}

#[test]
fn a_bare_socket_made_elsewhere_connects() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let bare = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        bare.set_nonblocking(true)?;
        let socket = TcpSocket::from_std_stream(bare.into());
        let stream = socket.connect(listener.local_addr()?).await?;
        let (_accepted, peer) = listener.accept().await?;
        assert_eq!(peer, stream.local_addr()?);
        Ok(())
    })
}

#[test]
fn a_listener_goes_back_with_the_connections_that_nobody_took() -> io::Result<()> {
    block_on(async {
        const CLIENTS: usize = 20;
        let listener = TcpListener::try_from(std::net::TcpListener::bind(ANY_PORT)?)?;
        let server = listener.local_addr()?;
        assert!(listener.accept().now_or_never().is_none()); // accepting has begun
        let connect = |_| std::net::TcpStream::connect(server);
        let clients = (0..CLIENTS).map(connect).collect::<io::Result<Vec<_>>>()?;
        let (_first, peer) = listener.accept().await?;

        let (listener, accepted) = listener.into_std().await?;
        let mut peers: Vec<SocketAddr> = vec![peer];
        for stream in accepted {
            assert!(!SockRef::from(&stream).nonblocking()?);
            peers.push(stream.peer_addr()?);
        }
        // The kernel kept the rest for whoever accepts next.
        listener.set_nonblocking(true)?;
        let error = loop {
            match listener.accept() {
                Ok((_stream, peer)) => peers.push(peer),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);

        let mut expected = clients
            .iter()
            .map(|c| c.local_addr())
            .collect::<io::Result<Vec<_>>>()?;
        peers.sort();
        expected.sort();
        assert_eq!(peers, expected);
        Ok(())
    })
}
