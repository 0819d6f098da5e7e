use std::process::ExitCode;

#[runtime::main]
async fn main() -> ExitCode {
    runtime::yield_now().await;
    ExitCode::SUCCESS
}
