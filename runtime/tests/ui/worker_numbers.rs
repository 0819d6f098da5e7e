#[runtime::main(workers = 0)]
async fn main() {}

#[runtime::main(workers = "4")]
async fn text() {}

#[runtime::main(workers)]
async fn flag() {}

#[runtime::main(workers = N)]
async fn constant() {}

const N: usize = 4;
