//! Echo without a copy: what was received is sent back from the very buffer that the kernel filled.
//!
//! `recv_stream` yields leases of the shared buffers. Sending a lease gives it away until the
//! kernel has taken its bytes; then the buffer goes back to the pool. Nobody has to wait for that
//! or to return anything.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use futures::{AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};

/// Sends every byte back to the client that sent it, without copying any.
///
/// Shows a receive stream over one armed multishot receive, and sends that own their buffer.
/// Compare it with `echo`, which does the same in the words of std and tokio.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example echo-lease
  head -c 64M /dev/urandom >sent
  socat -t 30 - TCP:127.0.0.1:7001 <sent >received
  cmp sent received")]
struct Args {
    /// Where to listen; port 0 lets the system choose one
    #[arg(default_value = "127.0.0.1:7001")]
    addr: String,
}

#[runtime::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = serve(&args).await {
        eprintln!("echo-lease: {}: {error}", args.addr);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn serve(args: &Args) -> io::Result<()> {
    let listener = TcpListener::bind(&args.addr).await?;
    println!(
        "echo-lease: listening on {} ({})",
        listener.local_addr()?,
        runtime::features()
    );
    let mut incoming = listener.incoming();
    while let Some(stream) = incoming.next().await {
        match stream {
            Ok(mut stream) => {
                // A connection's error (a reset, mostly) ends that connection only: nobody waits
                // for its task.
                runtime::spawn(async move { echo(&mut stream).await });
            }
            // Typically "Too many open files"; the stream goes on by itself when accepting can work
            // again.
            Err(error) => eprintln!("echo-lease: accept: {error}"),
        }
    }
    Ok(())
}

async fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let (mut rx, mut tx) = stream.split();
    let mut chunks = rx.recv_stream();
    while let Some(chunk) = chunks.next().await {
        // Waits only when the client is slow to read: then nothing more is received for it either.
        tx.send(chunk?).await?;
    }
    tx.close().await
}
