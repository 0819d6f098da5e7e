#[runtime::main]
fn main() -> std::io::Result<()> {
    runtime::yield_now().await;
    Ok(())
}

#[runtime::test]
pub fn works() {}
