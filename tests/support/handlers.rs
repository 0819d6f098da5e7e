//! What a server does with a connection: the same echo in each of the forms that the API offers.
//!
//! `TcpStream::split` is called by its path: where `futures::AsyncReadExt` is in scope, `stream.split()` means the
//! trait's method, which takes the stream by value.

use std::io;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpStream;

/// In the words of `std` and tokio: one copy out, one copy in.
pub async fn echo_copy(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = vec![0; 16 << 10];
    loop {
        match stream.read(&mut buf).await? {
            0 => break,
            len => stream.write_all(&buf[..len]).await?,
        }
    }
    stream.close().await
}

/// Through `AsyncBufRead`: no buffer of its own.
pub async fn echo_copy_buf(mut stream: TcpStream) -> io::Result<()> {
    let (reader, mut writer) = TcpStream::split(&mut stream);
    futures::io::copy_buf(reader, &mut writer).await?;
    writer.close().await
}

/// The kernel's own buffers go back out.
pub async fn echo_lease(mut stream: TcpStream) -> io::Result<()> {
    let (mut reader, mut writer) = TcpStream::split(&mut stream);
    let mut chunks = reader.recv_stream();
    while let Some(chunk) = chunks.next().await {
        writer.send(chunk?).await?;
    }
    writer.close().await
}
