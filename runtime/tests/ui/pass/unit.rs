#[runtime::main]
async fn main() {
    runtime::yield_now().await;
}
