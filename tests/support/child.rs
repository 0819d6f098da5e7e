//! The same test in a second process: for measurements that a client in the process would disturb, and for limits
//! that one process cannot share.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "RINGSHOT_TEST_CHILD";
/// Marks our lines: the test harness of the child writes to the same pipe.
const MARK: &str = "@child ";

/// The far end of a [`Parent`]: a copy of this test binary that runs one test in another role.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `test` (its full name) again. There [`Parent::in_child`] is `Some`.
    pub fn start(test: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, test)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            commands,
            answers,
        }
    }

    /// Sends one command and waits for its answer.
    pub fn ask(&mut self, command: &str) -> String {
        let pipe = self.commands.as_mut().unwrap();
        writeln!(pipe, "{command}").unwrap();
        self.hear()
    }

    /// Waits for the next line that the child says.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.answers.read_line(&mut line).unwrap();
            assert!(len > 0, "the child ended early");
            // The harness leaves its own line open, so ours may begin in the middle.
            if let Some((_, text)) = line.split_once(MARK) {
                return text.trim_end().to_owned();
            }
        }
    }

    /// Lets the child end, and checks that it was content.
    pub fn finish(mut self) {
        self.commands = None;
        assert!(self.process.wait().unwrap().success(), "the child failed");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Its input ends, so it ends by itself; the kill is for one that hangs while we unwind.
        self.commands = None;
        if std::thread::panicking() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// The near end of a [`Child`], as the child sees it.
#[derive(Debug)]
pub struct Parent(());

impl Parent {
    /// `Some` in a process that [`Child::start`] made for `test`.
    pub fn in_child(test: &str) -> Option<Self> {
        let role = env::var(ROLE).ok()?;
        (role == test).then_some(Self(()))
    }

    pub fn say(&self, line: &str) {
        // Not `println!`: the harness would keep it to itself.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{line}").unwrap();
        out.flush().unwrap();
    }

    /// The next command, `None` when the parent has no more.
    pub fn hear(&self) -> Option<String> {
        let mut line = String::new();
        let len = std::io::stdin().read_line(&mut line).unwrap();
        (len > 0).then(|| line.trim_end().to_owned())
    }
}
