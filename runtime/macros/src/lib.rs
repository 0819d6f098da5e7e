//! The attributes [`main`] and [`test`](macro@test) of the Ringshot runtime.
//!
//! Programs depend on the `ringshot-runtime` package, whose library is called `runtime`, and write
//! `#[runtime::main]` and `#[runtime::test]`. This package exists because Cargo wants procedural macros in a
//! package of their own.

use proc_macro::TokenStream;

use crate::expand::{Entry, expand};

mod expand;
mod options;

/// Runs an `async fn` to its end on a runtime of its own.
///
/// The function becomes an ordinary one. When it is called it builds a runtime, blocks the calling thread on the
/// body, and returns what the body returned. Any return type is allowed; for the `main` of a program it has to be
/// [`Termination`](std::process::Termination): `()`, `Result<(), E>` with `E: Debug`, `ExitCode`, `!` or
/// `impl Termination`.
///
/// The future of the body stays on the calling thread, so it need not be `Send`. Attributes, visibility and
/// documentation of the function are kept, and lint levels set on it hold for its body. The attribute also works
/// on functions that are not called `main`, if they are free functions without parameters; calling one of them
/// inside a runtime panics, as any nested `block_on` does.
///
/// This function
///
/// ```
/// #[runtime::main(backend = "epoll")]
/// async fn main() -> std::io::Result<()> {
///     runtime::yield_now().await;
///     Ok(())
/// }
/// ```
///
/// turns into this one:
///
/// ```
/// fn main() -> std::io::Result<()> {
///     async fn main() -> std::io::Result<()> {
///         runtime::yield_now().await;
///         Ok(())
///     }
///
///     let mut builder = runtime::Builder::new();
///     builder = builder.workers(runtime::Workers::PerCore).backend(runtime::Backend::Epoll);
///     match builder.build() {
///         Ok(runtime) => runtime.block_on(main()),
///         Err(error) => panic!("failed to build the runtime: {error}"),
///     }
/// }
/// ```
///
/// A program that sets more than the options below, or that wants to handle the failure to build a runtime, writes
/// the second form itself.
///
/// # Options
///
/// Options are written `name = value` and separated by commas. They are checked when the program is compiled.
///
/// | Option | Values | Without it |
/// | --- | --- | --- |
/// | `backend` | `"auto"`, `"uring"`, `"epoll"`: the variants of `runtime::Backend` | what `Builder::new` chooses |
/// | `workers` | a number from 1 on, or `"per-core"`: one for each CPU that the program may use, by its affinity mask and its control group's quota | `"per-core"` for `main`, 1 for `test` |
/// | `crate` | the path at which the program has the `runtime` crate, for example `"my_prelude::runtime"` | `"::runtime"` |
///
/// # Panics
///
/// The function panics if the runtime cannot be built. The message starts with `failed to build the runtime` and
/// goes on with the `BuildError`, which names the cause and the cure. It also panics when it is called inside a
/// runtime, and it passes on a panic of the body.
///
/// # Examples
///
/// Errors of the body end the program with a failure code, as they do in an ordinary `main`:
///
/// ```
/// #[runtime::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let task = runtime::spawn(async { "7000".parse::<u16>() });
///     let port = task.await??;
///     assert_eq!(port, 7000);
///     Ok(())
/// }
/// ```
///
/// A program that has the crate under another name says so:
///
/// ```
/// mod prelude {
///     pub use runtime as ring;
/// }
///
/// #[prelude::ring::main(crate = "crate::prelude::ring")]
/// async fn main() {
///     prelude::ring::yield_now().await;
/// }
/// ```
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Entry::Main, args.into(), item.into()).into()
}

/// Makes an `async fn` a test that runs on a runtime of its own.
///
/// The function becomes an ordinary `#[test]` that builds a runtime, blocks the thread of the test on the body, and
/// returns what the body returned: `()`, or a `Result` whose error fails the test. `#[should_panic]`, `#[ignore]` and
/// all other attributes are kept. Do not add `#[test]`.
///
/// Each test has its own runtime, and so its own tasks and its own clock. Tests run at the same time on different
/// threads do not share anything.
///
/// # Options
///
/// The same as those of [`main`].
///
/// # Panics
///
/// The test fails if the runtime cannot be built, with the message described at [`main`].
///
/// # Examples
///
/// ```
/// #[runtime::test]
/// async fn a_task_hands_back_its_result() -> Result<(), runtime::JoinError> {
///     let sum = runtime::spawn(async { 1 + 1 }).await?;
///     assert_eq!(sum, 2);
///     Ok(())
/// }
///
/// #[runtime::test(backend = "epoll")]
/// #[should_panic(expected = "out of reach")]
/// async fn epoll_needs_no_ring() {
///     runtime::yield_now().await;
///     panic!("out of reach");
/// }
/// ```
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Entry::Test, args.into(), item.into()).into()
}
