//! The types by which threads meet: those of `std`, or those of `loom` when the [models](crate::models) run.

#[cfg(not(all(test, ringshot_loom)))]
mod chosen {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::{thread, thread_local};
}

#[cfg(all(test, ringshot_loom))]
mod chosen {
    use std::ops::Deref;

    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread;

    /// Loom's, but for the stores. A read-modify-write takes the place after the value that it has read; loom (0.7)
    /// does not know that, and would let it overlook a plain store that was made in between. Stores that are
    /// read-modify-writes themselves cannot be overlooked. Loads may still return any value that is old enough.
    pub(crate) struct Atomic<A>(A);

    pub(crate) type AtomicBool = Atomic<atomic::AtomicBool>;
    pub(crate) type AtomicU8 = Atomic<atomic::AtomicU8>;

    impl Atomic<atomic::AtomicBool> {
        pub(crate) fn new(value: bool) -> Self {
            Self(atomic::AtomicBool::new(value))
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.swap(value, order);
        }
    }

    impl Atomic<atomic::AtomicU8> {
        pub(crate) fn new(value: u8) -> Self {
            Self(atomic::AtomicU8::new(value))
        }

        pub(crate) fn store(&self, value: u8, order: Ordering) {
            self.0.swap(value, order);
        }
    }

    /// All else is loom's own.
    impl<A> Deref for Atomic<A> {
        type Target = A;

        fn deref(&self) -> &A {
            &self.0
        }
    }

    /// Loom's macro does not know the constant initialisers of `std`'s.
    macro_rules! modelled {
        (static $name:ident: $type:ty = const { $value:expr };) => {
            loom::thread_local! { static $name: $type = $value; }
        };
    }
    pub(crate) use modelled as thread_local;
}

pub(crate) use self::chosen::*;
