// What is wrong in the body is shown there, in the words for an `async fn`.

#[runtime::main]
async fn main() -> Result<(), std::num::ParseIntError> {
    let port: u16 = "7000".parse()?;
    if port == 0 {
        return port;
    }
    port
}

#[runtime::main]
async fn question_mark() {
    let _: u16 = "7000".parse()?;
}

#[runtime::main]
async fn no_tail() -> u16 {
    runtime::yield_now().await;
}

#[runtime::main]
async fn unknown_name() {
    missing().await;
}
