#![deny(warnings)]

#[runtime::main]
async fn main() -> ! {
    runtime::yield_now().await;
    std::process::exit(0)
}
