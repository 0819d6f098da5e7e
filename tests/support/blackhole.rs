//! An address that never answers a connect.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

/// A listener whose accept queue is full: Linux drops further SYNs, so a connect to [`Blackhole::addr`] stays
/// pending for as long as this value lives.
#[derive(Debug)]
pub struct Blackhole {
    addr: SocketAddr,
    _listener: Socket,
    _fillers: Vec<Socket>,
}

impl Blackhole {
    pub fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let addr = listener.local_addr().unwrap().as_socket().unwrap();
        // A backlog of 0 holds one connection; the others make sure that the queue stays full.
        let fillers = (0..4)
            .map(|_| {
                let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                filler.set_nonblocking(true).unwrap();
                let error = filler.connect(&addr.into()).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
                filler
            })
            .collect();
        Self {
            addr,
            _listener: listener,
            _fillers: fillers,
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Default for Blackhole {
    fn default() -> Self {
        Self::new()
    }
}
