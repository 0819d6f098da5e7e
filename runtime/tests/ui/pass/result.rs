use std::error::Error;

#[runtime::main(backend = "epoll")]
async fn main() -> Result<(), Box<dyn Error>> {
    runtime::yield_now().await;
    let port: u16 = "7000".parse()?;
    if port != 7000 {
        return Err("the port changed".into());
    }
    Ok(())
}
