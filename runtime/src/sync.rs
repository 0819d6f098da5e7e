//! The types by which threads meet: those of `std`, or those of `loom` when the models (`models/`) run.

#[cfg(not(all(test, ringshot_loom)))]
mod chosen {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::{thread, thread_local};
}

#[cfg(all(test, ringshot_loom))]
mod chosen {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread;

    /// Loom's macro does not know the constant initialisers of `std`'s.
    macro_rules! modelled {
        (static $name:ident: $type:ty = const { $value:expr };) => {
            loom::thread_local! { static $name: $type = $value; }
        };
    }
    pub(crate) use modelled as thread_local;
}

pub(crate) use self::chosen::*;
