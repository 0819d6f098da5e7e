//! Listeners: addresses, waiters, dropped futures, errors, options.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::rc::Rc;

use futures::{AsyncReadExt, FutureExt, StreamExt};
use net::{TcpListener, TcpSocket};
use socket2::{Domain, SockRef, Socket, Type};

use crate::{ANY_PORT, block_on, on_thread, reset};

/// A client from a given local IP address, which the kernel gives a port of its own.
fn client_from(ip: IpAddr, server: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(ip, 0).into())?;
    socket.connect(&server.into())?;
    Ok(socket.into())
}

/// A burst of clients, each of which says what its address is.
fn burst(count: usize, ip: IpAddr, server: SocketAddr) -> io::Result<Vec<std::net::TcpStream>> {
    (0..count)
        .map(|_| {
            let mut client = client_from(ip, server)?;
            write!(client, "{}", client.local_addr()?)?;
            client.shutdown(Shutdown::Write)?;
            Ok(client)
        })
        .collect()
}

async fn accept_burst(ip: IpAddr, bind_to: IpAddr) -> io::Result<()> {
    const CLIENTS: usize = 200;
    let listener = TcpListener::bind((bind_to, 0)).await?;
    let server = listener.local_addr()?;
    let clients = on_thread(move || burst(CLIENTS, ip, server));

    let mut accepted = Vec::new();
    while accepted.len() < CLIENTS {
        accepted.push(listener.accept().await?);
    }
    for (stream, address) in &mut accepted {
        let mut said = String::new();
        stream.read_to_string(&mut said).await?;
        assert_eq!(said, address.to_string());
        assert_eq!(stream.peer_addr()?, *address);
        assert_eq!(stream.local_addr()?, server);
        assert_eq!(address.ip(), ip);
    }
    clients.await.map(drop)
}

/// B21.
#[test]
fn accept_names_each_of_200_ipv4_peers() -> io::Result<()> {
    let source = Ipv4Addr::new(127, 0, 0, 2).into();
    block_on(accept_burst(source, Ipv4Addr::LOCALHOST.into()))
}

/// B21.
#[test]
fn accept_names_each_of_200_ipv6_peers() -> io::Result<()> {
    let loopback = Ipv6Addr::LOCALHOST.into();
    block_on(accept_burst(loopback, loopback))
}

#[test]
fn incoming_is_every_connection_once() -> io::Result<()> {
    block_on(async {
        const CLIENTS: usize = 200;
        let listener = TcpListener::bind(ANY_PORT).await?;
        let server = listener.local_addr()?;
        let clients = on_thread(move || burst(CLIENTS, Ipv4Addr::LOCALHOST.into(), server));

        let mut incoming = listener.incoming().take(CLIENTS);
        let mut streams = Vec::new();
        while let Some(stream) = incoming.next().await {
            streams.push(stream?);
        }
        let clients = clients.await?;
        let peers = streams.iter().map(net::TcpStream::peer_addr);
        let mut peers = peers.collect::<io::Result<Vec<_>>>()?;
        let mut expected: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
        peers.sort();
        expected.sort();
        assert_eq!(peers, expected);
        Ok(())
    })
}

/// B21.
#[test]
fn accept_skips_a_peer_that_has_reset() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let server = listener.local_addr()?;
        reset(std::net::TcpStream::connect(server)?);
        let client = std::net::TcpStream::connect(server)?;

        let (_stream, peer) = listener.accept().await?;
        assert_eq!(peer, client.local_addr()?);
        Ok(())
    })
}

/// B21.
#[test]
fn incoming_hands_out_a_peer_that_has_reset_as_a_broken_stream() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        reset(std::net::TcpStream::connect(listener.local_addr()?)?);

        let mut stream = listener.incoming().next().await.unwrap()?;
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        Ok(())
    })
}

#[test]
fn each_connection_goes_to_one_of_several_waiting_tasks() -> io::Result<()> {
    block_on(async {
        const TASKS: usize = 8;
        let listener = Rc::new(TcpListener::bind(ANY_PORT).await?);
        let server = listener.local_addr()?;
        let accept_one = |_| {
            let listener = Rc::clone(&listener);
            runtime::spawn(async move { listener.accept().await })
        };
        let tasks: Vec<_> = (0..TASKS).map(accept_one).collect();
        runtime::yield_now().await; // all of them wait now

        let clients = on_thread(move || burst(TASKS, Ipv4Addr::LOCALHOST.into(), server));
        let mut accepted = Vec::new();
        for task in tasks {
            accepted.push(task.await.unwrap()?);
        }
        clients.await?;
        let peers: BTreeSet<_> = accepted.iter().map(|(_stream, peer)| peer).collect();
        assert_eq!(peers.len(), TASKS);
        Ok(())
    })
}

#[test]
fn a_waiter_that_is_gone_does_not_keep_the_connection_from_another() -> io::Result<()> {
    block_on(async {
        let listener = Rc::new(TcpListener::bind(ANY_PORT).await?);
        let accept_one = || {
            let listener = Rc::clone(&listener);
            runtime::spawn(async move { listener.accept().await })
        };
        let (first, second, third) = (accept_one(), accept_one(), accept_one());
        runtime::yield_now().await; // all of them wait now
        first.abort();
        third.abort();

        let client = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (_stream, peer) = second.await.unwrap()?;
        assert_eq!(peer, client.local_addr()?);
        Ok(())
    })
}

#[test]
fn a_dropped_accept_loses_no_connection() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        for _ in 0..100 {
            assert!(listener.accept().now_or_never().is_none());
            let client = std::net::TcpStream::connect(listener.local_addr()?)?;
            let (_stream, peer) = loop {
                // Each round drops an accept that waits, until one is ready at its first poll.
                match listener.accept().now_or_never() {
                    Some(accepted) => break accepted?,
                    None => runtime::yield_now().await,
                }
            };
            assert_eq!(peer, client.local_addr()?);
        }
        Ok(())
    })
}

#[test]
fn accept_and_incoming_can_be_mixed() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let server = listener.local_addr()?;
        let clients = burst(3, Ipv4Addr::LOCALHOST.into(), server)?;
        let mut incoming = listener.incoming();
        let first = incoming.next().await.unwrap()?;
        let (second, _) = listener.accept().await?;
        let third = incoming.next().await.unwrap()?;
        for (client, stream) in clients.iter().zip([first, second, third]) {
            assert_eq!(stream.peer_addr()?, client.local_addr()?);
        }
        Ok(())
    })
}

/// B19.
#[test]
fn incoming_ends_after_the_listening_socket_was_shut_down() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let mut incoming = pin!(listener.incoming());
        assert!(incoming.next().now_or_never().is_none());
        SockRef::from(&listener).shutdown(Shutdown::Both)?;
        let error = incoming.next().await.unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(incoming.next().await.is_none());
        Ok(())
    })
}

#[test]
fn a_dropped_listener_refuses_and_closes_what_nobody_took() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let server = listener.local_addr()?;
        let mut taken = std::net::TcpStream::connect(server)?;
        let mut unclaimed = std::net::TcpStream::connect(server)?;
        let (stream, _) = listener.accept().await?;
        drop(listener);

        let end = on_thread(move || unclaimed.read(&mut [0; 1])).await;
        assert!(matches!(end, Ok(0)) || end.unwrap_err().kind() == ErrorKind::ConnectionReset);
        stream.send("still here").await?;
        drop(stream);
        let said = on_thread(move || io::read_to_string(&mut taken)).await?;
        assert_eq!(said, "still here");
        // The port is free again.
        TcpListener::bind(server).await.map(drop)
    })
}

#[test]
fn bind_reports_an_address_in_use() -> io::Result<()> {
    block_on(async {
        let holder = TcpListener::bind(ANY_PORT).await?;
        let error = TcpListener::bind(holder.local_addr()?).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        Ok(())
    })
}

#[test]
fn bind_tries_the_addresses_in_order() -> io::Result<()> {
    block_on(async {
        let holder = TcpListener::bind(ANY_PORT).await?;
        let list = [holder.local_addr()?, ANY_PORT.into()];
        let listener = TcpListener::bind(&list[..]).await?;
        assert_ne!(listener.local_addr()?, holder.local_addr()?);

        let none: &[SocketAddr] = &[];
        let error = TcpListener::bind(none).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    })
}

#[test]
fn accepted_streams_inherit_the_options_of_the_listener() -> io::Result<()> {
    block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.set_recv_buffer_size(64 * 1024)?;
        let recv_buffer_size = socket.recv_buffer_size()?;
        socket.bind(ANY_PORT.into())?;
        let listener = socket.listen(16)?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;

        let (stream, _) = listener.accept().await?;
        assert!(stream.nodelay()?);
        let options = SockRef::from(&stream);
        assert!(options.keepalive()?);
        assert_eq!(options.recv_buffer_size()?, recv_buffer_size as usize);
        Ok(())
    })
}

#[test]
fn listeners_answer_for_their_socket() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        assert!(SockRef::from(&listener).reuse_address()?);
        assert!(listener.take_error()?.is_none());
        listener.set_ttl(77)?;
        assert_eq!(listener.ttl()?, 77);
        let error = listener.set_ttl(256).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));

        assert_eq!(listener.as_fd().as_raw_fd(), listener.as_raw_fd());
        let shown = format!("{listener:?}");
        assert!(
            shown.contains(&listener.local_addr()?.to_string()),
            "{shown}"
        );
        let shown = format!("{:?}", listener.incoming());
        assert!(
            shown.contains(&listener.local_addr()?.to_string()),
            "{shown}"
        );
        Ok(())
    })
}
