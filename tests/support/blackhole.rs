//! An address that never answers a connect.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;

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
        // A backlog of 0 holds one connection, or two that come at the same time.
        let fillers = (0..4)
            .map(|_| {
                let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                filler.set_nonblocking(true).unwrap();
                let error = filler.connect(&addr.into()).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
                filler
            })
            .collect();
        // The handshake of a filler may still go on, and until it has ended others are let in.
        crate::eventually("a full queue", true, || waiting(&listener) > 0);
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

/// How many connections wait to be accepted.
fn waiting(listener: &Socket) -> u32 {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: room for `len` bytes, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: all zeros is a valid one, and the kernel has written whole fields.
    let info = unsafe { info.assume_init() };
    // Of a listener this field tells of its queue.
    info.tcpi_unacked
}

impl Default for Blackhole {
    fn default() -> Self {
        Self::new()
    }
}
