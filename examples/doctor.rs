//! What the runtime finds on this machine, as a table for a bug report.
//!
//! The self-tests of the runtime say what is in use; the rest of the table is what usually explains
//! why something is not.

use std::ffi::CStr;
use std::fs;
use std::process::ExitCode;

use clap::Parser;
use runtime::{Backend, Builder, Features};

/// Prints what the runtime runs on here, and why not on more.
///
/// Paste the table into a bug report. It names no host, no user and no path. RINGSHOT_BACKEND and
/// RINGSHOT_DISABLE count as they do for every program.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example doctor
  RINGSHOT_BACKEND=epoll cargo run --release --example doctor

Exit status: 0 when a runtime can be built, 1 when it cannot.")]
struct Args {}

fn main() -> ExitCode {
    Args::parse();
    let mut rows = surroundings();
    let built = Builder::new().build();
    match &built {
        Ok(runtime) => rows.extend(findings(runtime.block_on(async { runtime::features() }))),
        Err(error) => rows.push(row("error", error.to_string())),
    }
    print_table(&rows);
    match built {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Row {
    name: &'static str,
    value: String,
}

fn row(name: &'static str, value: impl Into<String>) -> Row {
    Row {
        name,
        value: value.into(),
    }
}

/// What the kernel, the limits and the sandbox allow.
fn surroundings() -> Vec<Row> {
    let system = uname();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let mut rows = vec![
        row("ringshot", env!("CARGO_PKG_VERSION")),
        row("kernel", system.kernel),
        row("machine", format!("{}, {cpus} CPUs", system.machine)),
        row("open files", limit(libc::RLIMIT_NOFILE)),
        row("locked bytes", limit(libc::RLIMIT_MEMLOCK)),
        row("io_uring_disabled", sysctl("io_uring_disabled")),
        row("io_uring_group", sysctl("io_uring_group")),
        row("seccomp", seccomp()),
    ];
    for name in ["RINGSHOT_BACKEND", "RINGSHOT_DISABLE"] {
        let value = std::env::var(name).unwrap_or_default();
        if !value.is_empty() {
            rows.push(row(name, value));
        }
    }
    rows
}

/// What the runtime makes of it.
fn findings(features: &Features) -> Vec<Row> {
    let on_epoll = features.backend == Backend::Epoll;
    let runs_on = if on_epoll {
        // One reason for everything, and it is in here.
        features.to_string()
    } else {
        forms(features)
    };
    let mut rows = vec![row("runs on", runs_on)];
    rows.extend(features.iter().map(|(name, feature)| {
        let value = match feature.why_off() {
            None => "on".to_owned(),
            Some(_) if on_epoll => "off: see above".to_owned(),
            Some(reason) => format!("off: {reason}"),
        };
        row(name, value)
    }));
    rows
}

/// Which form each family of operations takes on the ring.
fn forms(features: &Features) -> String {
    let single = if features.fast_poll.is_on() {
        "single-shot"
    } else {
        "poll"
    };
    let form = |best, is_on| if is_on { best } else { single };
    let accept = form("multishot", features.multishot_accept.is_on());
    let receive = form("multishot", features.multishot_recv.is_on());
    let send = form("silent", features.silent_send.is_on());
    format!("io_uring: {accept} accept, {receive} receive, {send} send")
}

struct System {
    kernel: String,
    machine: String,
}

fn uname() -> System {
    // SAFETY: arrays of bytes, for which zero is a value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: one whole utsname for the kernel to fill; it outlives the call.
    unsafe { libc::uname(&raw mut names) };
    System {
        kernel: format!("{} {}", text(&names.release), text(&names.version)),
        machine: text(&names.machine),
    }
}

fn text(field: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn limit(resource: libc::__rlimit_resource_t) -> String {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one whole rlimit for the kernel to fill; it outlives the call.
    if unsafe { libc::getrlimit(resource, &raw mut limits) } != 0 {
        return format!("unknown: {}", std::io::Error::last_os_error());
    }
    let number = |value| match value {
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        value => value.to_string(),
    };
    let (soft, hard) = (number(limits.rlim_cur), number(limits.rlim_max));
    format!("{soft}, at most {hard}")
}

fn sysctl(name: &str) -> String {
    match fs::read_to_string(format!("/proc/sys/kernel/{name}")) {
        Ok(value) => value.trim().to_owned(),
        Err(_) => "this kernel has none".to_owned(),
    }
}

/// Whether a filter may stand between us and the kernel.
fn seccomp() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    match (field("Seccomp"), field("Seccomp_filters")) {
        (Some("0"), _) => "off".to_owned(),
        (Some("1"), _) => "strict".to_owned(),
        (Some("2"), Some(filters)) => format!("filtered ({filters} filters)"),
        (Some("2"), None) => "filtered".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// As Markdown, which is also legible as it is.
fn print_table(rows: &[Row]) {
    let width = |part: fn(&Row) -> &str| {
        let widths = rows.iter().map(|row| part(row).chars().count());
        widths.max().unwrap_or(0)
    };
    let names = width(|row| row.name);
    let values = width(|row| &row.value);
    println!("| {:names$} | {:values$} |", "what", "here");
    println!("| {:-<names$} | {:-<values$} |", "", "");
    for row in rows {
        println!("| {:names$} | {:values$} |", row.name, row.value);
    }
}
