//! Aborts from where they are least expected: out of the task itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use runtime::{Builder, JoinHandle};
use support::settled;

use crate::alone;

#[test]
fn a_task_that_aborts_itself_is_not_polled_again() {
    let _alone = alone("a task that aborts itself");
    Builder::new().build().unwrap().block_on(async {
        let (handle, steps) = (Own::default(), Rc::new(Cell::new(0)));
        let task = runtime::spawn({
            let (handle, steps) = (handle.clone(), steps.clone());
            async move {
                handle.abort();
                handle.abort();
                steps.set(1);
                runtime::yield_now().await;
                steps.set(2);
            }
        });
        handle.0.replace(Some(task));
        settled("steps", 1, || steps.get()).await;
        let task = handle.0.take().unwrap();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(steps.get(), 1);
        // The next one in its place is no aborted one.
        let next = runtime::spawn(async {
            runtime::yield_now().await;
            42
        });
        assert_eq!(next.await.unwrap(), 42);
    });
}

#[test]
fn a_task_that_aborts_itself_and_finishes_in_the_same_poll_keeps_its_output() {
    let _alone = alone("a task that aborts itself and finishes");
    Builder::new().build().unwrap().block_on(async {
        let (handle, is_over) = (Own::default(), Rc::new(Cell::new(false)));
        let task = runtime::spawn({
            let (handle, is_over) = (handle.clone(), is_over.clone());
            async move {
                handle.abort();
                is_over.set(true);
            }
        });
        handle.0.replace(Some(task));
        settled("the end", true, || is_over.get()).await;
        let task = handle.0.take().unwrap();
        assert!(task.await.is_ok());
        assert_eq!(runtime::spawn(async { 42 }).await.unwrap(), 42);
    });
}

/// A task's own handle.
#[derive(Clone, Default)]
struct Own(Rc<RefCell<Option<JoinHandle<()>>>>);

impl Own {
    fn abort(&self) {
        self.0.borrow().as_ref().unwrap().abort();
    }
}
