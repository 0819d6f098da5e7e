use std::process::{ExitCode, Termination};

#[runtime::main]
async fn main() -> impl Termination {
    runtime::yield_now().await;
    Ok::<_, std::fmt::Error>(ExitCode::SUCCESS)
}
