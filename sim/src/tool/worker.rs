//! Runs in processes of their own: one that never ends, or that takes its process with it, is told
//! like any other. A worker runs one plan after another, each on a fresh thread.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::run::{self, Options, World};
use crate::spec;
use crate::told::Told;

/// The command that makes a process a worker.
pub(super) const NAME: &str = "worker";

/// What is to be run. The plan is its text.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    plan: String,
    world: World,
    mutant: Option<String>,
    /// Hold it against the specifications, and say which of their small states it passes.
    #[serde(default)]
    spec: bool,
}

/// Runs what standard input asks for, a line a plan, until it ends.
pub(super) fn serve() -> u8 {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(wanted) = serde_json::from_str::<Wanted>(&line) else {
            return super::HARNESS_BROKE;
        };
        let Ok(plan) = Plan::parse(&wanted.plan) else { return super::HARNESS_BROKE };
        let (refine, shapes) = (wanted.spec, wanted.spec);
        let spec = spec::Wanted { refine, shapes, export: false };
        let options = Options { mutant: wanted.mutant, spec, ..Options::default() };
        let report = run::run(&plan, wanted.world, options);
        let told = serde_json::to_string(&Told::from(&report)).expect("it is plain data");
        if writeln!(output, "{told}").and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    0
}

/// A child process has pages of ordinary size, unless its environment says otherwise. Lives touch a
/// little of much; in pages of 2 MiB that is a third more memory, and no faster (0150).
pub(super) fn give_small_pages(child: &mut Command) {
    const OPTION: &str = "MIMALLOC_ALLOW_THP";
    if env::var_os(OPTION).is_none() {
        child.env(OPTION, "0");
    }
}

struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    fn start() -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        give_small_pages(&mut command);
        command.arg(NAME).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the pipes were asked for"));
        };
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if !line.is_ok_and(|line| sender.send(line).is_ok()) {
                    break;
                }
            }
        });
        Ok(Self { child, input, answers })
    }

    /// `Err` for a worker that is of no use any more.
    fn run(&mut self, wanted: &Wanted, patience: Duration) -> Result<Told, Told> {
        let line = serde_json::to_string(wanted).expect("it is plain data");
        let died = |_| Told::broken("abort", "the process that ran it has ended".to_owned());
        writeln!(self.input, "{line}").map_err(died)?;
        match self.answers.recv_timeout(patience) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| Told::broken("abort", format!("it said {line:?}: {error}"))),
            Err(RecvTimeoutError::Timeout) => {
                let sentence = format!("no end after {} s", patience.as_secs());
                Err(Told::broken("hang", sentence))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let sentence = match self.child.wait() {
                    Ok(status) => format!("the process that ran it has ended: {status}"),
                    Err(error) => format!("the process that ran it has ended: {error}"),
                };
                Err(Told::broken("abort", sentence))
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that still works would do so for ever.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As many workers as run at once.
pub(super) struct Workers {
    idle: Mutex<Vec<Worker>>,
    /// Real time after which a run counts as hung.
    patience: Duration,
    /// Whether runs are held against the specifications.
    pub(super) spec: bool,
}

impl Workers {
    pub(super) const fn new(patience: Duration) -> Self {
        Self { idle: Mutex::new(Vec::new()), patience, spec: false }
    }

    pub(super) const fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Runs a plan in one of the processes.
    pub(super) fn run(&self, plan: &Plan, world: World, mutant: Option<&str>) -> Told {
        let idle = self.idle.lock().expect("a lock").pop();
        let mut worker = match idle.map_or_else(Worker::start, Ok) {
            Ok(worker) => worker,
            Err(error) => return Told::broken("abort", format!("no process for it: {error}")),
        };
        let mutant = mutant.map(str::to_owned);
        let wanted = Wanted { plan: plan.print(), world, mutant, spec: self.spec };
        match worker.run(&wanted, self.patience) {
            Ok(told) => {
                self.idle.lock().expect("a lock").push(worker);
                told
            }
            Err(told) => told,
        }
    }
}
