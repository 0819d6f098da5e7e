//! smol's server, as its documentation writes it, on a local executor: one thread, as the others have.

use std::io;
use std::rc::Rc;

use server::{BUFFER, Job, Mode};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::TcpStream;
use smol::{Async, LocalExecutor};

fn main() -> io::Result<()> {
    let job = Job::from_args()?;
    let executor = Rc::new(LocalExecutor::new());
    smol::block_on(executor.run(serve(&executor, job.mode)))
}

async fn serve(executor: &Rc<LocalExecutor<'_>>, mode: Mode) -> io::Result<()> {
    let listener = Async::new(server::listener()?)?;
    server::announce(listener.get_ref().local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let stream = TcpStream::from(stream);
        match mode {
            Mode::Echo => executor.spawn(echo(stream)).detach(),
            Mode::Packets => executor.spawn(packets(stream)).detach(),
        }
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
