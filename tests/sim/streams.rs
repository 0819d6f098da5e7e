use std::io;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use net::{TcpListener, TcpStream};
use runtime::sim::{Faults, Simulation};

#[test]
fn smoke() {
    for seed in 0..200 {
        let simulation = Simulation::new(seed).faults(Faults::hidden());
        simulation
            .run(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let server = runtime::spawn(async move {
                    let (mut stream, _) = listener.accept().await?;
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).await?;
                    stream.write_all(&all).await?;
                    io::Result::Ok(())
                });
                let mut client = TcpStream::connect(address).await?;
                let sent: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
                client.write_all(&sent).await?;
                client.shutdown(std::net::Shutdown::Write).await?;
                let mut all = Vec::new();
                client.read_to_end(&mut all).await?;
                assert!(all == sent, "seed {seed}");
                runtime::time::sleep(Duration::from_secs(1)).await;
                server.await??;
                io::Result::Ok(())
            })
            .unwrap();
    }
}
