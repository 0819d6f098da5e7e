//! What this process uses, as the kernel counts it.

use std::fs;

/// Open descriptors of this process.
pub fn open_fds() -> usize {
    open_fd_numbers().len()
}

/// Resident memory of this process.
pub fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * page_bytes()
}

/// Raises the soft limit of descriptors to the hard one and returns it.
pub fn raise_fd_limit() -> usize {
    let hard = fd_limits().rlim_max;
    set_fd_limit(hard as usize);
    hard as usize
}

/// Sets the soft limit of descriptors so that exactly `room` more can be opened.
pub fn leave_fd_room(room: usize) {
    let open: Vec<usize> = open_fd_numbers();
    // New descriptors get the lowest free numbers, and the limit is one of the number, not of the count.
    let mut free = (0_usize..).filter(|number| !open.contains(number));
    let first_refused = free.nth(room).unwrap();
    set_fd_limit(first_refused);
}

/// Sets the soft limit of descriptors.
fn set_fd_limit(soft: usize) {
    let limits = libc::rlimit {
        rlim_cur: soft as libc::rlim_t,
        ..fd_limits()
    };
    // SAFETY: `limits` is a whole rlimit and outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// What one thread has used so far.
#[derive(Clone, Copy, Debug)]
pub struct ThreadUsage {
    /// Nanoseconds on a CPU.
    pub cpu_ns: u64,
    /// How often it went to sleep of its own accord, so also how often it woke.
    pub sleeps: u64,
}

pub fn thread_usage(thread_id: i32) -> ThreadUsage {
    let task = format!("/proc/self/task/{thread_id}");
    let schedstat = fs::read_to_string(format!("{task}/schedstat")).unwrap();
    let status = fs::read_to_string(format!("{task}/status")).unwrap();
    let sleeps = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .unwrap();
    ThreadUsage {
        cpu_ns: schedstat.split(' ').next().unwrap().parse().unwrap(),
        sleeps: sleeps.trim().parse().unwrap(),
    }
}

/// The threads that blocking work has in this process at the moment.
pub fn pool_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| {
        // One that has ended meanwhile has no name.
        fs::read_to_string(thread.ok()?.path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("blocking-")).count()
}

fn open_fd_numbers() -> Vec<usize> {
    let directory = fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers: Vec<usize> = directory
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    // One of them was the directory's own, which is closed by now.
    numbers.retain(|number| is_open(*number));
    numbers
}

fn is_open(number: usize) -> bool {
    // SAFETY: takes plain numbers, and only reads the descriptor's flags.
    let flags = unsafe { libc::fcntl(number as libc::c_int, libc::F_GETFD) };
    flags >= 0
}

fn fd_limits() -> libc::rlimit {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limits` is a whole rlimit for the kernel to fill and outlives the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    limits
}

fn page_bytes() -> usize {
    // SAFETY: has no memory arguments.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
