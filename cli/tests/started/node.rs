//! A node as a process, started with `quorate up`, and commands against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The binary under test, without the tester's own settings.
pub(crate) fn quorate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUORATE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub out: String,
    pub err: String,
    pub exit: i32,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            exit: output.status.code().unwrap_or(-1),
        }
    }
}

pub(crate) fn run(arguments: &[&str]) -> Done {
    quorate().args(arguments).output().expect("the binary runs").into()
}

/// Killed when dropped.
pub(crate) struct Node {
    child: Child,
    /// Everything on standard output.
    pub said: String,
    pub address: String,
}

impl Node {
    pub(crate) fn in_memory() -> Self {
        Self::start(&["--ephemeral"])
    }

    pub(crate) fn on_disk(data: &Path) -> Self {
        Self::start(&["--data", data.to_str().expect("a path in UTF-8")])
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&[&["up", "--listen", "127.0.0.1:0"], arguments].concat())
    }

    pub(crate) fn spawn(arguments: &[&str]) -> Self {
        Self::tracing_to(Stdio::null(), arguments)
    }

    /// As `spawn`, with a place for its traces.
    pub(crate) fn tracing_to(traces: Stdio, arguments: &[&str]) -> Self {
        let mut child = quorate()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(traces)
            .spawn()
            .expect("the binary starts");
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().expect("a pipe"));
        out.read_line(&mut said).expect("a line says that it is ready");
        let address = said.trim().strip_prefix("bootstrap.servers=");
        let address = address.unwrap_or_else(|| panic!("not a line to paste: {said:?}")).to_owned();
        Self { child, said, address }
    }

    /// Ctrl-C; gives the exit code and what else was on standard output.
    pub(crate) fn stop(mut self) -> (i32, String) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
        assert!(sent.success());
        let mut rest = String::new();
        let mut out = self.child.stdout.take().expect("a pipe");
        out.read_to_string(&mut rest).expect("standard output is text");
        let status = self.child.wait().expect("it ends");
        (status.code().unwrap_or(-1), rest)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.run_with("", arguments)
    }

    /// Runs a command against the node, with `input` as its standard input.
    pub(crate) fn run_with(&self, input: &str, arguments: &[&str]) -> Done {
        let mut child = quorate()
            .args(arguments)
            .args(["--bootstrap", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // Inputs are shorter than a pipe. A command may end before it has read everything.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends").into()
    }

    /// As `run`, for what must succeed; gives standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.ok_with("", arguments)
    }

    pub(crate) fn ok_with(&self, input: &str, arguments: &[&str]) -> String {
        let done = self.run_with(input, arguments);
        assert_eq!(done.exit, 0, "{arguments:?} failed: {}", done.err);
        done.out
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
