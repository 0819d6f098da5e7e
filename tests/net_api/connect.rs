//! Making connections: addresses, errors, giving up, options.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use futures::executor;
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::time::timeout;
use socket2::{Domain, SockRef, Socket, Type};

use crate::{ANY_PORT, block_on, connected, on_thread, refusing_address};

#[test]
fn connect_is_refused_with_the_kernels_errno() -> io::Result<()> {
    block_on(async {
        let error = TcpStream::connect(refusing_address()?).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
        Ok(())
    })
}

#[test]
fn connect_tries_the_addresses_in_order() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let good = listener.local_addr()?;
        let stream = TcpStream::connect(&[refusing_address()?, good][..]).await?;
        assert_eq!(stream.peer_addr()?, good);

        let bad = [refusing_address()?, refusing_address()?];
        let error = TcpStream::connect(&bad[..]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));

        let none: &[SocketAddr] = &[];
        let error = TcpStream::connect(none).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Ok(())
    })
}

#[test]
fn connect_resolves_names() -> io::Result<()> {
    block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let port = listener.local_addr()?.port();
        let pair = TcpStream::connect(("localhost", port)).await?;
        assert_eq!(pair.peer_addr()?.port(), port);
        let text = TcpStream::connect(format!("localhost:{port}")).await?;
        assert_eq!(text.peer_addr()?.port(), port);
        Ok(())
    })
}

#[test]
fn connect_reports_a_name_that_has_no_address() {
    block_on(async {
        // A label of more than 63 bytes fails in the resolver, before it asks the network.
        assert!(TcpStream::connect(("x".repeat(64), 80)).await.is_err());
        let error = TcpStream::connect("no-port").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

/// A listener whose queue is full: Linux drops further connection attempts on the floor.
fn full_listener() -> io::Result<(Socket, Vec<Socket>)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(ANY_PORT).into())?;
    listener.listen(0)?;
    let mut queued = Vec::new();
    loop {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        match client.connect_timeout(&listener.local_addr()?, Duration::from_millis(100)) {
            Ok(()) => queued.push(client),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok((listener, queued)),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn connect_to_a_full_backlog_can_be_timed_out() -> io::Result<()> {
    block_on(async {
        let (listener, _queued) = on_thread(full_listener).await?;
        let server = listener.local_addr()?.as_socket().unwrap();
        let attempt = timeout(Duration::from_millis(50), TcpStream::connect(server));
        assert!(attempt.await.is_err());
        Ok(())
    })
}

#[test]
fn a_dropped_connect_closes_its_socket() -> io::Result<()> {
    block_on(async {
        let (listener, _queued) = on_thread(full_listener).await?;
        let server = listener.local_addr()?.as_socket().unwrap();
        let socket = TcpSocket::new_v4()?;
        socket.bind(ANY_PORT.into())?;
        let local = socket.local_addr()?;
        assert!(
            timeout(Duration::from_millis(50), socket.connect(server))
                .await
                .is_err()
        );

        // Its port can be bound again once it is closed, which the ring does in its own time.
        while let Err(error) = TcpSocket::new_v4()?.bind(local) {
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            runtime::yield_now().await;
        }
        Ok(())
    })
}

#[test]
fn sockets_need_a_runtime_and_say_so() -> io::Result<()> {
    let listener = std::net::TcpListener::bind(ANY_PORT)?;
    let server = listener.local_addr()?;
    assert!(executor::block_on(TcpListener::bind(ANY_PORT)).is_err());
    assert!(executor::block_on(TcpStream::connect(server)).is_err());
    assert!(TcpStream::from_std(std::net::TcpStream::connect(server)?).is_err());
    assert!(TcpListener::from_std(listener).is_err());
    Ok(())
}

#[test]
fn a_socket_connects_from_the_address_that_it_is_bound_to() -> io::Result<()> {
    block_on(async {
        let listener = std::net::TcpListener::bind(ANY_PORT)?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::new(127, 0, 0, 3), 0).into())?;
        let local = socket.local_addr()?;
        let stream = socket.connect(listener.local_addr()?).await?;
        let (mut peer, address) = listener.accept()?;
        assert_eq!(address, local);
        assert_eq!(stream.local_addr()?, local);
        drop(stream);
        assert_eq!(on_thread(move || peer.read(&mut [0; 1])).await?, 0);
        Ok(())
    })
}

#[test]
fn socket_options_keep_what_was_set() -> io::Result<()> {
    for socket in [TcpSocket::new_v4()?, TcpSocket::new_v6()?] {
        for on in [true, false] {
            socket.set_reuseaddr(on)?;
            assert_eq!(socket.reuseaddr()?, on);
            socket.set_reuseport(on)?;
            assert_eq!(socket.reuseport()?, on);
            socket.set_nodelay(on)?;
            assert_eq!(socket.nodelay()?, on);
            socket.set_keepalive(on)?;
            assert_eq!(socket.keepalive()?, on);
        }
        for linger in [Some(Duration::from_secs(3)), Some(Duration::ZERO), None] {
            socket.set_linger(linger)?;
            assert_eq!(socket.linger()?, linger);
        }
        // Linux reports twice what was asked for.
        socket.set_send_buffer_size(32 * 1024)?;
        assert_eq!(socket.send_buffer_size()?, 64 * 1024);
        socket.set_recv_buffer_size(16 * 1024)?;
        assert_eq!(socket.recv_buffer_size()?, 32 * 1024);
        assert!(socket.take_error()?.is_none());
        assert_eq!(socket.as_fd().as_raw_fd(), socket.as_raw_fd());
        assert!(format!("{socket:?}").starts_with("TcpSocket"));
    }
    Ok(())
}

#[test]
fn new_sockets_have_no_option_set_and_do_not_survive_exec() -> io::Result<()> {
    block_on(async {
        let (stream, _peer) = connected().await?;
        let listener = TcpListener::bind(ANY_PORT).await?;
        let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept().await?;
        for socket in [&stream, &accepted] {
            assert!(!socket.nodelay()?);
            assert_eq!(socket.linger()?, None);
            assert!(!SockRef::from(socket).keepalive()?);
            assert!(is_close_on_exec(socket));
        }
        assert!(is_close_on_exec(&listener));
        Ok(())
    })
}

fn is_close_on_exec(socket: &impl AsRawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer; a wrong number would be an error, not undefined.
    let flags = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) };
    assert!(flags >= 0, "{}", io::Error::last_os_error());
    flags & libc::FD_CLOEXEC != 0
}

#[test]
fn stream_options_keep_what_was_set() -> io::Result<()> {
    block_on(async {
        let (stream, peer) = connected().await?;
        for on in [true, false] {
            stream.set_nodelay(on)?;
            assert_eq!(stream.nodelay()?, on);
        }
        for linger in [Some(Duration::from_secs(3)), None] {
            stream.set_linger(linger)?;
            assert_eq!(stream.linger()?, linger);
        }
        stream.set_ttl(42)?;
        assert_eq!(stream.ttl()?, 42);
        assert_eq!(
            stream.set_ttl(256).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert!(stream.take_error()?.is_none());
        assert_eq!(stream.local_addr()?, peer.peer_addr()?);
        assert_eq!(stream.peer_addr()?, peer.local_addr()?);
        assert_eq!(stream.as_fd().as_raw_fd(), stream.as_raw_fd());
        let shown = format!("{stream:?}");
        assert!(shown.contains(&peer.local_addr()?.to_string()), "{shown}");
        Ok(())
    })
}
