//! Drives one shard: the single place where machines meet the world. It waits in one place, steps
//! without waiting, and does what the steps asked for.

pub(crate) mod ask;
mod catch_up;
pub(crate) mod lane;
mod replay;
mod replays;
mod replies;

use std::collections::HashMap;
use std::sync::Arc;

use quorate_core::batch::Batch;
use quorate_core::id::{NodeId, Offset, PartitionId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition;
use quorate_core::partition::interface::Message;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Open, Outcome};
use quorate_core::time::Now;
use quorate_core::transaction::interface::Marker;
use quorate_net::clock::{Clock, Sleep};
use tokio::sync::{mpsc, oneshot};

use self::ask::ShardClient;
use self::catch_up::{Unread, Wanted};
use self::lane::{Completion, Lane};
use self::replay::Replay;
use self::replays::Replays;
use self::replies::Replies;
use crate::catalog::log::LogHandle;
use crate::catalog::news::News;
use crate::cleaner::{self, Job, Task};
use crate::halt::Halt;
use crate::membership::proposals::{Proposals, Wish};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::quorum_cell::QuorumCell;
use crate::storage::{WriteQueue, WriteRequest};
use crate::transactions::rounds::{Round, Rounds};
use crate::witness::Witness;

/// What a shard's inbox holds.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve a partition whose log storage has opened.
    Open {
        log: Arc<LogHandle>,
        open: Box<Open>,
    },
    /// An input without an answer.
    Tell(Input),
    Ask {
        request: RequestId,
        input: Input,
        reply: oneshot::Sender<Outcome>,
    },
    /// Nobody waits for `request`; `input` says so to its machine.
    Withdraw {
        request: RequestId,
        input: Input,
    },
    /// What a `Replay` with this number has read, `None` at its end.
    Replayed {
        partition: PartitionId,
        number: u64,
        batch: Option<Batch>,
    },
    Barrier(oneshot::Sender<()>),
    /// The driver ends here.
    Stop,
}

/// What a driver needs beside its machine.
pub(crate) struct Surroundings {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) writes: WriteQueue,
    pub(crate) lane: Arc<Lane>,
    /// Where what the metadata says goes.
    pub(crate) news: Arc<News>,
    pub(crate) quorum: Arc<QuorumCell>,
    /// The way to other nodes.
    pub(crate) peers: Peers,
    /// Where what leaders wish of the replicas in sync goes.
    pub(crate) proposals: Proposals,
    /// Where what coordinators of transactions have decided goes.
    pub(crate) rounds: Rounds,
    pub(crate) halt: Arc<Halt>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whoever watches, in simulation.
    pub(crate) witness: Option<Arc<dyn Witness>>,
    /// Commands taken in one go.
    pub(crate) batch_max: usize,
    /// Reads at one time for followers that are far behind.
    pub(crate) catch_up_max: usize,
    /// Where logs to be compacted go.
    pub(crate) cleaner: mpsc::Sender<Job>,
}

pub(crate) struct Driver {
    shard: Shard,
    around: Surroundings,
    inbox: mpsc::Receiver<Command>,
    client: ShardClient,
    logs: HashMap<PartitionId, Arc<LogHandle>>,
    replays: Replays,
    replies: Replies,
    passed: Vec<oneshot::Sender<()>>,
    /// What this round has for replicas on other nodes, and what its leaders wish.
    sent: Vec<(NodeId, PartitionId, Message)>,
    wishes: Vec<Wish>,
    markers: Vec<(i32, Marker)>,
    reads: mpsc::Sender<Wanted>,
    unread: Unread,
    effects: Vec<Effect>,
    completions: Vec<Completion>,
    timer: Option<(quorate_core::time::Instant, Sleep)>,
    stopped: bool,
}

/// A shard with an inbox of so many commands.
pub(crate) fn start(shard: Shard, around: Surroundings, inbox_max: usize) -> ShardClient {
    let (sender, inbox) = mpsc::channel(inbox_max);
    let client = ShardClient::new(sender);
    let reads = catch_up::start(client.clone(), around.catch_up_max);
    let driver = Driver {
        shard,
        around,
        inbox,
        client: client.clone(),
        logs: HashMap::new(),
        replays: Replays::default(),
        replies: Replies::default(),
        passed: Vec::new(),
        sent: Vec::new(),
        wishes: Vec::new(),
        markers: Vec::new(),
        reads,
        unread: Unread::default(),
        effects: Vec::new(),
        completions: Vec::new(),
        timer: None,
        stopped: false,
    };
    tokio::spawn(driver.run());
    client
}

impl Driver {
    async fn run(mut self) {
        let _bug = Bug(Arc::clone(&self.around.halt));
        loop {
            let Some(first) = self.next().await else { return };
            let now = self.around.clock.now();
            self.take_round(now, first);
            self.perform().await;
            if let Some(witness) = &self.around.witness {
                witness.stepped(&self.shard);
            }
            if self.stopped || self.around.halt.is_halted() {
                // After a halt nothing may be answered: what stands on the disk is unknown.
                return;
            }
            if cfg!(debug_assertions) {
                self.shard.check_stepped();
            }
        }
    }

    /// The only wait. `None` once nobody can send any more.
    async fn next(&mut self) -> Option<Event> {
        if !self.unread.is_empty() {
            return Some(Event::Unread);
        }
        let now = self.around.clock.now().monotonic;
        let deadline = self.shard.deadline();
        match deadline {
            Some(at) if at <= now => return Some(Event::Deadline),
            // A timer that is early is left to run; the deadline is derived anew when it rings.
            Some(at) if self.timer.as_ref().is_none_or(|(armed, _)| at < *armed) => {
                self.timer = Some((at, self.around.clock.sleep_until(at)));
            }
            Some(_) => {}
            None => self.timer = None,
        }
        tokio::select! {
            biased;
            () = self.around.lane.arrived() => Some(Event::Written),
            command = self.inbox.recv() => command.map(Event::Command),
            () = ring(&mut self.timer) => {
                self.timer = None;
                Some(Event::Deadline)
            }
        }
    }

    /// Takes what is there: completions first, then up to a batch of commands, then the deadline.
    fn take_round(&mut self, now: Now, first: Event) {
        self.around.metrics.shard_rounds.add(1);
        let mut completions = std::mem::take(&mut self.completions);
        self.around.lane.take(&mut completions);
        for completion in completions.drain(..) {
            if let Some(witness) = &self.around.witness {
                tell(&**witness, &completion);
            }
            self.step(now, completed(completion));
        }
        self.completions = completions;
        while let Some(input) = self.unread.pop() {
            self.step(now, input);
        }
        if let Event::Command(command) = first {
            self.on_command(now, command);
        }
        for _ in 1..self.around.batch_max {
            let Ok(command) = self.inbox.try_recv() else { break };
            self.on_command(now, command);
        }
        if self.shard.deadline().is_some_and(|at| at <= now.monotonic) {
            self.step(now, Input::Tick);
            let next = self.shard.deadline();
            assert!(
                next.is_none_or(|at| at > now.monotonic),
                "a tick at {} moves the deadline on, not to {next:?}",
                now.monotonic
            );
        }
    }

    fn on_command(&mut self, now: Now, command: Command) {
        match command {
            Command::Open { log, open } => {
                self.logs.insert(open.partition, log);
                if let Some(witness) = &self.around.witness {
                    witness.opened(open.partition, &open.recovered);
                }
                self.step(now, Input::Open(open));
            }
            Command::Tell(input) => {
                if let (Some(witness), Input::OpenSeat(open)) = (&self.around.witness, &input) {
                    witness.opened(PartitionId::METADATA, &open.log);
                }
                let dropped = match input {
                    Input::Drop { partition } => Some(partition),
                    _ => None,
                };
                self.step(now, input);
                // The machine's last words to its readers are performed later; they find nobody.
                if let Some(partition) = dropped {
                    self.logs.remove(&partition);
                    self.replays.forget(partition);
                    if let Some(witness) = &self.around.witness {
                        witness.dropped(partition);
                    }
                }
            }
            Command::Ask { request, input, reply } => {
                self.replies.expect(request, reply);
                self.step(now, input);
            }
            Command::Withdraw { request, input } => {
                self.replies.forget(request);
                self.step(now, input);
            }
            Command::Replayed { partition, number, batch } => match batch {
                Some(batch) if self.replays.is_heard(partition, number) => {
                    self.step(now, Input::Replayed { partition, batch });
                }
                None if self.replays.ended(partition, number) => {
                    self.step(now, Input::ReplayEnded { partition });
                }
                Some(_) | None => {}
            },
            Command::Barrier(passed) => self.passed.push(passed),
            Command::Stop => self.stopped = true,
        }
    }

    fn step(&mut self, now: Now, input: Input) {
        self.around.metrics.shard_steps.add(1);
        let before = self.effects.len();
        self.shard.step(now, input, &mut self.effects);
        for effect in &self.effects[before..] {
            // It begins with the other effects, at the end of the round.
            if let Effect::Replay { partition } = effect {
                self.replays.wanted(*partition);
            }
        }
    }

    /// What the log holds is read for the machine beside it.
    fn replay(&mut self, partition: PartitionId) {
        let Some(log) = self.logs.get(&partition) else { return };
        let Some(number) = self.replays.begin(partition) else { return };
        let replay = Replay {
            view: log.view(),
            log: Arc::clone(log),
            number,
            shard: self.client.clone(),
            clock: Arc::clone(&self.around.clock),
            halt: Arc::clone(&self.around.halt),
        };
        replay.start();
    }

    /// Before the other shards can hear of it: this round may wait for storage, and they act
    /// meanwhile.
    fn show_decided(&self) {
        if let (Some(witness), Some(seat)) = (&self.around.witness, self.shard.seat()) {
            witness.decided(seat);
        }
    }

    /// Does what the round's steps asked for, in their order.
    async fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Write { partition, write, op, flush } => {
                    if let Some(witness) = &self.around.witness {
                        witness.wants(partition, write, &op, flush);
                    }
                    let request = WriteRequest { partition, write, op, flush };
                    // A full queue holds up this shard, and so whoever feeds it. The completions
                    // go on meanwhile: their lane does not wait for us.
                    if self.around.writes.send(request).await.is_err() {
                        self.around.halt.halt("the storage engine has stopped");
                    }
                }
                Effect::Reply { request, outcome } => self.replies.answer(request, outcome),
                Effect::Publish { partition, view } => {
                    if let Some(log) = self.logs.get(&partition) {
                        log.publish(view);
                    }
                }
                Effect::Committed(records) => {
                    self.show_decided();
                    self.around.news.tell(records);
                }
                Effect::Restored(records) => {
                    self.show_decided();
                    self.around.news.restore(records);
                }
                Effect::QuorumRole { role, cluster } => self.around.quorum.tell(role, cluster),
                Effect::Replay { partition } => self.replay(partition),
                Effect::Halt { partition, reason } => {
                    self.around.halt.halt(&format!("partition {partition}: {reason:?}"));
                }
                Effect::SendQuorum { to, message } => self.around.peers.send_quorum(to, &message),
                Effect::Send { partition, to, message } => self.sent.push((to, partition, message)),
                Effect::Propose { partition, change } => self.wishes.push((partition, change)),
                Effect::ReadLog { partition, to, from, up_to, bytes_max } => {
                    self.read_for(partition, to, from, up_to, bytes_max);
                }
                Effect::SendMarker { coordinator, marker } => {
                    self.markers.push((coordinator, marker));
                }
                Effect::Clean { partition, clean } => self.clean(partition, Task::Clean(clean)),
                Effect::Discard { partition, cleaned } => {
                    self.clean(partition, Task::Discard(cleaned));
                }
            }
        }
        self.effects = effects;
        if !self.sent.is_empty() {
            self.around.peers.send_round(&mut self.sent);
        }
        if !self.markers.is_empty() {
            let (shard, markers) = (self.client.clone(), std::mem::take(&mut self.markers));
            self.around.rounds.leave(Round { shard, markers });
        }
        if !self.wishes.is_empty() {
            self.around.proposals.leave(std::mem::take(&mut self.wishes));
        }
        for passed in self.passed.drain(..) {
            // Whoever stopped waiting for the barrier does not need it.
            let _ = passed.send(());
        }
    }
}

impl Driver {
    /// Beside the loop; what there is no room for is answered with nothing in the next round.
    fn read_for(
        &mut self,
        partition: PartitionId,
        to: NodeId,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
    ) {
        let Some(log) = self.logs.get(&partition) else { return };
        let wanted = Wanted { log: Arc::clone(log), to, from, up_to, bytes_max };
        if let Err(error) = self.reads.try_send(wanted) {
            let (mpsc::error::TrySendError::Full(wanted)
            | mpsc::error::TrySendError::Closed(wanted)) = error;
            self.unread.push(&wanted);
        }
    }
}

impl Driver {
    /// Beside the loop, one log at a time in the whole node.
    fn clean(&mut self, partition: PartitionId, task: Task) {
        let Some(log) = self.logs.get(&partition) else { return };
        let (log, pass) = (Arc::clone(log), task.pass());
        let left = self.around.cleaner.try_send(Job { log, task });
        if let (Err(_), Some(pass)) = (left, pass) {
            self.unread.push_input(cleaner::failed(partition, pass));
        }
    }
}

/// A node of which a shard has ended by a bug would look alive, and answer nobody: it halts.
struct Bug(Arc<Halt>);

impl Drop for Bug {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.halt("a shard has ended by a bug: the lines before this one say which");
        }
    }
}

/// Why a driver woke.
#[allow(clippy::large_enum_variant)] // It lives for one round and is never stored.
enum Event {
    Written,
    Unread,
    Command(Command),
    Deadline,
}

async fn ring(timer: &mut Option<(quorate_core::time::Instant, Sleep)>) {
    match timer {
        Some((_, sleep)) => sleep.await,
        None => std::future::pending().await,
    }
}

fn tell(witness: &dyn Witness, completion: &Completion) {
    match completion {
        Completion::Written { partition, through } => witness.written(*partition, *through),
        Completion::Truncated { partition, write, recovered } => {
            witness.truncated(*partition, *write, recovered);
        }
        Completion::Failed { .. } => {}
    }
}

fn completed(completion: Completion) -> Input {
    match completion {
        Completion::Truncated { partition, write, recovered } => {
            let input = partition::interface::Input::Truncated { write, recovered };
            Input::Partition { partition, input }
        }
        Completion::Written { partition, through } => {
            let input = partition::interface::Input::Written { through };
            Input::Partition { partition, input }
        }
        Completion::Failed { partition, write } => {
            let input = partition::interface::Input::WriteFailed { write };
            Input::Partition { partition, input }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_that_ends_by_a_bug_halts_its_node() {
        let halt = Arc::new(Halt::default());
        let (sound, bug) = (Bug(Arc::clone(&halt)), Bug(Arc::clone(&halt)));
        drop(sound);
        assert!(!halt.is_halted());
        let ended = tokio::spawn(async move {
            let _bug = bug;
            panic!("a bug");
        });
        assert!(ended.await.is_err() && halt.is_halted());
    }
}
