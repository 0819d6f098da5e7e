#[runtime::main(backend = "kqueue")]
async fn main() {}

#[runtime::test(backend = "")]
async fn works() {}
