//! Runs in processes of their own: one that never ends, or that takes its process with it, is told
//! like any other. A worker runs one plan after another, each on a fresh thread.

use std::env;
use std::fs;
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
        let mut watch = Watch::new(patience, self.processor_time());
        let answer = loop {
            match self.answers.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(sentence) = watch.look(self.processor_time()) {
                        return Err(Told::broken("hang", sentence));
                    }
                }
                answer => break answer,
            }
        };
        match answer {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| Told::broken("abort", format!("it said {line:?}: {error}"))),
            Err(_) => {
                let sentence = match self.child.wait() {
                    Ok(status) => format!("the process that ran it has ended: {status}"),
                    Err(error) => format!("the process that ran it has ended: {error}"),
                };
                Err(Told::broken("abort", sentence))
            }
        }
    }

    /// What the threads that it has now have used of a processor; `None` where the system does not
    /// tell.
    fn processor_time(&self) -> Option<Duration> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let used = threads.flatten().filter_map(|thread| {
            let told = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            told.split_whitespace().next()?.parse::<u64>().ok()
        });
        Some(Duration::from_nanos(used.sum()))
    }
}

/// Tells a run that never ends from one that others keep from the processor.
struct Watch {
    patience: Duration,
    began: Option<Duration>,
    /// At the last look.
    last: Option<Duration>,
    looks: u32,
}

impl Watch {
    /// Of the time between two looks, who works has used at least one part of so many.
    const PARTS: u32 = 100;

    const fn new(patience: Duration, used: Option<Duration>) -> Self {
        Self { patience, began: used, last: used, looks: 0 }
    }

    /// Another `patience` of real time is over, without an answer. A sentence if none will come.
    fn look(&mut self, used: Option<Duration>) -> Option<String> {
        self.looks += 1;
        let real = (self.patience * self.looks).as_secs();
        let (Some(used), Some(began), Some(last)) = (used, self.began, self.last) else {
            return Some(format!("no end after {real} s"));
        };
        self.last = Some(used);
        let (all, lately) = (used.saturating_sub(began), used.saturating_sub(last));
        let has_hung = all >= self.patience || lately < self.patience / Self::PARTS;
        let all = all.as_secs();
        has_hung.then(|| format!("no end after {real} s, of which it used {all} of a processor"))
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
    /// Processor time after which a run counts as hung, and real time if it uses hardly any.
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn a_run_that_others_keep_from_the_processor_has_not_hung() {
        let mut watch = Watch::new(Duration::from_secs(100), seconds(7));
        for used in [8, 40, 106] {
            assert_eq!(watch.look(seconds(used)), None, "{used} s");
        }
        let sentence = watch.look(seconds(107)).expect("it has had its time");
        assert_eq!(sentence, "no end after 400 s, of which it used 100 of a processor");
    }

    #[test]
    fn a_run_that_waits_for_nothing_has_hung() {
        let mut watch = Watch::new(Duration::from_secs(100), seconds(7));
        assert_eq!(watch.look(seconds(9)), None);
        let sentence = watch.look(seconds(9)).expect("it does nothing");
        assert_eq!(sentence, "no end after 200 s, of which it used 2 of a processor");
    }

    #[test]
    fn where_processor_time_is_not_told_real_time_counts() {
        let mut watch = Watch::new(Duration::from_secs(100), None);
        assert_eq!(watch.look(None).expect("it is over"), "no end after 100 s");
    }

    #[test]
    fn what_a_process_uses_is_seen() {
        let mut busy = Command::new("sh");
        let busy = busy.args(["-c", "while :; do :; done"]).stdin(Stdio::piped()).spawn();
        let mut child = busy.expect("there is a shell");
        let input = child.stdin.take().expect("it was asked for");
        let worker = Worker { child, input, answers: mpsc::channel().1 };
        assert_eq!(worker.processor_time().is_some(), cfg!(target_os = "linux"));
        while worker.processor_time().is_some_and(|used| used < Duration::from_millis(20)) {
            thread::yield_now();
        }
    }
}
