//! An echo server on all cores, which stops without losing anybody: it accepts no more, lets what it serves come to its
//! end, and tells what each worker has done.
//!
//! ```sh
//! cargo run --release --example echo-cores
//! ```
//!
//! Then `nc 127.0.0.1 7000` in some windows, and Ctrl-C (or SIGTERM) here.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures::io::copy_buf;
use futures::{StreamExt, stream};
use net::TcpStream;
use net::serve::{Balance, Server, ShutdownHandle};
use runtime::signal::{Signal, SignalKind};

/// Sends every byte back to the client that sent it, on all cores, and stops gently.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example echo-cores
  echo hello | nc -N 127.0.0.1 7000")]
struct Args {
    /// Where to listen; port 0 lets the system choose one
    #[arg(default_value = "127.0.0.1:7000")]
    addr: String,

    /// Give each connection to the worker that has the fewest, instead of leaving it to the kernel
    #[arg(long)]
    balanced: bool,

    /// Connections to serve at the same time
    #[arg(long, default_value_t = 100_000)]
    connections: usize,

    /// Seconds that connections have to come to their end once the server is told to stop
    #[arg(long, default_value_t = 10)]
    grace: u64,
}

#[runtime::main(workers = "per-core")]
async fn main() -> ExitCode {
    let args = Args::parse();
    match serve(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo-cores: {}: {error}", args.addr);
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: &Args) -> io::Result<()> {
    let balance = match args.balanced {
        true => Balance::LeastConnections,
        false => Balance::PerWorker,
    };
    let server = Server::builder()
        .balance(balance)
        .max_connections(args.connections)
        .bind(&args.addr)
        .await?;
    let handle = server.shutdown_handle();
    println!(
        "echo-cores: listening on {}, {} workers",
        server.local_addr()?,
        handle.connections().len()
    );
    let grace = Duration::from_secs(args.grace);
    let stopping = runtime::spawn(stop_when_told(handle.clone(), grace)?);
    let ended = server.run(|stream, _peer| echo(stream)).await?;
    stopping.abort();
    for (worker, connections) in handle.connections().iter().enumerate() {
        println!("worker {worker}: {} connections", connections.total);
    }
    println!("{} finished, {} aborted", ended.finished, ended.aborted);
    Ok(())
}

async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let (rx, mut tx) = TcpStream::split(&mut stream);
    copy_buf(rx, &mut tx).await
}

/// The first signal stops the server gently, the second at once.
fn stop_when_told(
    server: ShutdownHandle,
    grace: Duration,
) -> io::Result<impl Future<Output = ()> + 'static> {
    let interrupts = Signal::new(SignalKind::interrupt())?;
    let terminations = Signal::new(SignalKind::terminate())?;
    let mut signals = stream::select(interrupts, terminations);
    Ok(async move {
        if signals.next().await.is_some() {
            println!("stopping; once more to stop at once");
            server.shutdown(grace);
        }
        if signals.next().await.is_some() {
            server.shutdown(Duration::ZERO);
        }
    })
}
