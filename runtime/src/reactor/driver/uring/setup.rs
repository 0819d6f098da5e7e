//! Ring setup: the ladder of flags, and of sizes.

use std::io;

use io_uring::IoUring;

use crate::reactor::is_shortage;
use crate::reactor::probe::Disabled;

/// How large the queues are asked to be. The kernel rounds up to powers of two and clamps to its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) submissions: u32,
    pub(crate) completions: u32,
}

/// How the kernel runs the work that completes an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskWork {
    /// Only inside our own enter (since 6.1): nothing interrupts a task.
    Deferred,
    /// At any system call of the thread (since 5.19).
    Cooperative,
    /// By interrupting the thread.
    Interrupting,
}

/// A set of flags, from the best to the oldest. Each step down is for kernels that answer EINVAL to the one above.
const LADDER: [Step; 5] = [
    Step {
        task_work: TaskWork::Deferred,
        no_sqarray: true,
        submit_all: true,
    },
    Step {
        task_work: TaskWork::Deferred,
        no_sqarray: false,
        submit_all: true,
    },
    Step {
        task_work: TaskWork::Cooperative,
        no_sqarray: false,
        submit_all: true,
    },
    Step {
        task_work: TaskWork::Interrupting,
        no_sqarray: false,
        submit_all: true,
    },
    Step {
        task_work: TaskWork::Interrupting,
        no_sqarray: false,
        submit_all: false,
    },
];

#[derive(Clone, Copy, Debug)]
struct Step {
    task_work: TaskWork,
    /// Since 6.6: one indirection less for each entry.
    no_sqarray: bool,
    /// Since 5.18: a bad entry does not stop the ones behind it.
    submit_all: bool,
}

/// Makes the best ring that this kernel and these limits allow.
pub(super) fn build(sizes: Sizes, disabled: &Disabled) -> io::Result<(IoUring, TaskWork)> {
    let mut sizes = sizes;
    // A smaller completion queue is refused.
    sizes.completions = sizes.completions.max(sizes.submissions);
    loop {
        match climb_down(sizes, disabled) {
            Err(error) if is_shortage(&error) && sizes.submissions > MIN_SUBMISSIONS => {
                sizes.submissions = (sizes.submissions / 2).max(MIN_SUBMISSIONS);
                sizes.completions = (sizes.completions / 2).max(2 * sizes.submissions);
            }
            built => return built,
        }
    }
}

fn climb_down(sizes: Sizes, disabled: &Disabled) -> io::Result<(IoUring, TaskWork)> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for step in LADDER.iter().filter(|step| step.is_allowed(disabled)) {
        match step.build(sizes) {
            Ok(ring) => return Ok((ring, step.task_work)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

impl Step {
    fn is_allowed(&self, disabled: &Disabled) -> bool {
        match self.task_work {
            // Without a limit for the enter's sleep the ring's descriptor is polled, which a ring with deferred work
            // does not answer. No kernel has the one without the other.
            TaskWork::Deferred => {
                !disabled.contains("defer_taskrun") && !disabled.contains("ext_arg")
            }
            TaskWork::Cooperative => !disabled.contains("coop_taskrun"),
            TaskWork::Interrupting => true,
        }
    }

    fn build(&self, sizes: Sizes) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        // A child must not share the queues (they would be written from two sides).
        builder.dontfork();
        builder.setup_clamp().setup_cqsize(sizes.completions);
        match self.task_work {
            TaskWork::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
                builder.setup_taskrun_flag();
            }
            TaskWork::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            TaskWork::Interrupting => {}
        }
        if self.no_sqarray {
            builder.setup_no_sqarray();
        }
        if self.submit_all {
            builder.setup_submit_all();
        }
        builder.build(sizes.submissions)
    }
}

/// Below this a ring does not halve any further.
const MIN_SUBMISSIONS: u32 = 8;
