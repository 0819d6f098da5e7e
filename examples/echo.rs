//! Echo in the words of `std` and tokio: `accept`, `split`, `copy_buf`.
//!
//! No connection has a buffer of its own. `copy_buf` borrows the bytes where the kernel put them,
//! in a buffer that all connections share, and copies them once: into the queue of bytes to send.
//! So an idle connection costs less than one KiB. `echo-lease` does without that copy as well.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use futures::AsyncWriteExt;
use futures::io::copy_buf;
use net::{TcpListener, TcpSocket, TcpStream};

/// Sends every byte back to the client that sent it.
///
/// Shows an ordinary server: accept, split, copy, close. It keeps no buffer per connection, goes on
/// when it runs out of file descriptors, and makes no system call while nothing happens.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example echo
  echo hello | nc -N 127.0.0.1 7000")]
struct Args {
    /// Where to listen; port 0 lets the system choose one
    #[arg(default_value = "127.0.0.1:7000")]
    addr: String,

    /// Print how each connection ended
    #[arg(long)]
    verbose: bool,

    /// Print the runtime's counters every second
    #[arg(long)]
    stats: bool,
}

#[runtime::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = serve(&args).await {
        eprintln!("echo: {}: {error}", args.addr);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn serve(args: &Args) -> io::Result<()> {
    let listener = listen(&args.addr).await?;
    println!(
        "echo: listening on {} ({})",
        listener.local_addr()?,
        runtime::features()
    );
    if args.stats {
        runtime::spawn(print_stats());
    }
    loop {
        match listener.accept().await {
            Ok((mut stream, peer)) => {
                let verbose = args.verbose;
                // One client's task. Its errors end this connection and nothing else.
                runtime::spawn(async move {
                    let result = echo(&mut stream).await;
                    if verbose {
                        report(peer, result);
                    }
                });
            }
            // Typically "Too many open files". The listener itself waits until accepting can work
            // again, so this loop neither spins nor ends: the clients wait in the kernel's queue
            // meanwhile.
            Err(error) => eprintln!("echo: accept: {error}"),
        }
    }
}

async fn listen(addr: &str) -> io::Result<TcpListener> {
    let addr = net::lookup_host(addr)
        .await?
        .next()
        .ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    // Linux lets accepted connections inherit this, which saves a system call for each of them.
    socket.set_nodelay(true)?;
    socket.bind(addr)?;
    socket.listen(1024)
}

// The stream is borrowed because an `async fn` keeps an argument twice: as it came, and as its own
// variable. For a future that waits this long, that is worth knowing.
async fn echo(stream: &mut TcpStream) -> io::Result<u64> {
    let (rx, mut tx) = stream.split();
    let bytes = copy_buf(rx, &mut tx).await?;
    // The client has said its last byte but may still be reading: wait until all is on its way.
    tx.close().await?;
    Ok(bytes)
}

fn report(peer: SocketAddr, result: io::Result<u64>) {
    match result {
        Ok(bytes) => eprintln!("echo: {peer}: {bytes} bytes"),
        Err(error) => eprintln!("echo: {peer}: {error}"),
    }
}

async fn print_stats() {
    let mut every_second = runtime::time::interval(Duration::from_secs(1));
    // The first tick is due at once.
    every_second.tick().await;
    let mut before = runtime::metrics();
    loop {
        every_second.tick().await;
        let now = runtime::metrics();
        eprintln!(
            "echo: {} tasks, {} of {} buffers free; in the last second \
             {} enters, {} completions, {} silent sends",
            now.tasks,
            now.buffers_free,
            now.buffers,
            now.enters - before.enters,
            now.completions - before.completions,
            now.silent_sends - before.silent_sends,
        );
        before = now;
    }
}
