#[runtime::main]
async fn main(port: u16, hosts: &[&str]) {
    let _ = (port, hosts);
}

#[runtime::test]
async fn works(_: bool) {}
