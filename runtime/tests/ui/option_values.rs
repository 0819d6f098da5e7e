#[runtime::main(backend = runtime::Backend::Uring)]
async fn main() {}

#[runtime::main(backend)]
async fn flag() {}

#[runtime::main(backend("uring"))]
async fn list() {}

#[runtime::main(backend = 1 + 1, crate = runtime)]
async fn both() {}

#[runtime::main(crate = "the runtime")]
async fn words() {}
