//! tokio's servers, as its documentation writes them: `accept`, `spawn`, `read`, `write_all`.
//!
//! Variants: `current` and `multi` name the runtime; `64k` is the current-thread runtime with larger buffers, and
//! `bufwriter` the same with what an expert would put around the socket for small writes.

use std::io;

use server::{BUFFER, Job, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let mut builder = match job.variant.as_str() {
        "multi" => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    builder.enable_all().build()?.block_on(serve(job))
}

async fn serve(job: Job) -> io::Result<()> {
    let buffer = match job.variant.as_str() {
        "64k" => 64 << 10,
        _ => BUFFER,
    };
    let buffered = job.variant == "bufwriter";
    let listener = TcpListener::from_std(server::listener()?)?;
    server::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        match job.mode {
            Mode::Echo => drop(tokio::spawn(echo(stream, buffer))),
            Mode::Packets if buffered => drop(tokio::spawn(packets(BufWriter::new(stream)))),
            Mode::Packets => drop(tokio::spawn(packets(stream))),
        }
    }
}

async fn echo(mut stream: TcpStream, buffer: usize) -> io::Result<()> {
    let mut buffer = vec![0; buffer];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}

async fn packets(mut stream: impl AsyncWriteExt + Unpin) -> io::Result<()> {
    for packet in server::packets() {
        stream.write_all(packet).await?;
    }
    Ok(())
}
