// The expansion depends on no name that a program may define otherwise.
#![no_implicit_prelude]
#![allow(dead_code, unused_macros)]

mod core {}
mod runtime {}
enum Result {
    Ok,
    Err,
}
use self::Result::{Err, Ok};

macro_rules! panic {
    ($($anything:tt)*) => {
        compile_error!("not this one")
    };
}

#[::runtime::main(backend = "auto")]
async fn main() {
    let _ = (Ok, Err);
    fn runtime() {}
    fn error() {}
    runtime();
    error();
}
