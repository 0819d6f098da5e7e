//! The attributes `#[runtime::main]` and `#[runtime::test]`: what they accept, what they refuse, and what they run.

use std::cell::Cell;
use std::num::ParseIntError;
use std::panic::catch_unwind;
use std::process::{ExitCode, Termination};
use std::rc::Rc;

#[test]
fn misuse_is_explained_at_the_offending_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}

#[runtime::test]
async fn a_test_may_return_nothing() {
    runtime::yield_now().await;
}

#[runtime::test]
async fn a_test_may_return_a_result() -> Result<(), ParseIntError> {
    runtime::yield_now().await;
    let port: u16 = "7000".parse()?;
    assert_eq!(port, 7000);
    Ok(())
}

#[runtime::test]
async fn a_test_may_return_any_termination() -> impl Termination {
    runtime::yield_now().await;
    ExitCode::SUCCESS
}

#[runtime::test(backend = "epoll")]
async fn a_test_may_choose_its_backend() {
    runtime::yield_now().await;
}

#[runtime::test(workers = 3)]
async fn a_test_may_have_several_workers() {
    assert_eq!(runtime::Handle::current().workers(), 3);
    assert_eq!(
        runtime::spawn_on(2, || async { runtime::worker() })
            .await
            .unwrap(),
        2
    );
}

#[runtime::test]
async fn a_test_has_one_worker() {
    assert_eq!(runtime::Handle::current().workers(), 1);
}

#[test]
fn main_has_a_worker_for_each_core() {
    #[runtime::main]
    async fn workers() -> usize {
        runtime::Handle::current().workers()
    }

    #[runtime::main(workers = "per-core")]
    async fn asked_for() -> usize {
        runtime::Handle::current().workers()
    }

    #[runtime::main(workers = 2, backend = "epoll")]
    async fn two() -> usize {
        runtime::Handle::current().workers()
    }

    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!([workers(), asked_for(), two()], [cores, cores, 2]);
}

#[runtime::test]
#[should_panic(expected = "the reason")]
async fn other_attributes_are_kept() {
    runtime::yield_now().await;
    panic!("the reason");
}

#[runtime::test]
async fn the_body_need_not_be_send() {
    let shared = Rc::new(Cell::new(1));
    runtime::yield_now().await;
    shared.set(shared.get() + 1);
    assert_eq!(shared.get(), 2);
}

#[test]
fn main_works_on_any_function_and_any_type() {
    #[runtime::main]
    async fn add() -> u32 {
        let early = true;
        runtime::yield_now().await;
        if early {
            return 40 + 2;
        }
        unreachable!("the function has returned")
    }

    #[runtime::main]
    async fn parse() -> Result<u16, ParseIntError> {
        let port = "port".parse()?;
        Ok(port)
    }

    assert_eq!(add(), 42);
    assert!(parse().is_err());
}

#[test]
fn a_panic_of_the_body_is_passed_on() {
    #[runtime::main]
    async fn fail() {
        runtime::yield_now().await;
        panic!("the body gave up");
    }

    let panic = catch_unwind(fail).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the body gave up"));
}

#[test]
fn a_runtime_that_cannot_be_built_is_a_panic_with_the_cause() {
    #[runtime::main(crate = "refusing")]
    async fn fail() {
        unreachable!("there is no runtime to run this");
    }

    let panic = catch_unwind(fail).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert_eq!(message, "failed to build the runtime: the backend is Auto");
}

#[test]
fn the_chosen_backend_reaches_the_builder() {
    #[runtime::main(crate = "self::refusing", backend = "uring")]
    async fn uring() {}

    #[runtime::main(crate = "crate::refusing", backend = "epoll")]
    async fn epoll() {}

    for (function, name) in [(uring as fn(), "Uring"), (epoll, "Epoll")] {
        let panic = catch_unwind(function).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.ends_with(name), "{message}");
    }
}

/// A runtime that cannot be built, and says which backend it was asked for.
mod refusing {
    use std::convert::Infallible;

    pub(crate) use runtime::{Backend, Workers};

    pub(crate) struct Builder(Backend);

    impl Builder {
        pub(crate) fn new() -> Self {
            Self(Backend::Auto)
        }

        pub(crate) fn backend(self, backend: Backend) -> Self {
            Self(backend)
        }

        pub(crate) fn workers(self, _: impl Into<Workers>) -> Self {
            self
        }

        pub(crate) fn build(self) -> Result<Runtime, String> {
            Err(format!("the backend is {:?}", self.0))
        }
    }

    pub(crate) struct Runtime(Infallible);

    impl Runtime {
        pub(crate) fn block_on<F: Future>(&self, _: F) -> F::Output {
            match self.0 {}
        }
    }
}
