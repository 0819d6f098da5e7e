//! Counts the system calls of one thread, as `strace -c` would, from inside the test; or lets its enters fail.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;

/// Higher numbers exist on no architecture that we run on.
const NUMBERS: usize = 1024;

/// The count of each call, by its number.
pub type Calls = [u64; NUMBERS];

/// Counts every system call of the thread that called [`CallCounter::watch_this_thread`], except
/// `io_uring_enter`, which the metrics count.
///
/// A seccomp filter hands each call to a supervisor thread, which notes its number and lets it go on. The filter
/// stays with the thread until the thread ends. Needs no privilege; `None` where seccomp is refused.
#[derive(Clone, Debug)]
pub struct CallCounter(Arc<[AtomicU64; NUMBERS]>);

impl CallCounter {
    pub fn watch_this_thread() -> Option<Self> {
        let counter = Self(Arc::new([const { AtomicU64::new(0) }; NUMBERS]));
        // From its installation on, every call of this thread waits for the supervisor, so the supervisor cannot
        // be woken by one: it spins until the descriptor is in this cell.
        let listener = Arc::new(AtomicI32::new(UNSET));
        let supervisor = {
            let (counter, listener) = (counter.clone(), listener.clone());
            move || counter.supervise(wait_for_listener(&listener))
        };
        thread::spawn(supervisor);
        let installed = install_filter(libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
        listener.store(*installed.as_ref().unwrap_or(&REFUSED), Ordering::Release);
        installed.ok().map(|_| counter)
    }

    /// What was counted so far. Reads memory only, so it may be called on the watched thread.
    pub fn snapshot(&self) -> Calls {
        std::array::from_fn(|number| self.0[number].load(Ordering::Acquire))
    }

    /// What has been called between two snapshots: (number, count).
    pub fn difference(before: &Calls, after: &Calls) -> Vec<(usize, u64)> {
        (0..NUMBERS)
            .map(|number| (number, after[number] - before[number]))
            .filter(|&(_, count)| count > 0)
            .collect()
    }

    fn supervise(&self, listener: Option<OwnedFd>) {
        let Some(listener) = listener else { return };
        while wait_for_call(listener.as_raw_fd()) {
            if let Some((id, number)) = receive_call(listener.as_raw_fd()) {
                self.0[number.min(NUMBERS - 1)].fetch_add(1, Ordering::AcqRel);
                answer(listener.as_raw_fd(), id, None);
            }
        }
    }
}

/// Lets `io_uring_enter` fail again and again on the thread that called [`EnterRefuser::watch_this_thread`], as a
/// kernel in need may; the call is not made then.
#[derive(Clone, Debug)]
pub struct EnterRefuser(Arc<AtomicU64>);

impl EnterRefuser {
    /// `refuse` gives the errno for the call of that number, or none to let it through. `None` where seccomp is refused.
    pub fn watch_this_thread(
        mut refuse: impl FnMut(u64) -> Option<i32> + Send + 'static,
    ) -> Option<Self> {
        let refuser = Self(Arc::default());
        let listener = Arc::new(AtomicI32::new(UNSET));
        let supervisor = {
            let (refusals, listener) = (refuser.0.clone(), listener.clone());
            move || {
                let Some(listener) = wait_for_listener(&listener) else {
                    return;
                };
                let mut calls = 0;
                while wait_for_call(listener.as_raw_fd()) {
                    if let Some((id, _)) = receive_call(listener.as_raw_fd()) {
                        let refusal = refuse(calls);
                        calls += 1;
                        refusals.fetch_add(refusal.is_some().into(), Ordering::AcqRel);
                        answer(listener.as_raw_fd(), id, refusal);
                    }
                }
            }
        };
        thread::spawn(supervisor);
        let installed = install_filter(libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
        listener.store(*installed.as_ref().unwrap_or(&REFUSED), Ordering::Release);
        installed.ok().map(|_| refuser)
    }

    /// How many calls have failed so far.
    pub fn refusals(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

const UNSET: RawFd = -1;
const REFUSED: RawFd = -2;

fn wait_for_listener(cell: &AtomicI32) -> Option<OwnedFd> {
    loop {
        match cell.load(Ordering::Acquire) {
            UNSET => thread::yield_now(),
            REFUSED => return None,
            // SAFETY: the filter's installation made this descriptor and nobody else keeps it.
            fd => return Some(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    }
}

/// What happens to `io_uring_enter`, and to all else: it goes through, or asks the supervisor.
fn install_filter(enter: u32, others: u32) -> io::Result<RawFd> {
    const NUMBER_OFFSET: u32 = 0;
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER_OFFSET),
        libc::sock_filter {
            jf: 1,
            ..statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_io_uring_enter as u32,
            )
        },
        statement(libc::BPF_RET | libc::BPF_K, enter),
        statement(libc::BPF_RET | libc::BPF_K, others),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes plain numbers; from here on the thread gains no privilege by exec, and it does not exec.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and what it points to outlive the call, which copies them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &program,
        )
    };
    match fd {
        0.. => Ok(fd as RawFd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// False when the watched thread has ended.
fn wait_for_call(listener: RawFd) -> bool {
    let mut entry = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one whole pollfd, which outlives the call.
    let ready = unsafe { libc::poll(&mut entry, 1, -1) };
    ready == 1 && entry.revents & libc::POLLIN != 0
}

/// The id of a waiting call and its number. `None` if it was interrupted meanwhile.
fn receive_call(listener: RawFd) -> Option<(u64, usize)> {
    // SAFETY: plain numbers, for which zero is a value; the kernel insists on zeroes.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `call` is what this request fills, and it outlives the call.
    let result = unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) };
    (result == 0).then_some((call.id, call.data.nr as usize))
}

/// Lets the call fail with `refusal`, or go on.
fn answer(listener: RawFd, id: u64, refusal: Option<i32>) {
    let mut answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: refusal.map_or(0, |errno| -errno),
        flags: match refusal {
            Some(_) => 0,
            None => libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        },
    };
    // SAFETY: `answer` is what this request reads, and it outlives the call. It fails only if the call was
    // interrupted, and then there is nothing to answer.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) };
}
