//! One case: a child process that is refused something, and what it says about it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use runtime::{Backend, Builder};
use support::{Child, Log, Parent, Watchdog};
use tracing_subscriber::filter::LevelFilter;

use crate::filter;
use crate::program;

/// What is refused, and what the environment says. Built up call by call, then [`run`](Case::run).
#[derive(Default)]
pub struct Case(Vec<String>);

impl Case {
    /// Nothing is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// A call of the ring's fails.
    pub fn deny(mut self, call: &str, errno: i32) -> Self {
        self.0.push(format!("deny {call} {errno}"));
        self
    }

    /// One operation of `io_uring_register` fails.
    pub fn deny_register(mut self, opcode: u32, errno: i32) -> Self {
        self.0
            .push(format!("deny io_uring_register {errno} {opcode}"));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.push(format!("env {name} {value}"));
        self
    }

    /// The variable's value is no text.
    pub fn garbled_env(mut self, name: &str) -> Self {
        self.0.push(format!("garbled-env {name}"));
        self
    }

    /// Runs the program in a child. Fails if the child does: nothing of all this is a reason to panic.
    pub fn run(self) -> Report {
        let mut child = Child::start(NAME);
        for command in &self.0 {
            assert_eq!(child.ask(command), "done");
        }
        let mut report = Report::default();
        let mut line = child.ask("go");
        while line != "end" {
            report.take(&line);
            line = child.hear();
        }
        child.finish();
        report
    }
}

/// What the child has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The error of a runtime that could not be built, so that the program could not run.
    pub build_error: Option<String>,
    /// The error of `Backend::Uring`.
    pub strict_error: Option<String>,
    pub backend: String,
    /// Each feature, and why it is off if it is.
    pub features: Vec<(String, Option<String>)>,
    /// Warnings and errors that were logged.
    pub log: Vec<String>,
}

impl Report {
    pub fn is_on(&self, feature: &str) -> bool {
        self.find(feature).is_none()
    }

    pub fn why_off(&self, feature: &str) -> &str {
        match self.find(feature) {
            Some(reason) => reason,
            None => panic!("{feature} is on: {self:?}"),
        }
    }

    /// It works, on epoll; one warning and the error of the strict mode say why, and what helps.
    pub fn assert_fell_back(&self, cause: &str, cure: &str) {
        assert_eq!(self.build_error, None, "{self:?}");
        assert_eq!(self.backend, "Epoll", "{self:?}");
        assert_eq!(self.log.len(), 1, "not one line: {self:?}");
        let strict = self.strict_error.as_deref();
        let strict = strict.unwrap_or_else(|| panic!("strict mode was content: {self:?}"));
        assert!(self.log[0].starts_with("WARN "), "{self:?}");
        for said in [&self.log[0], strict] {
            assert!(said.contains(cause), "no `{cause}` in `{said}`");
            assert!(said.contains(cure), "no `{cure}` in `{said}`");
        }
        for (name, off) in &self.features {
            let reason = off.as_deref().unwrap_or_default();
            assert!(reason.contains(cause), "{name} is off because `{reason}`");
        }
    }

    /// It works, on a ring, and there is nothing to warn of.
    pub fn assert_on_a_ring(&self) {
        assert_eq!(self.build_error, None, "{self:?}");
        assert_eq!(self.strict_error, None, "{self:?}");
        assert_eq!(self.backend, "Uring", "{self:?}");
        assert_eq!(self.log, [""; 0], "{self:?}");
    }

    fn find(&self, feature: &str) -> Option<&str> {
        let found = self.features.iter().find(|(name, _)| name == feature);
        let (_, off) = found.unwrap_or_else(|| panic!("there is no feature {feature}"));
        off.as_deref()
    }

    fn take(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = rest.to_owned();
        match what {
            "build-error" => self.build_error = Some(text),
            "strict-error" => self.strict_error = Some(text),
            "backend" => self.backend = text,
            "log" => self.log.push(text),
            "feature" => {
                let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                let off = (!reason.is_empty()).then(|| reason.to_owned());
                self.features.push((name.to_owned(), off));
            }
            _ => panic!("the child said `{line}`"),
        }
    }
}

/// What is found here when nothing is refused. `None`, and a line that says so, where this machine itself has no
/// io_uring for us: then there is nothing to refuse.
pub fn here() -> Option<&'static Report> {
    static HERE: OnceLock<Report> = OnceLock::new();
    let here = HERE.get_or_init(|| Case::new().run());
    if here.backend != "Uring" {
        println!(
            "skipped: this machine has no io_uring for us: {:?}",
            here.log
        );
        return None;
    }
    Some(here)
}

const NAME: &str = "case::works_where_nothing_is_denied";

/// Also the child of every other test.
#[test]
fn works_where_nothing_is_denied() {
    if let Some(parent) = Parent::in_child(NAME) {
        return in_child(&parent);
    }
    if let Some(here) = here() {
        here.assert_on_a_ring();
    }
}

fn in_child(parent: &Parent) {
    let _watchdog = Watchdog::start("a child", Duration::from_secs(60));
    for variable in ["RINGSHOT_BACKEND", "RINGSHOT_DISABLE"] {
        // SAFETY: no other thread of this process reads or changes its environment.
        unsafe { std::env::remove_var(variable) };
    }
    while let Some(command) = parent.hear() {
        let words: Vec<&str> = command.splitn(4, ' ').collect();
        match words[..] {
            ["deny", call, errno] => filter::deny(call, errno.parse().unwrap(), None),
            ["deny", call, errno, opcode] => {
                filter::deny(call, errno.parse().unwrap(), Some(opcode.parse().unwrap()));
            }
            ["env", name, ref value @ ..] => set_env(name, OsStr::new(&value.join(" "))),
            ["garbled-env", name] => set_env(name, OsStr::from_bytes(b"\xff")),
            ["go"] => return report(parent),
            _ => panic!("no such command: {command}"),
        }
        parent.say("done");
    }
}

fn set_env(name: &str, value: &OsStr) {
    // SAFETY: no other thread of this process reads or changes its environment.
    unsafe { std::env::set_var(name, value) };
}

fn report(parent: &Parent) {
    let log = Log::start(LevelFilter::WARN);
    match Builder::new().build() {
        Err(error) => parent.say(&format!("build-error {error}")),
        Ok(runtime) => {
            runtime.block_on(program::run());
            let features = runtime.block_on(async { runtime::features() });
            parent.say(&format!("backend {:?}", features.backend));
            for (name, feature) in features.iter() {
                let reason = feature.why_off().unwrap_or_default();
                parent.say(&format!("feature {name} {reason}"));
            }
            drop(runtime);
            let another = || Builder::new().build().unwrap().block_on(program::run());
            thread::spawn(another).join().unwrap();
        }
    }
    if let Err(error) = Builder::new().backend(Backend::Uring).build() {
        parent.say(&format!("strict-error {error}"));
    }
    for line in log.lines() {
        parent.say(&format!("log {line}"));
    }
    parent.say("end");
}
