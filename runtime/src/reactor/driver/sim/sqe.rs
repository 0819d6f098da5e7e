//! Reading submission queue entries, as a kernel does.

use std::os::fd::RawFd;

use io_uring::squeue;
use socket2::{SockAddr, SockAddrStorage};

/// An entry, taken apart.
pub(super) struct Sqe {
    pub(super) user_data: u64,
    pub(super) fd: RawFd,
    pub(super) opcode: Opcode,
    /// No completion if it succeeds.
    pub(super) skip_success: bool,
}

pub(super) enum Opcode {
    Nop,
    Poll { events: u32, multishot: bool },
    Accept { multishot: bool },
    Connect { address: SockAddr },
    Recv(Recv),
    Send { bytes: Slices, wait: bool },
    Read { into: Memory },
    Cancel { target: u64 },
    Close,
    Unknown,
}

pub(super) struct Recv {
    /// Without one the kernel picks a provided buffer.
    pub(super) into: Option<Memory>,
    pub(super) multishot: bool,
    pub(super) poll_first: bool,
    /// What a multishot may still deliver.
    pub(super) left: Option<u32>,
    pub(super) hearing: Hearing,
}

/// What a multishot receive will be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hearing {
    /// It is being armed and has not found its socket empty yet.
    #[default]
    Arming,
    /// What it finds next is told in one go.
    Once,
    All,
    /// A reset was part of what was told.
    Nothing,
}

/// Memory that an entry points to.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    address: u64,
    len: usize,
}

/// The bytes of a send, in one piece or several.
pub(super) struct Slices(Vec<Memory>);

impl Sqe {
    pub(super) fn read(entry: &squeue::Entry) -> Self {
        const _: () = assert!(size_of::<squeue::Entry>() == size_of::<Layout>());
        // SAFETY: an entry is the kernel's `struct io_uring_sqe` and nothing else: 64 plain bytes, as is `Layout`, whose
        // fields take every value.
        let raw: Layout = unsafe { std::mem::transmute(entry.clone()) };
        Self {
            user_data: raw.user_data,
            fd: raw.fd,
            skip_success: raw.flags & SKIP_SUCCESS != 0,
            opcode: raw.opcode(),
        }
    }
}

impl Opcode {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Poll { .. } => "poll",
            Self::Accept { .. } => "accept",
            Self::Connect { .. } => "connect",
            Self::Recv(_) => "recv",
            Self::Send { .. } => "send",
            Self::Read { .. } => "read",
            Self::Cancel { .. } => "cancel",
            Self::Close => "close",
            Self::Unknown => "unknown",
        }
    }
}

impl Layout {
    fn opcode(&self) -> Opcode {
        let memory = Memory {
            address: self.address,
            len: self.len as usize,
        };
        match self.opcode {
            NOP => Opcode::Nop,
            POLL_ADD => Opcode::Poll {
                events: self.op_flags,
                multishot: self.len & POLL_ADD_MULTI != 0,
            },
            ACCEPT => Opcode::Accept {
                multishot: self.priority & ACCEPT_MULTISHOT != 0,
            },
            CONNECT => Opcode::Connect {
                address: address_of(memory.address, self.offset),
            },
            RECV => Opcode::Recv(Recv {
                into: (self.flags & BUFFER_SELECT == 0).then_some(memory),
                multishot: self.priority & RECV_MULTISHOT != 0,
                poll_first: self.priority & POLL_FIRST != 0,
                left: (self.optional_len > 0).then_some(self.optional_len),
                hearing: Hearing::default(),
            }),
            SEND => Opcode::Send {
                bytes: Slices(vec![memory]),
                wait: self.op_flags & libc::MSG_DONTWAIT as u32 == 0,
            },
            SENDMSG => Opcode::Send {
                bytes: slices_of(memory.address),
                wait: self.op_flags & libc::MSG_DONTWAIT as u32 == 0,
            },
            READ => Opcode::Read { into: memory },
            ASYNC_CANCEL => Opcode::Cancel {
                target: self.address,
            },
            CLOSE => Opcode::Close,
            _ => Opcode::Unknown,
        }
    }
}

impl Memory {
    pub(super) fn new(address: std::ptr::NonNull<u8>, len: usize) -> Self {
        Self {
            address: address.as_ptr().expose_provenance() as u64,
            len,
        }
    }

    pub(super) fn len(self) -> usize {
        self.len
    }

    /// Writes as the kernel does, to the front of it.
    pub(super) fn write(self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "a simulated kernel wrote too much");
        let target = std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize);
        // SAFETY: `Op` promises that what an entry points to stays valid, and is touched by nobody else, until the op's
        // final completion, and the pool that provided buffers are not touched until they are named by one. This is
        // the kernel that it is promised to. The length was checked.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    fn read(self) -> Vec<u8> {
        let source = std::ptr::with_exposed_provenance::<u8>(self.address as usize);
        let mut bytes = vec![0; self.len];
        // SAFETY: as in `write`: the bytes of a send in flight are valid and are written by nobody.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), self.len) };
        bytes
    }
}

impl Slices {
    /// Those of a message, which must stay as it is for as long as this is used.
    pub(super) fn of(message: &libc::msghdr) -> Self {
        slices_of(std::ptr::from_ref(message).expose_provenance() as u64)
    }

    pub(super) fn read(&self) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = self.0.iter().map(|slice| slice.read()).collect();
        parts.concat()
    }

    /// Forgets the first `n` bytes.
    pub(super) fn advance(&mut self, mut n: usize) {
        for slice in &mut self.0 {
            let taken = n.min(slice.len);
            slice.address += taken as u64;
            slice.len -= taken;
            n -= taken;
        }
    }
}

/// The address that a connect points to.
fn address_of(address: u64, len: u64) -> SockAddr {
    let source = std::ptr::with_exposed_provenance::<u8>(address as usize);
    let mut storage = SockAddrStorage::zeroed();
    let len = (len as usize).min(size_of::<SockAddrStorage>());
    // SAFETY: the storage has room for every address, and the length is that of this one, which as in `Memory::write` is
    // valid while the op is in flight.
    unsafe { std::ptr::copy_nonoverlapping(source, (&raw mut storage).cast::<u8>(), len) };
    // SAFETY: that many bytes of the storage are an address, and the others are zero.
    unsafe { SockAddr::new(storage, len as libc::socklen_t) }
}

/// The slices of a `sendmsg`.
fn slices_of(address: u64) -> Slices {
    let message = std::ptr::with_exposed_provenance::<libc::msghdr>(address as usize);
    // SAFETY: as in `Memory::write`: the message is valid while the op is in flight.
    let message = unsafe { &*message };
    // SAFETY: the message says how many slices there are, and they live as long as it does.
    let slices =
        unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen as usize) };
    let slices = slices.iter().map(|slice| Memory {
        address: slice.iov_base.expose_provenance() as u64,
        len: slice.iov_len,
    });
    Slices(slices.collect())
}

/// `struct io_uring_sqe`, as far as it is used.
#[repr(C)]
struct Layout {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: RawFd,
    offset: u64,
    address: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    buffer_group: u16,
    personality: u16,
    optional_len: u32,
    rest: [u64; 2],
}

// linux/io_uring.h
const NOP: u8 = 0;
const POLL_ADD: u8 = 6;
const SENDMSG: u8 = 9;
const ACCEPT: u8 = 13;
const ASYNC_CANCEL: u8 = 14;
const CONNECT: u8 = 16;
const CLOSE: u8 = 19;
const READ: u8 = 22;
const SEND: u8 = 26;
const RECV: u8 = 27;
const BUFFER_SELECT: u8 = 1 << 5;
const SKIP_SUCCESS: u8 = 1 << 6;
const POLL_ADD_MULTI: u32 = 1 << 0;
const ACCEPT_MULTISHOT: u16 = 1 << 0;
const POLL_FIRST: u16 = 1 << 0;
const RECV_MULTISHOT: u16 = 1 << 1;
