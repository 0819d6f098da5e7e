#[runtime::main(backend = "auto", crate = "::runtime", backend = "epoll")]
async fn main() {}

#[runtime::test(crate = "::runtime", crate = "::runtime")]
async fn works() {}
