#[runtime::main]
async fn main();
