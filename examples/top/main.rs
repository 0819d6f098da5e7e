//! What the workers of a server do, live: a table with a row for each, read once a second from `Handle::metrics`.
//!
//! The server is an echo server on all cores. Clients of its own keep it busy, in a runtime of their own; with
//! `--connections 0` they are left to you. The table is drawn by a thread that is no worker: reading the figures takes
//! nothing from those that count them.

mod load;
mod screen;
mod table;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::io::copy_buf;
use futures::{FutureExt, StreamExt, select, stream};
use net::TcpStream;
use net::serve::{Server, ShutdownHandle};
use runtime::signal::{Signal, SignalKind};
use runtime::{Builder, Handle, Workers};

use self::load::Load;
use self::screen::Screen;
use self::table::Table;

/// Shows what each worker of a busy server does, once a second.
///
/// On a terminal the table stays in place; elsewhere each one is printed below the last. Per op: system calls for each
/// operation. Queue: tasks that wait for their poll. P99: how soon 99 of 100 wakes from other threads were heard.
/// Longest, slow: the longest poll, and how many took longer than 50 ms.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example top
  cargo run --release --example top -- --pause 0 --connections 500
  cargo run --release --example top -- --rude 200 2>warnings
  cargo run --release --example top -- --seconds 3 | cat")]
struct Args {
    /// Where to listen; port 0 lets the system choose one
    #[arg(default_value = "127.0.0.1:7003")]
    addr: String,

    /// Workers of the server [default: one for each CPU]
    #[arg(long)]
    workers: Option<usize>,

    /// Connections of the clients that keep the server busy
    #[arg(long, default_value_t = 64)]
    connections: usize,

    /// Microseconds that a client waits between two messages, on average
    #[arg(long, default_value_t = 2_000)]
    pause: u64,

    /// Block a worker for so many milliseconds every now and then, to see that it is noticed
    #[arg(long, value_name = "MS")]
    rude: Option<u64>,

    /// End after so many seconds [default: at Ctrl-C]
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Warnings of slow polls, and of everything else.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(io::stderr)
        .init();
    match top(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("top: {}: {error}", args.addr);
            ExitCode::FAILURE
        }
    }
}

fn top(args: &Args) -> io::Result<()> {
    let workers = args.workers.map_or(Workers::PerCore, Workers::Exactly);
    let runtime = Builder::new()
        .workers(workers)
        .slow_poll_threshold(SLOW)
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> io::Result<()> {
    let server = Server::builder().bind(&args.addr).await?;
    let addr = server.local_addr()?;
    let handle = Handle::current();
    let stop = server.shutdown_handle();
    println!(
        "top: listening on {addr}, {} workers ({})",
        handle.workers(),
        backend()
    );
    let load = Load::start(addr, args.connections, Duration::from_micros(args.pause))?;
    if let Some(milliseconds) = args.rude {
        runtime::spawn(be_rude(Duration::from_millis(milliseconds)));
    }
    let display = Display::start(handle);
    let limit = args.seconds.map(Duration::from_secs);
    runtime::spawn(stop_in_the_end(limit, stop, load)?);
    let ended = server.run(|stream, _peer| echo(stream)).await?;
    display.end();
    println!("{} finished, {} aborted", ended.finished, ended.aborted);
    Ok(())
}

fn backend() -> &'static str {
    match runtime::features().backend {
        runtime::Backend::Epoll => "epoll",
        _ => "io_uring",
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<u64> {
    let (rx, mut tx) = TcpStream::split(&mut stream);
    copy_buf(rx, &mut tx).await
}

/// What no task should do: it stops all others of its worker.
async fn be_rude(pause: Duration) {
    let mut every = runtime::time::interval(RUDE_EVERY);
    loop {
        every.tick().await;
        let worker = runtime::Handle::current().workers() - 1;
        drop(runtime::spawn_on(worker, move || async move {
            thread::sleep(pause);
        }));
    }
}

/// Ends the clients and then the server, when the time is up or somebody says so.
fn stop_in_the_end(
    limit: Option<Duration>,
    server: ShutdownHandle,
    load: Load,
) -> io::Result<impl Future<Output = ()> + 'static> {
    let interrupts = Signal::new(SignalKind::interrupt())?;
    let terminations = Signal::new(SignalKind::terminate())?;
    let mut signals = stream::select(interrupts, terminations);
    Ok(async move {
        let time = async {
            match limit {
                Some(limit) => runtime::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        select! {
            _ = signals.next().fuse() => {}
            () = time.fuse() => {}
        }
        load.stop();
        server.shutdown(GRACE);
    })
}

/// The thread that draws.
struct Display {
    over: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Display {
    fn start(handle: Handle) -> Self {
        let (over, is_over) = mpsc::channel();
        let thread = thread::spawn(move || draw(&handle, &is_over));
        Self { over, thread }
    }

    fn end(self) {
        drop(self.over);
        // A panic has been printed.
        let _ = self.thread.join();
    }
}

fn draw(handle: &Handle, is_over: &mpsc::Receiver<()>) {
    let mut screen = Screen::new();
    let mut table = Table::new(handle);
    let mut due = Instant::now();
    loop {
        due += EVERY;
        let pause = due.saturating_duration_since(Instant::now());
        if is_over.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        // Whoever reads our output may be gone.
        if screen.show(&table.next(handle)).is_err() {
            return;
        }
    }
}

const EVERY: Duration = Duration::from_secs(1);

/// A poll that takes longer is counted, and said.
const SLOW: Duration = Duration::from_millis(50);

const RUDE_EVERY: Duration = Duration::from_secs(2);

/// How long connections have to come to their end.
const GRACE: Duration = Duration::from_secs(5);
