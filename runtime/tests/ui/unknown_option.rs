#[runtime::main(flavor = "current_thread", backend = "auto", worker_threads = 4)]
async fn main() {}

#[runtime::test(start_paused)]
async fn works() {}
