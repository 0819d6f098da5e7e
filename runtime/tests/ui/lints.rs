// Lints see the function as if it had no attribute.
#![deny(dead_code, non_snake_case, unused_variables)]

#[runtime::main]
async fn main() {
    let unused = 1;
}

#[runtime::main]
async fn forgotten() {}

#[runtime::main]
pub async fn badName() {}
