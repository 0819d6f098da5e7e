//! monoio's server, as its documentation writes it: buffers are given to the operation and come back with its result.

use std::io;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};
use server::{BUFFER, Job, Mode};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    monoio::RuntimeBuilder::<monoio::FusionDriver>::new()
        .with_entries(4096)
        .build()?
        .block_on(serve(job.mode))
}

async fn serve(mode: Mode) -> io::Result<()> {
    let listener = TcpListener::from_std(server::listener()?)?;
    server::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        match mode {
            Mode::Echo => drop(monoio::spawn(echo(stream))),
            Mode::Packets => drop(monoio::spawn(packets(stream))),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let (length, filled) = stream.read(buffer).await;
        if length? == 0 {
            return Ok(());
        }
        let (written, sent) = stream.write_all(filled).await;
        written?;
        buffer = sent;
        buffer.clear();
    }
}

async fn packets(mut stream: TcpStream) -> io::Result<()> {
    for packet in server::packets() {
        stream.write_all(packet).await.0?;
    }
    Ok(())
}
