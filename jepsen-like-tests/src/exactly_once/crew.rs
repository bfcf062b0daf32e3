//! The clients as processes: one for each slot, and another once that has ended. A slot is a
//! transactional id, and a place in the network.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Size;
use crate::namespaces::Namespaces;
use crate::stopwatch::retry;
use crate::trio::signal;

/// Until a client that has ended is started again, at least.
const AGAIN: Duration = Duration::from_millis(300);
/// A client that is asked to leave ends its transaction first.
const LEAVE_WITHIN: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Produces,
    Copies,
    Reads,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// By SIGSTOP.
    stands: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) part: Part,
    /// Its network.
    pub(super) place: i32,
    pub(super) id: String,
    /// Several, while one stands still and another has taken its id.
    running: Vec<Process>,
    due: Duration,
}

#[derive(Debug)]
pub(super) struct Crew {
    pub(super) slots: Vec<Slot>,
    root: PathBuf,
    /// Whoever writes speaks the protocol before KIP-890, by librdkafka.
    older: bool,
    folder: PathBuf,
    bootstrap: String,
    planted: Option<String>,
    /// Processes so far.
    pub(super) begun: u32,
    leaving: Vec<Part>,
}

impl Crew {
    /// Places behind `nodes` are those of the clients.
    pub(super) fn new(
        root: &Path,
        folder: &Path,
        bootstrap: String,
        parts: &[(Part, i32)],
        nodes: i32,
        size: &Size,
    ) -> Self {
        let mut slots = Vec::new();
        for (part, count) in parts {
            for number in 0..*count {
                let place = nodes + 1 + i32::try_from(slots.len()).expect("few clients");
                let id = match part {
                    Part::Produces => format!("xp-{number}"),
                    Part::Copies => format!("xc-{number}"),
                    Part::Reads => format!("reader-{number}"),
                };
                slots.push(Slot {
                    part: *part,
                    place,
                    id,
                    running: Vec::new(),
                    due: Duration::ZERO,
                });
            }
        }
        Self {
            slots,
            root: root.to_owned(),
            older: size.older || size.planted.is_some(),
            folder: folder.to_owned(),
            bootstrap,
            planted: size.planted.clone(),
            begun: 0,
            leaving: Vec::new(),
        }
    }

    fn command(&self, network: &Namespaces, place: i32, part: Part) -> Command {
        let mut command = if self.older || part == Part::Reads {
            let python = self.root.join("target/foreign/python/bin/python");
            let mut command = network.command(place, &python);
            command.arg(self.root.join("jepsen-like-tests/exactly-once/client.py"));
            command
        } else {
            network.command(place, &self.root.join("target/foreign/exactly-once/writer"))
        };
        command.stdin(Stdio::null());
        command
    }

    /// Starts a process for the slot, beside those that there are.
    ///
    /// # Errors
    /// If there is no such program.
    pub(super) fn start(&mut self, network: &Namespaces, slot: usize) -> io::Result<()> {
        self.begun += 1;
        let (number, Slot { part, place, id, .. }) = (self.begun, &self.slots[slot]);
        let verb = match part {
            Part::Produces => "produce",
            Part::Copies => "copy",
            Part::Reads => "read",
        };
        let log =
            File::options().create(true).append(true).open(self.folder.join("clients.log"))?;
        let mut command = self.command(network, *place, *part);
        command.args([verb, &self.bootstrap]).arg(self.events(slot, number));
        command.arg(number.to_string());
        if *part != Part::Reads {
            command.arg(id).args(&self.planted);
        }
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        self.slots[slot].running.push(Process { child, stands: false });
        Ok(())
    }

    fn events(&self, slot: usize, number: u32) -> PathBuf {
        self.folder.join(format!("events-{slot}-{number}.jsonl"))
    }

    /// Reads everything to its end, by a client that nothing is in the way of.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read_last(&self, network: &Namespaces) -> io::Result<String> {
        let file = self.folder.join("last.jsonl");
        if file.exists() {
            fs::remove_file(&file)?;
        }
        let place = self.slots.last().map_or(1, |slot| slot.place);
        let mut command = self.command(network, place, Part::Reads);
        let output = command.args(["last", &self.bootstrap]).arg(&file).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(format!("the last reading: {said}")));
        }
        fs::read_to_string(file)
    }

    /// Takes note of who has ended, and starts others in their places.
    ///
    /// # Errors
    /// If a process cannot be waited for, or started.
    pub(super) fn revive(&mut self, network: &Namespaces, now: Duration) -> io::Result<()> {
        for slot in 0..self.slots.len() {
            let it = &mut self.slots[slot];
            let before = it.running.len();
            for process in std::mem::take(&mut it.running) {
                let mut process = process;
                if process.child.try_wait()?.is_none() {
                    it.running.push(process);
                }
            }
            if it.running.is_empty() && before > 0 {
                it.due = it.due.max(now + AGAIN);
            }
            if it.running.is_empty() && now >= it.due && !self.leaving.contains(&it.part) {
                self.start(network, slot)?;
            }
        }
        Ok(())
    }

    /// SIGKILL; another one is started after `pause`.
    ///
    /// # Errors
    /// If a process cannot be waited for.
    pub(super) fn kill(&mut self, slot: usize, until: Duration) -> io::Result<()> {
        let slot = &mut self.slots[slot];
        slot.due = until;
        for mut process in std::mem::take(&mut slot.running) {
            process.child.kill()?;
            process.child.wait()?;
        }
        Ok(())
    }

    /// Nobody waits any longer before it is started again.
    pub(super) fn hurry(&mut self) {
        for slot in &mut self.slots {
            slot.due = Duration::ZERO;
        }
    }

    /// SIGSTOP to all of the slot's.
    ///
    /// # Errors
    /// If there is no `kill`.
    pub(super) fn pause(&mut self, slot: usize) -> io::Result<()> {
        for process in &mut self.slots[slot].running {
            process.stands = true;
            signal(&process.child, "-STOP")?;
        }
        Ok(())
    }

    /// SIGCONT to those that stand still.
    ///
    /// # Errors
    /// If there is no `kill`.
    pub(super) fn resume(&mut self, slot: usize) -> io::Result<()> {
        for process in self.slots[slot].running.iter_mut().filter(|process| process.stands) {
            process.stands = false;
            signal(&process.child, "-CONT")?;
        }
        Ok(())
    }

    /// Asks all of a part to end in good order, and waits for it. Says who does not.
    ///
    /// # Errors
    /// If a process cannot be signalled or waited for.
    pub(super) fn dismiss(&mut self, part: Part) -> io::Result<Vec<String>> {
        self.leaving.push(part);
        let mut wrong = Vec::new();
        let own = self.slots.iter_mut().filter(|slot| slot.part == part);
        let mut processes: Vec<(String, Process)> = Vec::new();
        for slot in own {
            let id = &slot.id;
            processes.extend(slot.running.drain(..).map(|process| (id.clone(), process)));
        }
        for (_, process) in &mut processes {
            if process.child.try_wait()?.is_none() {
                signal(&process.child, "-TERM")?;
            }
        }
        for (id, mut process) in processes {
            if retry(LEAVE_WITHIN, || process.child.try_wait().ok().flatten()).is_none() {
                wrong.push(format!("liveness {id}: it does not end within {LEAVE_WITHIN:?}"));
                process.child.kill()?;
                process.child.wait()?;
            }
        }
        Ok(wrong)
    }

    /// The events of every process by its number, and its slot.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn told(&self) -> io::Result<BTreeMap<u32, (usize, String)>> {
        let mut told = BTreeMap::new();
        for slot in 0..self.slots.len() {
            for number in 1..=self.begun {
                let file = self.events(slot, number);
                if file.exists() {
                    told.insert(number, (slot, fs::read_to_string(file)?));
                }
            }
        }
        Ok(told)
    }

    /// How much every process has told so far.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn marks(&self) -> io::Result<BTreeMap<u32, usize>> {
        let told = self.told()?;
        Ok(told.into_iter().map(|(number, (_, text))| (number, text.len())).collect())
    }

    /// The slots that have committed something behind these marks.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn committed_since(&self, marks: &BTreeMap<u32, usize>) -> io::Result<Vec<usize>> {
        let mut slots: Vec<usize> = Vec::new();
        for (number, (slot, text)) in self.told()? {
            let fresh = &text[marks.get(&number).copied().unwrap_or(0)..];
            if fresh.contains("\"end\",\"committed\"") {
                slots.push(slot);
            }
        }
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in self.slots.iter_mut().flat_map(|slot| slot.running.drain(..)) {
            let mut child = process.child;
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
