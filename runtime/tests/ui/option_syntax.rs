#[runtime::main("uring")]
async fn main() {}

#[runtime::main(backend: "uring")]
async fn colon() {}

#[runtime::main(backend = "uring" crate = "::runtime")]
async fn no_comma() {}

#[runtime::test(backend = )]
async fn works() {}
