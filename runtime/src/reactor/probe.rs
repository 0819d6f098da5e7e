//! Self-tests: what this kernel really does, tried on a throw-away ring, once per process.
//!
//! Versions say little (vendors port features back, profiles take them away), and an opcode that exists says
//! nothing of its flags. So each feature that the runtime depends on is used once, the way the runtime uses it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;
#[cfg(feature = "sim")]
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use io_uring::{cqueue, opcode, squeue};

use super::driver::uring::{Sizes, TaskWork, Uring};
use super::driver::{Cqe, Driver, Park, WAKE};
use super::op::{accept, outgoing, recv, room, wake};
use super::pool::{Lease, Pool};
use crate::builder::Backend;
use crate::error::{BuildError, Cause};

/// What the start-up self-tests have found, and why what is off is off.
///
/// Its `Display` is one line for a log.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?;
/// let features = runtime::features();
/// println!("{features}");
/// if let Some(reason) = features.silent_send.why_off() {
///     println!("every send is acknowledged, because {reason}");
/// }
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Features {
    /// What the runtime runs on.
    pub backend: Backend,
    /// Completions are worked out inside our own call only (`DEFER_TASKRUN`, since 6.1).
    pub deferred_task_work: Feature,
    /// A sleep can be given a limit in the same call (`EXT_ARG`, since 5.11).
    pub ext_arg: Feature,
    /// The kernel itself waits for a socket that is not ready (`FAST_POLL`, since 5.7). Without it the runtime waits
    /// for readiness and then does the operation.
    pub fast_poll: Feature,
    /// The ring's descriptor is registered with its thread (since 5.18).
    pub ring_fd: Feature,
    /// The kernel draws receive buffers from a shared ring (since 5.19).
    pub buffer_ring: Feature,
    /// One accept operation yields many connections (since 5.19).
    pub multishot_accept: Feature,
    /// One receive operation yields many chunks (since 6.0).
    pub multishot_recv: Feature,
    /// One poll tells of every change (since 5.13).
    pub multishot_poll: Feature,
    /// A receive on a socket that is known to be empty does not try first (since 5.19).
    pub poll_first: Feature,
    /// A multishot receive can be given a total (since 6.17), so a slow reader holds back exactly its own peer.
    pub recv_limit: Feature,
    /// An operation that succeeds can be silent (`CQE_SKIP`, since 5.17).
    pub skip_success: Feature,
    /// A send that went out whole costs no completion, and one that did not says so at once.
    pub silent_send: Feature,
    /// A sleeping worker is woken by a message to its ring, which any thread can send (`SEND_MSG_RING`, since 6.13).
    pub msg_ring: Feature,
}

/// One kernel feature: in use, or not and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature(Result<(), String>);

impl Feature {
    fn off(reason: impl fmt::Display) -> Self {
        Self(Err(reason.to_string()))
    }

    fn tested(result: io::Result<()>) -> Self {
        Self(result.map_err(|error| match error.get_ref() {
            Some(inner) if inner.is::<Lacks>() => inner.to_string(),
            _ => format!("its self-test failed: {error}"),
        }))
    }

    /// Whether it is in use.
    pub fn is_on(&self) -> bool {
        self.0.is_ok()
    }

    /// Why it is not in use.
    pub fn why_off(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }
}

impl Features {
    /// Every feature with its name, as `RINGSHOT_DISABLE` takes it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Feature)> {
        [
            ("fast_poll", &self.fast_poll),
            ("ext_arg", &self.ext_arg),
            ("defer_taskrun", &self.deferred_task_work),
            ("ring_fd", &self.ring_fd),
            ("buffer_ring", &self.buffer_ring),
            ("multishot_accept", &self.multishot_accept),
            ("multishot_recv", &self.multishot_recv),
            ("multishot_poll", &self.multishot_poll),
            ("poll_first", &self.poll_first),
            ("recv_limit", &self.recv_limit),
            ("skip_success", &self.skip_success),
            ("silent_send", &self.silent_send),
            ("msg_ring", &self.msg_ring),
        ]
        .into_iter()
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |on: bool| -> Vec<&str> {
            (self.iter().filter(|(_, feature)| feature.is_on() == on))
                .map(|(name, _)| name)
                .collect()
        };
        if self.backend == Backend::Epoll {
            let reason = self.fast_poll.why_off().unwrap_or("it was asked for");
            return write!(f, "epoll, because {reason}");
        }
        write!(f, "io_uring with {}", list(true).join(", "))?;
        let off = list(false);
        if !off.is_empty() {
            write!(f, "; without {}", off.join(", "))?;
        }
        Ok(())
    }
}

/// The features that `RINGSHOT_DISABLE` names; for tests, and for operators who must do without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disabled(Vec<String>);

impl Disabled {
    /// The variable's value: names separated by commas.
    fn parse(value: &str) -> Result<Self, BuildError> {
        let names = value
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        match names.iter().find(|name| !NAMES.contains(&name.as_str())) {
            None => Ok(Self(names)),
            Some(unknown) => Err(BuildError::new(
                Cause::Configuration(format!(
                    "{VARIABLE} names `{unknown}`; it knows {}",
                    NAMES.join(", ")
                )),
                io::ErrorKind::InvalidInput.into(),
            )),
        }
    }

    pub(crate) fn from_environment() -> Result<Self, BuildError> {
        Self::parse(&crate::error::variable(VARIABLE))
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|disabled| disabled == name)
    }
}

/// What every reactor of this process builds on.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) features: Features,
    pub(crate) disabled: Disabled,
}

/// Runs the self-tests at the first call, and remembers what they found.
///
/// # Errors
///
/// If io_uring cannot be used at all, or there are no descriptors for the tests. That is not remembered: limits may be
/// raised.
pub(crate) fn findings() -> Result<&'static Findings, BuildError> {
    static FINDINGS: OnceLock<Findings> = OnceLock::new();
    if let Some(findings) = FINDINGS.get() {
        return Ok(findings);
    }
    let disabled = Disabled::from_environment()?;
    let features = probe(&disabled).map_err(BuildError::from_ring)?;
    Ok(FINDINGS.get_or_init(|| Findings { features, disabled }))
}

/// What a simulated kernel has: everything but `without`, and what needs that.
#[cfg(feature = "sim")]
pub(crate) fn simulated(without: &[&'static str]) -> &'static Features {
    static KNOWN: Mutex<BTreeMap<Vec<&'static str>, &'static Features>> =
        Mutex::new(BTreeMap::new());
    let make = || {
        let feature = |name: &str, needs: &[&Feature]| match needs.iter().all(|need| need.is_on()) {
            true if !without.contains(&name) => Feature(Ok(())),
            _ => Feature::off("the simulation is without it"),
        };
        let fast_poll = feature("fast_poll", &[]);
        let buffer_ring = feature("buffer_ring", &[&fast_poll]);
        let multishot_recv = feature("multishot_recv", &[&buffer_ring]);
        let skip_success = feature("skip_success", &[]);
        Features {
            backend: Backend::Uring,
            deferred_task_work: feature("defer_taskrun", &[]),
            ext_arg: feature("ext_arg", &[]),
            ring_fd: feature("ring_fd", &[]),
            multishot_accept: feature("multishot_accept", &[&fast_poll]),
            multishot_poll: feature("multishot_poll", &[]),
            poll_first: feature("poll_first", &[&buffer_ring]),
            recv_limit: feature("recv_limit", &[&multishot_recv]),
            silent_send: feature("silent_send", &[&fast_poll, &skip_success]),
            msg_ring: Feature::off("a simulated ring takes no messages"),
            fast_poll,
            buffer_ring,
            multishot_recv,
            skip_success,
        }
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Leaked once for each set that is asked for, as those of the process are.
    (known.entry(without.to_vec())).or_insert_with(|| Box::leak(Box::new(make())))
}

/// What a worker without a ring has: nothing of all that, because of `reason` (the first one of this process).
pub(crate) fn without_uring(reason: &str) -> &'static Features {
    WITHOUT_URING.get_or_init(|| {
        let off = || Feature::off(reason);
        Features {
            backend: Backend::Epoll,
            deferred_task_work: off(),
            fast_poll: off(),
            ext_arg: off(),
            ring_fd: off(),
            buffer_ring: off(),
            multishot_accept: off(),
            multishot_recv: off(),
            multishot_poll: off(),
            poll_first: off(),
            recv_limit: off(),
            skip_success: off(),
            silent_send: off(),
            msg_ring: off(),
        }
    })
}

/// The features of the last resort, if it was taken.
pub(crate) fn fallen_back() -> Option<&'static Features> {
    WITHOUT_URING.get()
}

static WITHOUT_URING: OnceLock<Features> = OnceLock::new();

fn probe(disabled: &Disabled) -> io::Result<Features> {
    let mut trial = Trial {
        ring: Uring::new(SIZES, disabled)?,
        arrived: Vec::new(),
    };
    // Some sandboxes allow the setup and refuse the enter.
    trial.push(&opcode::Nop::new().build());
    trial.next()?;
    let mut shortage = None;
    let mut test = |name: &str, test: &mut dyn FnMut() -> io::Result<()>| {
        if disabled.contains(name) {
            return Feature::off(format_args!("{VARIABLE} names it"));
        }
        let tested = test();
        if let Err(error) = &tested
            && matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        {
            shortage = copy_of(&tested).err();
        }
        Feature::tested(tested)
    };
    let ext_arg = test("ext_arg", &mut || supported(trial.ring.ext_arg));
    let deferred_task_work = test("defer_taskrun", &mut || {
        needs("ext_arg", &ext_arg)?;
        supported(trial.ring.task_work() == TaskWork::Deferred)
    });
    let fast_poll = test("fast_poll", &mut || {
        supported(trial.ring.ring().params().is_feature_fast_poll())
    });
    let mut registrations = Vec::new();
    let ring_fd = test("ring_fd", &mut || {
        let registered = copy_of(trial.ring.registered());
        registrations.push(copy_of(&registered));
        registered
    });
    let pool = Pool::new(2, 64)?;
    let buffer_ring = test("buffer_ring", &mut || {
        needs("fast_poll", &fast_poll)?;
        let registered = trial.ring.register_buffers(2);
        registrations.push(copy_of(&registered));
        registered
    });
    // Some sandboxes allow the setup and refuse every registration.
    if let Some(refusal) = refusal(registrations) {
        return Err(refusal);
    }
    let multishot_recv = test("multishot_recv", &mut || {
        needs("buffer_ring", &buffer_ring)?;
        multishot_recv(&mut trial, &pool)
    });
    let multishot_accept = test("multishot_accept", &mut || {
        needs("fast_poll", &fast_poll)?;
        multishot_accept(&mut trial)
    });
    let multishot_poll = test("multishot_poll", &mut || multishot_poll(&mut trial));
    let poll_first = test("poll_first", &mut || {
        needs("buffer_ring", &buffer_ring)?;
        poll_first(&mut trial, &pool)
    });
    let recv_limit = test("recv_limit", &mut || {
        needs("multishot_recv", &multishot_recv)?;
        recv_limit(&mut trial, &pool)
    });
    let skip_success = test("skip_success", &mut || supported(trial.ring.skip_success));
    let silent_send = test("silent_send", &mut || {
        needs("fast_poll", &fast_poll)?;
        needs("skip_success", &skip_success)?;
        let (tx, rx) = UnixStream::pair()?;
        silent_send(&mut trial, &tx.into(), rx.into())?;
        let (tx, rx) = tcp_pair()?;
        silent_send(&mut trial, &tx.into(), rx.into())
    });
    let msg_ring = test("msg_ring", &mut || {
        wake::message(trial.ring.ring().as_raw_fd())?;
        let cqe = trial.next()?;
        expect(
            cqe.user_data == WAKE && cqe.result == 0,
            "a message came as something else",
        )
    });
    // That says nothing of the kernel, and the next start may find some.
    if let Some(shortage) = shortage {
        return Err(shortage);
    }
    Ok(Features {
        backend: Backend::Uring,
        deferred_task_work,
        fast_poll,
        ext_arg,
        ring_fd,
        buffer_ring,
        multishot_accept,
        multishot_recv,
        multishot_poll,
        poll_first,
        recv_limit,
        skip_success,
        silent_send,
        msg_ring,
    })
}

/// One armed receive must yield several chunks, end with ENOBUFS when the buffers are used up, and lose nothing.
fn multishot_recv(trial: &mut Trial, pool: &Rc<Pool>) -> io::Result<()> {
    let (mut tx, rx) = UnixStream::pair()?;
    let arm = recv::multishot_form(rx.as_raw_fd());
    trial.provide(pool);
    trial.push(&arm);
    let mut held = Vec::new();
    for chunk in [b"one", b"two"] {
        tx.write_all(chunk)?;
        let cqe = trial.next()?;
        let lease = chunk_of(&cqe, pool).ok_or_else(|| wrong("a chunk came without a buffer"))?;
        expect(&lease[..] == chunk, "a chunk came with other bytes")?;
        expect(cqueue::more(cqe.flags), "the receive ended after one chunk")?;
        held.push(lease);
    }
    tx.write_all(b"six")?;
    let cqe = trial.next()?;
    expect(
        cqe.result == -libc::ENOBUFS && !cqueue::more(cqe.flags),
        "the receive did not end when the buffers were used up",
    )?;
    held.clear();
    trial.provide(pool);
    trial.push(&arm);
    let lease = chunk_of(&trial.next()?, pool);
    expect(
        lease.is_some_and(|lease| &lease[..] == b"six"),
        "bytes were lost when the buffers were used up",
    )?;
    drop(tx);
    let end = trial.next()?;
    expect(end.result == 0, "the end of the stream was not seen")
}

/// A poll for room must tell of it and go on.
fn multishot_poll(trial: &mut Trial) -> io::Result<()> {
    let (tx, _rx) = UnixStream::pair()?;
    trial.push(&room::ring_form(tx.as_raw_fd()));
    let cqe = trial.next()?;
    expect(
        cqe.result & i32::from(libc::POLLOUT) != 0 && cqueue::more(cqe.flags),
        "the poll ended after one event",
    )?;
    // Two completions: the cancel's and the poll's.
    trial.push(&opcode::AsyncCancel::new(0).build().user_data(1));
    trial.next()?;
    trial.next().map(drop)
}

/// A receive that polls first must find what is there already.
fn poll_first(trial: &mut Trial, pool: &Rc<Pool>) -> io::Result<()> {
    let (mut tx, rx) = UnixStream::pair()?;
    trial.provide(pool);
    tx.write_all(b"there")?;
    trial.push(&recv::single_form(rx.as_raw_fd(), true));
    let lease = chunk_of(&trial.next()?, pool);
    expect(
        lease.is_some_and(|lease| &lease[..] == b"there"),
        "a chunk came with other bytes",
    )
}

/// A receive with a total must end when it is reached, and not before.
fn recv_limit(trial: &mut Trial, pool: &Rc<Pool>) -> io::Result<()> {
    let (mut tx, rx) = UnixStream::pair()?;
    trial.provide(pool);
    for (limit, expected, more) in [(5, b"seven", false), (6, b"eight", true)] {
        tx.write_all(expected)?;
        trial.push(&recv::limited_form(rx.as_raw_fd(), limit));
        let cqe = trial.next()?;
        expect(
            cqueue::more(cqe.flags) == more,
            "the receive did not end with its total",
        )?;
        let lease = chunk_of(&cqe, pool);
        expect(
            lease.is_some_and(|lease| &lease[..] == expected),
            "a chunk came with other bytes",
        )?;
    }
    drop(tx);
    trial.next().map(drop)
}

/// One armed accept must yield several connections.
fn multishot_accept(trial: &mut Trial) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    trial.push(&accept::multishot_form(listener.as_raw_fd()));
    for _ in 0..2 {
        let _client = TcpStream::connect(address)?;
        let cqe = trial.next()?;
        drop(accept::accepted(cqe.result)?);
        expect(
            cqueue::more(cqe.flags),
            "the accept ended after one connection",
        )?;
    }
    // It would outlive the listener otherwise. Two completions: the cancel's and the accept's.
    trial.push(&opcode::AsyncCancel::new(0).build().user_data(1));
    trial.next()?;
    trial.next().map(drop)
}

/// A silent send that goes out whole must leave no completion. One that does not must say how much went out,
/// before the enter that submitted it returns: if it were silent too, bytes would be lost.
fn silent_send(trial: &mut Trial, tx: &OwnedFd, rx: OwnedFd) -> io::Result<()> {
    let socket = socket2::SockRef::from(tx);
    socket.set_send_buffer_size(4096)?;

    trial.push(&outgoing::silent_form(tx.as_raw_fd(), &[1; 100]));
    trial.push(&opcode::Nop::new().build().user_data(1));
    let cqe = trial.next()?;
    expect(cqe.user_data == 1, "a whole send left a completion")?;

    static LARGE: [u8; 1 << 20] = [2; 1 << 20];
    trial.push(&outgoing::silent_form(tx.as_raw_fd(), &LARGE));
    let cqe = trial.next()?;
    let sent = usize::try_from(cqe.result).unwrap_or(0);
    expect(
        0 < sent && sent < LARGE.len(),
        "a send larger than the socket's buffer did not end short",
    )?;
    socket.shutdown(std::net::Shutdown::Write)?;
    let mut received = Vec::new();
    std::fs::File::from(rx).read_to_end(&mut received)?;
    expect(
        received.len() == 100 + sent,
        "a short send did not say how much it sent",
    )
}

/// A throw-away ring, whose completions are looked at one by one.
struct Trial {
    ring: Uring,
    arrived: Vec<Cqe>,
}

impl Trial {
    /// The tests push fewer entries than there is room for.
    fn push(&mut self, entry: &squeue::Entry) {
        let pushed = self.ring.push_entry(entry);
        debug_assert!(pushed.is_some(), "see above");
    }

    fn provide(&mut self, pool: &Pool) {
        pool.provide(|id, address, len| self.ring.provide(id, address, len));
        self.ring.publish();
    }

    /// The next completion. A kernel that lacks a feature may never give one, so the wait is bounded.
    fn next(&mut self) -> io::Result<Cqe> {
        if self.arrived.is_empty() {
            (self.ring).turn(Park::Sleep(Some(PATIENCE)), &mut self.arrived)?;
        }
        if self.arrived.is_empty() {
            return Err(wrong("no completion came"));
        }
        Ok(self.arrived.remove(0))
    }
}

fn chunk_of(cqe: &Cqe, pool: &Rc<Pool>) -> Option<Lease> {
    let len = usize::try_from(cqe.result).ok()?;
    pool.filled(cqueue::buffer_select(cqe.flags)?, len)
}

fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let connected = TcpStream::connect(listener.local_addr()?)?;
    Ok((connected, listener.accept()?.0))
}

fn supported(supported: bool) -> io::Result<()> {
    if supported {
        return Ok(());
    }
    Err(lacks("the kernel does not support it".to_owned()))
}

fn needs(name: &str, feature: &Feature) -> io::Result<()> {
    if feature.is_on() {
        return Ok(());
    }
    Err(lacks(format!("it needs {name}")))
}

/// What makes a self-test pointless.
#[derive(Debug)]
struct Lacks(String);

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lacks {}

fn lacks(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, Lacks(what))
}

/// An outcome of the kernel's, once more.
fn copy_of(result: &io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => error.kind().into(),
        }),
    }
}

/// The error of a policy that refuses all registrations that were tried.
fn refusal(registrations: Vec<io::Result<()>>) -> Option<io::Error> {
    let mut refusal = None;
    for registration in registrations {
        match registration {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS)
                ) =>
            {
                refusal = Some(error);
            }
            _ => return None,
        }
    }
    refusal
}

fn expect(held: bool, otherwise: &'static str) -> io::Result<()> {
    if held { Ok(()) } else { Err(wrong(otherwise)) }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

const SIZES: Sizes = Sizes {
    submissions: 8,
    completions: 16,
};

const PATIENCE: Duration = Duration::from_secs(1);

/// The variable that turns features off.
const VARIABLE: &str = "RINGSHOT_DISABLE";

const NAMES: [&str; 14] = [
    "multishot_poll",
    "poll_first",
    "recv_limit",
    "fast_poll",
    "ext_arg",
    "defer_taskrun",
    "coop_taskrun",
    "ring_fd",
    "buffer_ring",
    "multishot_accept",
    "multishot_recv",
    "skip_success",
    "silent_send",
    "msg_ring",
];
