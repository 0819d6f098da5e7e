//! Which CPUs this process may use, and which worker runs on which.

use std::io;
use std::num::NonZeroUsize;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How many workers a runtime has.
///
/// # Examples
///
/// ```
/// use runtime::{Builder, Workers};
///
/// assert_eq!(Builder::new().workers(2).build()?.handle().workers(), 2);
/// assert!(Builder::new().workers(Workers::PerCore).build()?.handle().workers() >= 1);
/// # Ok::<_, runtime::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Workers {
    /// As many as there are CPUs that this process may use: those of its affinity mask, and no more than the quota
    /// of its control group (v1 and v2) pays for. At least one.
    PerCore,
    /// This many.
    Exactly(usize),
}

impl From<usize> for Workers {
    fn from(count: usize) -> Self {
        Self::Exactly(count)
    }
}

impl Workers {
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Exactly(count) => count,
            // The standard library asks for the mask and both kinds of quota.
            Self::PerCore => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }
}

/// Which CPU each worker runs on; see [`Builder::pin`](crate::Builder::pin).
///
/// Whatever is asked for, a worker is bound to a CPU that this process may use, or to none. What cannot be done is
/// logged as a warning and stops nothing.
///
/// # Examples
///
/// ```
/// use runtime::{Builder, Pinning};
///
/// // The second worker on the second of the CPUs that this process may use, if there are two.
/// let runtime = Builder::new().workers(2).pin(Pinning::PerCore).build()?;
/// # drop(runtime);
/// # Ok::<_, runtime::BuildError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pinning {
    /// The system moves workers as it likes.
    #[default]
    Off,
    /// Each worker on one of the CPUs that this process may use, in their order; from the first again when there are
    /// more workers than CPUs.
    PerCore,
    /// Worker n on the nth of these CPUs (numbers as in `/proc/cpuinfo`), from the first again when there are more
    /// workers. One that this process may not use is replaced by one that it may.
    To(Vec<usize>),
}

impl From<Vec<usize>> for Pinning {
    fn from(cpus: Vec<usize>) -> Self {
        Self::To(cpus)
    }
}

/// Where a worker shall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    cpu: usize,
    /// The CPU that was asked for and cannot be had.
    instead_of: Option<usize>,
}

impl Pinning {
    fn place(&self, worker: usize, allowed: &[usize]) -> Option<Place> {
        let nth_allowed = *allowed.get(worker.checked_rem(allowed.len())?)?;
        let wanted = match self {
            Self::Off => return None,
            Self::PerCore => nth_allowed,
            Self::To(cpus) => *cpus.get(worker.checked_rem(cpus.len())?)?,
        };
        Some(if allowed.contains(&wanted) {
            Place {
                cpu: wanted,
                instead_of: None,
            }
        } else {
            Place {
                cpu: nth_allowed,
                instead_of: Some(wanted),
            }
        })
    }

    pub(crate) fn is_on(&self) -> bool {
        *self != Self::Off
    }

    /// Binds the calling thread, which is that of `worker`. Returns the CPU, if it is bound to one now.
    pub(crate) fn pin(&self, worker: usize, allowed: &Allowed) -> Option<usize> {
        if !self.is_on() {
            return None;
        }
        let Some(place) = self.place(worker, &allowed.0) else {
            tracing::warn!(
                worker,
                "a worker is not pinned: the CPUs that it may use are not known"
            );
            return None;
        };
        let Place { cpu, instead_of } = place;
        if let Some(wanted) = instead_of {
            tracing::warn!(
                worker,
                cpu,
                "CPU {wanted} is not among those that this process may use ({allowed}), so the worker runs on another"
            );
        }
        match sched_setaffinity(None, &set_of(&[cpu])) {
            Ok(()) => Some(cpu),
            Err(error) => {
                tracing::warn!(worker, cpu, %error, "a worker is not pinned");
                None
            }
        }
    }
}

/// The CPUs that a thread may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed(Vec<usize>);

impl Allowed {
    /// Those of the calling thread. None, with a warning, if the system does not say.
    pub(crate) fn of_this_thread() -> Self {
        match sched_getaffinity(None) {
            Ok(set) => Self(
                (0..CpuSet::MAX_CPU)
                    .filter(|cpu| set.is_set(*cpu))
                    .collect(),
            ),
            Err(error) => {
                tracing::warn!(error = %io::Error::from(error), "the CPUs of this process are not known");
                Self::default()
            }
        }
    }

    /// Lets the calling thread use all of them (again).
    pub(crate) fn apply(&self) {
        if let Err(error) = sched_setaffinity(None, &set_of(&self.0)) {
            tracing::warn!(%error, "a thread stays on one CPU");
        }
    }
}

impl std::fmt::Display for Allowed {
    /// As the kernel writes it: `0-3,8`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self.0.chunk_by(|a, b| *b == a + 1);
        for (index, run) in runs.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_placed_on_allowed_cpus_in_turn() {
        let allowed = [2, 4];
        let cpus: Vec<_> = (0..3)
            .map(|worker| Pinning::PerCore.place(worker, &allowed).unwrap().cpu)
            .collect();
        assert_eq!(cpus, [2, 4, 2]);
        assert_eq!(Pinning::Off.place(0, &allowed), None);
    }

    /// B56.
    #[test]
    fn a_cpu_that_may_not_be_used_is_replaced_by_one_that_may() {
        let wish = Pinning::To(vec![4, 0]);
        let places: Vec<_> = (0..4)
            .map(|worker| wish.place(worker, &[2, 4]).unwrap())
            .map(|place| (place.cpu, place.instead_of))
            .collect();
        assert_eq!(places, [(4, None), (4, Some(0)), (4, None), (4, Some(0))]);
    }

    #[test]
    fn unknown_cpus_and_empty_wishes_pin_nothing() {
        assert_eq!(Pinning::PerCore.place(0, &[]), None);
        assert_eq!(Pinning::To(Vec::new()).place(0, &[1]), None);
    }

    #[test]
    fn lists_of_cpus_read_like_the_kernels() {
        assert_eq!(Allowed(vec![0, 1, 2, 5, 7, 8]).to_string(), "0-2,5,7-8");
        assert_eq!(Allowed(vec![3]).to_string(), "3");
    }
}
