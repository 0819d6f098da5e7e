//! Builds the servers, each by cargo when it is wanted.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::catalogue::{Home, Peer};

/// Builds a server and returns its program, or why it does not build.
pub(crate) fn build(peer: &Peer) -> Result<PathBuf, String> {
    let targets = target_directory(peer.home).map_err(|error| error.to_string())?;
    let output = cargo()
        .args([
            "build",
            "--release",
            "--package",
            peer.package,
            "--bin",
            peer.binary,
        ])
        .arg("--manifest-path")
        .arg(workspace(peer.home).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&targets)
        .output()
        .map_err(|error| format!("cargo does not run: {error}"))?;
    if output.status.success() {
        return Ok(targets.join("release").join(peer.binary));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    Err(errors.join("; "))
}

/// The version of the crate that a server is about.
pub(crate) fn version(peer: &Peer) -> Option<String> {
    locked_version(peer.dependency?)
}

/// The version of a crate that the peers are built with.
pub(crate) fn locked_version(name: &str) -> Option<String> {
    let lock = fs::read_to_string(workspace(Home::Peers).join("Cargo.lock")).ok()?;
    // A lock file may hold several versions of one crate (another peer's dependency): the newest is the peer's own.
    let header = format!("name = \"{name}\"");
    let versions = lock
        .split("[[package]]")
        .filter(|package| package.lines().any(|line| line == header))
        .filter_map(|package| {
            package
                .lines()
                .find_map(|line| line.strip_prefix("version = "))
        });
    versions
        .last()
        .map(|version| version.trim_matches('"').to_owned())
}

/// Cargo in the workspace of the peers.
pub(crate) fn cargo_for_peers() -> io::Result<Command> {
    let mut cargo = cargo();
    cargo
        .current_dir(workspace(Home::Peers))
        .env("CARGO_TARGET_DIR", target_directory(Home::Peers)?);
    Ok(cargo)
}

fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo tells a program that it runs about its package. A build script that looks at these would run again whenever
    // the servers are built by hand in between.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

fn workspace(home: Home) -> PathBuf {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let benches = benches.map(Path::to_path_buf).unwrap_or_default();
    match home {
        Home::Main => benches.parent().map(Path::to_path_buf).unwrap_or_default(),
        Home::Peers => benches.join("peers"),
    }
}

/// The peers are built beside this program, so that a clean clone stays clean.
fn target_directory(home: Home) -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    let targets = this.ancestors().nth(2).ok_or(io::ErrorKind::NotFound)?;
    Ok(match home {
        Home::Main => targets.to_path_buf(),
        Home::Peers => targets.join("peers"),
    })
}
