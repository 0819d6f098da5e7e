//! compio's server, as its documentation writes it: buffers are given to the operation and come back with its result.

use std::io;

use compio::BufResult;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use server::{BUFFER, Job, Mode};

#[compio::main]
async fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let listener = TcpListener::from_std(server::listener()?)?;
    server::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        match job.mode {
            Mode::Echo => compio::runtime::spawn(echo(stream)).detach(),
            Mode::Packets => compio::runtime::spawn(packets(stream)).detach(),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let BufResult(length, filled) = stream.read(buffer).await;
        if length? == 0 {
            return Ok(());
        }
        let BufResult(written, sent) = stream.write_all(filled).await;
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
