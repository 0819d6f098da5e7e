//! glommio's server, as its documentation writes it.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};
use server::{BUFFER, Job, Mode};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .make()
        .map_err(io::Error::from)?;
    executor.run(serve(job.mode))
}

async fn serve(mode: Mode) -> io::Result<()> {
    let listener = server::listener()?;
    let address = listener.local_addr()?;
    // SAFETY: the descriptor is open and given away.
    let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
    server::announce(address)?;
    loop {
        let stream = listener.accept().await.map_err(io::Error::from)?;
        match mode {
            Mode::Echo => glommio::spawn_local(echo(stream)).detach(),
            Mode::Packets => glommio::spawn_local(packets(stream)).detach(),
        };
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}

async fn packets(mut stream: TcpStream) -> io::Result<()> {
    for packet in server::packets() {
        stream.write_all(packet).await?;
    }
    Ok(())
}
