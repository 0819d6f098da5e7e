//! Where a task comes from.

use std::any::type_name;
use std::fmt;
use std::panic::Location;

/// What to call a task when there is something to be said about it: where it was spawned, and the type of its future,
/// which tells tasks apart that a library spawns for others.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) spawned_at: &'static Location<'static>,
    future: fn() -> &'static str,
}

impl Origin {
    /// That of a future of type `F`, spawned by the caller.
    #[track_caller]
    pub(crate) fn here<F>() -> Self {
        Self {
            spawned_at: Location::caller(),
            future: type_name::<F>,
        }
    }

    pub(crate) fn future(&self) -> &'static str {
        (self.future)()
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.spawned_at, self.future())
    }
}
