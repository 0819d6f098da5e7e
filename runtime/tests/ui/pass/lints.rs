// The expansion brings no warning of its own, and lint levels on the function hold for its body.
#![deny(warnings, missing_docs, unreachable_pub, unused, unused_qualifications, unsafe_code)]
#![deny(elided_lifetimes_in_paths, single_use_lifetimes, unit_bindings, let_underscore_drop)]
//! Documented.

#[runtime::main]
#[allow(unused_variables)]
async fn allowed() {
    #![allow(unused_mut)]
    let mut port = 7000;
}

#[runtime::main]
#[expect(unused_variables, reason = "the level reaches the body, or this is an error")]
async fn expected() {
    let port = 7000;
}

fn main() {
    allowed();
    expected();
}
