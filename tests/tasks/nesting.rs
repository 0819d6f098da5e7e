//! `block_on` where it cannot work: a clear answer, and no harm.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::{AsyncReadExt, FutureExt};
use net::TcpListener;
use runtime::time::sleep;
use runtime::{Builder, Runtime};

use crate::alone;

/// B44.
#[test]
fn a_nested_block_on_panics_with_the_cure_and_does_no_harm() {
    let _alone = alone("nested block_on");
    let runtime = build();
    for _ in 0..3 {
        runtime.block_on(async {
            assert_names_the_cure(|| runtime.block_on(async {}));
            still_works().await;
        });
    }
    // The panic of a task, caught by nobody.
    runtime.block_on(async {
        let task = runtime::spawn(async { build().block_on(sleep(Duration::ZERO)) });
        assert!(task.await.unwrap_err().is_panic());
        still_works().await;
    });
}

/// B44.
#[test]
fn a_block_on_of_another_runtime_inside_the_first_panics_with_the_cure() {
    let _alone = alone("block_on of another runtime");
    let (first, second) = (build(), build());
    first.block_on(async {
        assert_names_the_cure(|| second.block_on(async {}));
        still_works().await;
    });
    second.block_on(still_works());
    // One after the other is no nesting.
    first.block_on(still_works());
}

/// B44.
#[test]
fn a_block_on_in_a_destructor_panics_with_the_cure() {
    struct BlocksOnDrop(std::rc::Rc<Runtime>);
    impl Drop for BlocksOnDrop {
        fn drop(&mut self) {
            assert_names_the_cure(|| self.0.block_on(async {}));
        }
    }
    let _alone = alone("block_on in a destructor");
    let other = std::rc::Rc::new(build());
    let runtime = build();
    runtime.block_on(async {
        drop(BlocksOnDrop(other.clone()));
        let held = BlocksOnDrop(other.clone());
        let task = runtime::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        runtime::yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        still_works().await;
    });
    drop(runtime);
    other.block_on(still_works());
}

/// B44.
#[test]
fn a_panic_in_block_on_leaves_the_runtime_usable() {
    let _alone = alone("a panic in block_on");
    let runtime = build();
    for _ in 0..3 {
        let blocked = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async { std::panic::panic_any("as planned") })
        }));
        let payload: Result<(), _> = blocked;
        assert_eq!(payload.unwrap_err().downcast_ref(), Some(&"as planned"));
        runtime.block_on(still_works());
    }
}

#[test]
fn spawn_outside_a_runtime_panics_with_the_cure() {
    let _alone = alone("spawn outside");
    let spawned = catch_unwind(|| drop(runtime::spawn(async {})));
    let message = panic_message(spawned);
    assert!(
        message.contains("block_on") || message.contains("main"),
        "{message}"
    );
}

fn build() -> Runtime {
    Builder::new().build().unwrap()
}

fn assert_names_the_cure(nested: impl FnOnce()) {
    let message = panic_message(catch_unwind(AssertUnwindSafe(nested)));
    assert!(message.contains("block_on"), "{message}");
    assert!(
        message.contains("await") || message.contains("spawn"),
        "{message}"
    );
}

fn panic_message(result: std::thread::Result<()>) -> String {
    let payload = result.expect_err("a panic");
    match payload.downcast_ref::<String>() {
        Some(message) => message.clone(),
        None => payload.downcast_ref::<&str>().unwrap().to_string(),
    }
}

/// Tasks, timers and sockets.
async fn still_works() {
    assert_eq!(runtime::spawn(async { 1 }).await.unwrap(), 1);
    sleep(Duration::from_micros(1)).await;
    assert!(sleep(Duration::from_secs(1)).now_or_never().is_none());
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let (mut stream, mut peer) = support::pair(&listener).await;
    std::io::Write::write_all(&mut peer, b"yes").unwrap();
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"yes");
}
