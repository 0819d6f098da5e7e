//! Seed S4: what a receive costs on each rung of the ladder.
//!
//! 16 connections send 16-byte messages and wait for the echo. Server and generator have a core each. The rungs take
//! turns, round by round, so that a slow minute of the machine hits all of them; what is printed is the median of the
//! rounds with the smallest and the largest. CPU time is the server's own (`/proc/PID/schedstat`); system calls are
//! counted in a run of their own, by `strace`, if that is installed.
//!
//! ```sh
//! cargo bench --bench recv            # [-- --rounds N --messages N]
//! ```
//!
//! What it does not show: throughput with other loads, latency, or anything across a real network.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use clap::Parser;
use futures::io::copy_buf;
use net::{TcpListener, TcpStream as Connection};

/// The rungs, each as the environment that forces it.
const RUNGS: [(&str, &str, &str); 6] = [
    ("multishot", "", ""),
    (
        "single-shot, with hints",
        "RINGSHOT_DISABLE",
        "multishot_recv",
    ),
    (
        "single-shot, without hints",
        "RINGSHOT_DISABLE",
        "multishot_recv,poll_first",
    ),
    (
        "poll, then recv, in the ring",
        "RINGSHOT_DISABLE",
        "buffer_ring",
    ),
    (
        "poll, then each call, in the ring",
        "RINGSHOT_DISABLE",
        "fast_poll",
    ),
    ("epoll", "RINGSHOT_BACKEND", "epoll"),
];

const CONNECTIONS: usize = 16;
const MESSAGE: [u8; 16] = [7; 16];
/// Startup makes some 200 calls, which is then below one in a hundred.
const COUNTED_MESSAGES: usize = 32_000;

#[derive(Parser)]
struct Args {
    /// Rounds of each rung
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Messages of a round
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> io::Result<()> {
    if env::var_os(SERVER).is_some() {
        return serve();
    }
    let args = Args::parse();
    pin(GENERATOR_CORE)?;
    let mut nanoseconds = vec![Vec::new(); RUNGS.len()];
    let mut rates = vec![Vec::new(); RUNGS.len()];
    for round in 1..=args.rounds {
        for (index, (name, ..)) in RUNGS.iter().enumerate() {
            eprint!("\rround {round} of {}: {name:<36}", args.rounds);
            let server = Server::start(index, false)?;
            let mut streams = server.connect()?;
            exchange(&mut streams, 2_000)?;
            let (before, start) = (server.cpu_nanoseconds()?, Instant::now());
            exchange(&mut streams, args.messages)?;
            let (after, elapsed) = (server.cpu_nanoseconds()?, start.elapsed());
            nanoseconds[index].push((after - before) as f64 / args.messages as f64);
            rates[index].push(args.messages as f64 / elapsed.as_secs_f64());
        }
    }
    eprintln!();
    let calls: Vec<Option<f64>> = (0..RUNGS.len()).map(calls_per_message).collect();
    let base = median(&mut nanoseconds[0].clone());
    println!(
        "| rung | server CPU, ns per message | ratio | system calls per message | messages per second |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (index, (name, ..)) in RUNGS.iter().enumerate() {
        let cost = &mut nanoseconds[index];
        let middle = median(cost);
        let calls = calls[index].map_or_else(|| "–".to_owned(), |calls| format!("{calls:.2}"));
        println!(
            "| {name} | {middle:.0} ({:.0}–{:.0}) | {:.2} | {calls} | {:.0} |",
            cost[0],
            cost[cost.len() - 1],
            middle / base,
            median(&mut rates[index]),
        );
    }
    Ok(())
}

/// Sends one message on every connection, then reads all the echoes, until `messages` were echoed.
fn exchange(streams: &mut [TcpStream], messages: usize) -> io::Result<()> {
    let mut echo = [0; MESSAGE.len()];
    for _ in 0..messages / streams.len() {
        for stream in &mut *streams {
            stream.write_all(&MESSAGE)?;
        }
        for stream in &mut *streams {
            stream.read_exact(&mut echo)?;
            assert_eq!(echo, MESSAGE, "another echo");
        }
    }
    Ok(())
}

/// An echo server in a process of its own.
struct Server {
    process: Child,
    pid: u32,
    address: String,
}

impl Server {
    fn start(rung: usize, counted: bool) -> io::Result<Self> {
        let (_, variable, value) = RUNGS[rung];
        let this = env::current_exe()?;
        let mut command = if counted {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-c", "-o", &report(rung)]).arg(this);
            strace
        } else {
            Command::new(this)
        };
        if !variable.is_empty() {
            command.env(variable, value);
        }
        let mut process = command
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let (pid, address) = (line.trim().split_once(' '))
            .ok_or_else(|| io::Error::other("the server did not start"))?;
        Ok(Self {
            pid: pid.parse().map_err(io::Error::other)?,
            address: address.to_owned(),
            process,
        })
    }

    fn connect(&self) -> io::Result<Vec<TcpStream>> {
        let connect = |_| {
            let stream = TcpStream::connect(&self.address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        (0..CONNECTIONS).map(connect).collect()
    }

    fn cpu_nanoseconds(&self) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid))?;
        let first = text.split_whitespace().next().unwrap_or_default();
        first.parse().map_err(io::Error::other)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends the server.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn calls_per_message(rung: usize) -> Option<f64> {
    let server = Server::start(rung, true).ok()?;
    let mut streams = server.connect().ok()?;
    exchange(&mut streams, COUNTED_MESSAGES).ok()?;
    drop(streams);
    drop(server);
    let text = fs::read_to_string(report(rung)).ok()?;
    let _ = fs::remove_file(report(rung));
    let total = text.lines().find(|line| line.ends_with("total"))?;
    let calls: f64 = total.split_whitespace().nth(3)?.parse().ok()?;
    Some(calls / COUNTED_MESSAGES as f64)
}

fn report(rung: usize) -> String {
    let directory = env::temp_dir();
    let name = format!("ringshot-recv-{}-{rung}", std::process::id());
    directory.join(name).to_string_lossy().into_owned()
}

/// The server's side: echoes until its input ends.
fn serve() -> io::Result<()> {
    pin(SERVER_CORE)?;
    runtime::Builder::new().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{} {}", std::process::id(), listener.local_addr()?);
        runtime::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                runtime::spawn(echo(stream));
            }
        });
        runtime::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
        Ok(())
    })
}

async fn echo(mut stream: Connection) -> io::Result<u64> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = Connection::split(&mut stream);
    copy_buf(reader, &mut writer).await
}

fn pin(core: usize) -> io::Result<()> {
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` is far below the set's size.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set lives until the call returns.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sorts, and returns the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// In the environment of a server process.
const SERVER: &str = "RINGSHOT_BENCH_SERVER";
const SERVER_CORE: usize = 0;
const GENERATOR_CORE: usize = 1;
