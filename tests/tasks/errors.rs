//! What a handle says of a task that gave no output.

use std::any::Any;
use std::future::pending;
use std::io;
use std::panic::panic_any;

use runtime::{Builder, JoinError};

use crate::alone;

#[test]
fn the_error_of_a_panic_tells_the_panics_words() {
    let _alone = alone("the words of a panic");
    assert_eq!(words_of("as planned"), "the task panicked: as planned");
    let made = format!("{} of {}", 1, 2);
    assert_eq!(words_of(made), "the task panicked: 1 of 2");
    assert_eq!(words_of(17), "the task panicked: (no message)");
}

#[test]
fn the_error_of_an_abort_is_no_panic() {
    let _alone = alone("the error of an abort");
    let error = Builder::new().build().unwrap().block_on(async {
        let task = runtime::spawn(pending::<()>());
        task.abort();
        task.await.unwrap_err()
    });
    assert!(error.is_cancelled() && !error.is_panic());
    assert_says_the_same_as_an_io_error(
        error,
        "the task was aborted, or its runtime was shut down",
    );
}

fn words_of(payload: impl Any + Send) -> String {
    let error = Builder::new().build().unwrap().block_on(async {
        let task = runtime::spawn(async { panic_any(payload) });
        task.await.map(|()| "an output").unwrap_err()
    });
    assert!(error.is_panic() && !error.is_cancelled());
    let words = error.to_string();
    assert_says_the_same_as_an_io_error(error, &words);
    words
}

fn assert_says_the_same_as_an_io_error(error: JoinError, words: &str) {
    assert_eq!(error.to_string(), words);
    assert_eq!(format!("{error:?}"), format!("JoinError({words})"));
    let error = io::Error::from(error);
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (io::ErrorKind::Other, words)
    );
}
