//! Many connection attempts at once, each with its own time limit.
//!
//! An attempt that runs out of time is dropped, which cancels it in the kernel and closes its
//! socket. So there are never more sockets than `--concurrency` says, however many ports stay
//! silent.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use futures::{StreamExt, stream};
use net::TcpStream;
use runtime::time::{Instant, timeout};

/// Finds the TCP ports that answer.
///
/// Shows connect, timeout and a bounded number of futures at once. Use it on machines of your own
/// only: many networks treat a port scan as an attack.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example port-scan
  cargo run --release --example port-scan -- localhost 1-65535

Exit status: 0 when every port was tried, 1 when some could not be, 2 for a wrong argument.")]
struct Args {
    /// The machine to look at; all of its addresses are tried
    #[arg(default_value = "localhost")]
    host: String,

    /// Which ports, such as 22,80,8000-8100
    #[arg(default_value = "1-1024")]
    ports: Ports,

    /// How long a port may stay silent
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,

    /// How many ports are tried at once; each needs a file descriptor
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    concurrency: u16,
}

#[runtime::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match scan(&args).await {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("port-scan: {}: {error}", args.host);
            ExitCode::FAILURE
        }
    }
}

async fn scan(args: &Args) -> io::Result<Tally> {
    let ips = resolve(&args.host).await?;
    let targets: Vec<_> = ips
        .iter()
        .flat_map(|ip| args.ports.0.iter().map(|port| SocketAddr::new(*ip, *port)))
        .collect();
    println!(
        "port-scan: trying {} ports of {} ({})",
        targets.len(),
        args.host,
        runtime::features()
    );

    let started = Instant::now();
    let limit = Duration::from_millis(args.timeout_ms);
    let mut answers = stream::iter(targets)
        .map(|target| async move { (target, probe(target, limit).await) })
        .buffer_unordered(args.concurrency.into());

    let mut tally = Tally::default();
    while let Some((target, answer)) = answers.next().await {
        tally.add(target, answer);
    }
    println!(
        "port-scan: {} open, {} closed, {} silent, {} failed in {:.2} s",
        tally.open,
        tally.closed,
        tally.silent,
        tally.failed,
        started.elapsed().as_secs_f64()
    );
    Ok(tally)
}

/// Every address of `host`, each once.
async fn resolve(host: &str) -> io::Result<BTreeSet<IpAddr>> {
    let ips: BTreeSet<_> = net::lookup_host((host, 0))
        .await?
        .map(|addr| addr.ip())
        .collect();
    if ips.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address found"));
    }
    Ok(ips)
}

enum Answer {
    Open,
    Closed,
    Silent,
    /// The port was not tried; the fault is on our side, such as too many open files.
    Failed(io::Error),
}

async fn probe(target: SocketAddr, limit: Duration) -> Answer {
    match timeout(limit, TcpStream::connect(target)).await {
        Ok(Ok(stream)) if is_connected_to_itself(&stream) => Answer::Closed,
        Ok(Ok(_)) => Answer::Open,
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Answer::Closed,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::TimedOut => Answer::Silent,
            _ => Answer::Failed(error),
        },
        Err(_elapsed) => Answer::Silent,
    }
}

/// Whether both ends are one socket: the kernel may have chosen the very port that we try as our
/// own, and TCP lets that connect.
fn is_connected_to_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

#[derive(Default)]
struct Tally {
    open: usize,
    closed: usize,
    silent: usize,
    failed: usize,
}

impl Tally {
    /// Counts an answer, and prints what somebody wants to know at once.
    fn add(&mut self, target: SocketAddr, answer: Answer) {
        match answer {
            Answer::Open => {
                println!("{target} open");
                self.open += 1;
            }
            Answer::Closed => self.closed += 1,
            Answer::Silent => self.silent += 1,
            Answer::Failed(error) => {
                // The first one tells enough; the summary has their number.
                if self.failed == 0 {
                    eprintln!("port-scan: {target}: {error}");
                }
                self.failed += 1;
            }
        }
    }
}

/// A list of ports and ranges of ports, such as `22,80,8000-8100`.
#[derive(Clone)]
struct Ports(BTreeSet<u16>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut ports = BTreeSet::new();
        for item in list.split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last) = (parse_port(first)?, parse_port(last)?);
            if first > last {
                return Err(format!("the range {item} ends before it begins"));
            }
            ports.extend(first..=last);
        }
        Ok(Self(ports))
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("{text:?} is not a port: expected 1 to 65535")),
    }
}
