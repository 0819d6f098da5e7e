//! Echo without a copy: what was received is sent back from the very buffer that the kernel filled.
//!
//! `recv_stream` yields leases of the shared buffers. Sending a lease gives it away until the
//! kernel has taken its bytes; then the buffer goes back to the pool. Nobody has to wait for that
//! or to return anything.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures::{AsyncWriteExt, StreamExt, stream};
use net::TcpStream;
use net::serve::{Server, ShutdownHandle};
use runtime::signal::{Signal, SignalKind};

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

#[runtime::main(workers = "per-core")]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = serve(&args).await {
        eprintln!("echo-lease: {}: {error}", args.addr);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn serve(args: &Args) -> io::Result<()> {
    let server = Server::builder().bind(&args.addr).await?;
    let handle = server.shutdown_handle();
    println!(
        "echo-lease: listening on {}, {} workers ({})",
        server.local_addr()?,
        handle.connections().len(),
        runtime::features()
    );
    runtime::spawn(stop_when_told(handle.clone())?);
    // A connection's error (a reset, mostly) ends that connection only.
    let ended = server
        .run(|mut stream, _peer| async move { echo(&mut stream).await })
        .await?;
    println!(
        "{} accepts failed, {} finished, {} aborted",
        handle.accept_errors(),
        ended.finished,
        ended.aborted
    );
    Ok(())
}

/// Ctrl-C, or SIGTERM: what has begun may come to its end. The second time it must.
fn stop_when_told(server: ShutdownHandle) -> io::Result<impl Future<Output = ()> + 'static> {
    let interrupts = Signal::new(SignalKind::interrupt())?;
    let terminations = Signal::new(SignalKind::terminate())?;
    let mut signals = stream::select(interrupts, terminations);
    Ok(async move {
        for grace in [GRACE, Duration::ZERO] {
            if signals.next().await.is_some() {
                println!("stopping within {grace:?}");
                server.shutdown(grace);
            }
        }
    })
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

/// How long connections have to come to their end.
const GRACE: Duration = Duration::from_secs(10);
