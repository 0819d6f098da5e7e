//! Affinity masks, quotas and pinning (B56).

use std::ffi::CStr;
use std::{fs, io, mem, ptr};

use runtime::{Builder, Handle, Pinning, Workers};
use support::{Child, Parent};

use crate::alone;

/// Each case is a process of its own: masks are inherited, and what is logged belongs to the process.
#[test]
fn a_mask_of_one_cpu_gives_one_worker() {
    const NAME: &str = "cpus::a_mask_of_one_cpu_gives_one_worker";
    in_child(NAME, || {
        let all = mask();
        set_mask(&all[..1]);
        for pinning in [Pinning::Off, Pinning::PerCore] {
            let runtime = Builder::new()
                .workers(Workers::PerCore)
                .pin(pinning)
                .build()
                .unwrap();
            assert_eq!(runtime.handle().workers(), 1);
            assert_eq!(runtime.block_on(async { mask() }), all[..1]);
        }
        // More workers than CPUs share what there is.
        let runtime = Builder::new()
            .workers(3)
            .pin(Pinning::PerCore)
            .build()
            .unwrap();
        assert_eq!(masks(&runtime), [&all[..1]; 3]);
    });
}

#[test]
fn pinned_workers_keep_to_one_allowed_cpu_each() {
    const NAME: &str = "cpus::pinned_workers_keep_to_one_allowed_cpu_each";
    in_child(NAME, || {
        let all = mask();
        let runtime = Builder::new()
            .workers(4)
            .pin(Pinning::PerCore)
            .build()
            .unwrap();
        let expected: Vec<_> = (0..4).map(|worker| vec![all[worker % all.len()]]).collect();
        assert_eq!(masks(&runtime), expected);
        // Blocking work is no worker's, and is not confined to the CPU of one.
        let blocking = runtime.block_on(async { runtime::spawn_blocking(mask).await.unwrap() });
        assert_eq!(blocking, all);
        drop(runtime);
        assert_eq!(mask(), all, "the thread may move again");
    });
}

#[test]
fn a_pin_outside_the_mask_is_replaced_and_said() {
    const NAME: &str = "cpus::a_pin_outside_the_mask_is_replaced_and_said";
    in_child(NAME, || {
        let all = mask();
        set_mask(&all[all.len() - 1..]);
        let log = support::Log::start(tracing_subscriber::filter::LevelFilter::WARN);
        let runtime = Builder::new()
            .workers(2)
            .pin(vec![1000, 1001])
            .build()
            .unwrap();
        assert_eq!(masks(&runtime), [&all[all.len() - 1..]; 2]);
        let lines = log.lines();
        for wanted in ["CPU 1000", "CPU 1001"] {
            let said = lines.iter().filter(|line| {
                line.contains(wanted)
                    && line.contains("is not among those that this process may use")
            });
            assert_eq!(said.count(), 1, "{lines:?}");
        }
    });
}

#[test]
fn workers_that_are_not_pinned_may_use_every_cpu() {
    const NAME: &str = "cpus::workers_that_are_not_pinned_may_use_every_cpu";
    in_child(NAME, || {
        let all = mask();
        let runtime = Builder::new().workers(2).build().unwrap();
        assert_eq!(masks(&runtime), [&all[..]; 2]);
    });
}

/// The quota that a container with one CPU has. It is made up, in a mount namespace of this process's own.
#[test]
fn a_quota_of_one_cpu_gives_one_worker() {
    const NAME: &str = "cpus::a_quota_of_one_cpu_gives_one_worker";
    in_child(NAME, || {
        if let Err(error) = pretend_quota() {
            return println!("skipped: a quota cannot be made up here ({error})");
        }
        let runtime = Builder::new().workers(Workers::PerCore).build().unwrap();
        assert_eq!(runtime.handle().workers(), 1);
    });
}

/// Puts files with a quota of one CPU where this process looks for those of its control group, v1 or v2.
fn pretend_quota() -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"tmpfs", c"/sys/fs/cgroup", Some(c"tmpfs"), 0)?;
    let mut made_up = false;
    for line in fs::read_to_string("/proc/self/cgroup")?.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        if controllers.is_empty() {
            let group = format!("/sys/fs/cgroup{path}");
            fs::create_dir_all(&group)?;
            fs::write(format!("{group}/cgroup.controllers"), "cpu")?;
            fs::write(format!("{group}/cpu.max"), "100000 100000")?;
            made_up = true;
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            let group = format!("/sys/fs/cgroup/cpu{path}");
            fs::create_dir_all(&group)?;
            fs::write(format!("{group}/cpu.cfs_quota_us"), "100000")?;
            fs::write(format!("{group}/cpu.cfs_period_us"), "100000")?;
            made_up = true;
        }
    }
    if made_up {
        Ok(())
    } else {
        Err(io::Error::other("the process is in no control group"))
    }
}

fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the strings outlive the call; no data is given.
    let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) };
    check(result)
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn in_child(name: &str, test: impl FnOnce()) {
    if Parent::in_child(name).is_some() {
        return test();
    }
    let _alone = alone(name);
    Child::start(name).finish();
}

/// The CPUs of each worker.
fn masks(runtime: &runtime::Runtime) -> Vec<Vec<usize>> {
    runtime.block_on(async {
        let tasks = Handle::current().spawn_on_each(|_| async { mask() });
        futures::future::try_join_all(tasks).await.unwrap()
    })
}

fn mask() -> Vec<usize> {
    // SAFETY: a set of CPUs is plain bits.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is as large as it says, and outlives the call.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(result, 0);
    // SAFETY: the numbers are below the size of the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_set).collect()
}

fn set_mask(cpus: &[usize]) {
    // SAFETY: a set of CPUs is plain bits.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus {
        // SAFETY: the kernel gave this number, which is below the size of the set.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the set is as large as it says, and outlives the call.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(result, 0);
}
