#[runtime::test]
#[test]
async fn with_the_builtin() {}

#[runtime::test]
#[ignore]
#[runtime::test(backend = "epoll")]
async fn with_itself() {}

#[runtime::main]
#[runtime::main]
async fn main() {}
