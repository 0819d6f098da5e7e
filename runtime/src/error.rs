//! Why a runtime could not be built.

use std::error::Error;
use std::{fmt, fs, io};

/// Why [`Builder::build`](crate::Builder::build) failed: the cause, and what would cure it.
///
/// The kernel's own error is the [`source`](Error::source), and converting into an [`io::Error`] keeps its kind.
#[derive(Debug)]
pub struct BuildError {
    cause: Cause,
    source: io::Error,
}

/// What stood in the way.
#[derive(Debug)]
pub(crate) enum Cause {
    /// A sysctl, with its value.
    Sysctl(char),
    /// Something in between refuses the call: seccomp, or a security module.
    Denied,
    /// The kernel was built without io_uring, or a sandbox has none.
    Missing,
    Memory,
    /// The kernel knows io_uring and not what is asked of it.
    TooOld,
    Descriptors,
    /// An option or a variable of the user's.
    Configuration(String),
    Other(&'static str),
}

impl BuildError {
    pub(crate) fn new(cause: Cause, source: io::Error) -> Self {
        Self { cause, source }
    }

    /// What setting up a ring, or using it for the first time, says.
    pub(crate) fn from_ring(source: io::Error) -> Self {
        let cause = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => match disabling_sysctl() {
                Some(value) => Cause::Sysctl(value),
                None => Cause::Denied,
            },
            Some(libc::ENOSYS) => Cause::Missing,
            Some(libc::ENOMEM) => Cause::Memory,
            Some(libc::EINVAL) => Cause::TooOld,
            Some(libc::EMFILE | libc::ENFILE) => Cause::Descriptors,
            _ => Cause::Other("setting up a ring failed"),
        };
        Self::new(cause, source)
    }

    /// Whether io_uring cannot be used here at all, so that another backend is the answer.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self.cause, Cause::Descriptors | Cause::Configuration(_))
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Sysctl(value) => write!(
                f,
                "io_uring is switched off on this machine (kernel.io_uring_disabled = {value}): \
                 set that sysctl to 0, or to 1 and run in the group of kernel.io_uring_group"
            ),
            Cause::Denied => f.write_str(
                "io_uring is refused to this process, most likely by a seccomp profile (the default of Docker, \
                 containerd and Podman): run with a profile that allows io_uring_setup, io_uring_enter and \
                 io_uring_register",
            ),
            Cause::Missing => f.write_str(
                "this kernel has no io_uring (or a sandbox such as gVisor hides it): use Linux 5.10 or newer, \
                 built with CONFIG_IO_URING",
            ),
            Cause::Memory => f.write_str(
                "there is no memory for a ring, most likely because of RLIMIT_MEMLOCK: raise it (`ulimit -l`), \
                 or ask for smaller rings (Builder::ring_entries, Builder::completion_entries)",
            ),
            Cause::TooOld => f.write_str(
                "this kernel does not know what is needed of io_uring: use Linux 5.10 or newer",
            ),
            Cause::Descriptors => f.write_str(
                "no file descriptor is left for a ring: raise RLIMIT_NOFILE (`ulimit -n`), or look for a leak",
            ),
            Cause::Configuration(what) => f.write_str(what),
            Cause::Other(what) => f.write_str(what),
        }?;
        match self.cause {
            Cause::Configuration(_) => Ok(()),
            _ => write!(f, " ({})", self.source),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}

/// The value of an environment variable, empty if it is not set. What is no text stays visible as such.
pub(crate) fn variable(name: &str) -> String {
    let value = std::env::var_os(name).unwrap_or_default();
    value.to_string_lossy().into_owned()
}

/// The sysctl's value, if it is there (6.6, and wherever it was back-ported) and not 0.
fn disabling_sysctl() -> Option<char> {
    let value = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    value.chars().next().filter(|value| *value != '0')
}
