//! The replication of one partition as a specification: the controller's word says who leads, who
//! is in sync and who else may be elected; a leader commits what everybody in sync has on its disk;
//! a follower cuts its log where it parts from the leader's and takes what follows. PacificA with
//! KIP-101, KIP-279, KIP-497, KIP-841, KIP-903 and KIP-966.
//!
//! As in `quorum.rs`, there is no network: what was said is a set that only grows. What the
//! controller decides is one word after another; how it comes to agree on them is the quorum's.
//!
//! Not here: what stands in the records (a log is who wrote each offset), producers, readers,
//! retention's reasons, compaction, racks, time. After an unclean election nothing is promised, and
//! nothing is judged.

pub mod explore;
pub mod witness;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::quorum::Broken;
use super::runs::Runs;

pub type Node = u8;
pub type Epoch = u64;
pub type Offset = u64;
/// Which of a node's lives, as the controller counts them.
pub type Life = u64;
pub type Nodes = BTreeSet<Node>;
/// Nodes in their lives.
pub type Lives = BTreeSet<(Node, Life)>;
/// Leader epoch and partition epoch of a word.
pub type Version = (Epoch, Epoch);

/// The controller's word, in the order of its two epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Word {
    pub leader_epoch: Epoch,
    pub partition_epoch: Epoch,
    pub leader: Option<Node>,
    pub replicas: Nodes,
    pub in_sync: Nodes,
    /// Not in sync, and sure to have all that is committed. KIP-966.
    pub eligible: Nodes,
}

impl Word {
    pub const fn version(&self) -> Version {
        (self.leader_epoch, self.partition_epoch)
    }

    fn may_lead(&self, node: Node) -> bool {
        self.in_sync.contains(&node) || self.eligible.contains(&node)
    }
}

/// A log: records below `start` are deleted, and `log` still says who wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kept {
    pub start: Offset,
    pub log: Runs,
}

/// One replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Copy {
    pub disk: Kept,
    /// What `disk` will be next, and after that.
    pub writing: VecDeque<Kept>,
    pub mind: Kept,
    /// Which of the controller's words it has heard in this life.
    pub heard: Option<Version>,
    pub leads: bool,
    /// Its high watermark.
    pub high: Offset,
}

/// What is known of one leadership: all that its leader ever had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Led {
    pub node: Node,
    /// Where its log ended when it began.
    pub from: Offset,
    pub kept: Kept,
    pub high: Offset,
}

/// Something that a replica tells others, or the controller, or a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// "My epochs are these": now the follower knows where its log parts from the leader's.
    Compares { to: Node },
    /// "In this life my disk has your log up to here."
    Holds { life: Life, through: Offset },
    /// "These shall be in sync, in these lives."
    Proposes { members: Lives },
    /// "Your batch stands here": written, or committed, as the producer wished.
    Answers { base: Offset, committed: bool },
}

/// What the controller knows of the nodes when it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Not fenced, and in which life.
    pub live: BTreeMap<Node, Life>,
    /// Nodes that have the disk which they registered with.
    pub known_disks: Nodes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It hears the controller's word of this version.
    Hear {
        version: Version,
    },
    /// It leads until it hears of another leader epoch, or its life ends.
    Lead,
    /// A leader appends.
    Append {
        base: Offset,
        next: Offset,
    },
    /// A follower appends what the leader of this epoch wrote.
    Take {
        base: Offset,
        next: Offset,
        epoch: Epoch,
    },
    Cut {
        to: Offset,
    },
    /// It throws its log away and begins where the leader's begins.
    Reset {
        to: Offset,
    },
    Delete {
        to: Offset,
    },
    Persist {
        writes: usize,
    },
    /// The same, where the last of them is a cut, which takes whole batches: what remains may end
    /// in front of where it was to end.
    PersistCut {
        writes: usize,
        end: Offset,
    },
    Restart,
    /// Its disk is lost, or its log is dropped since the partition is elsewhere.
    Vanish,
    /// A leader raises its high watermark; `min.insync.replicas` of its topic.
    Commit {
        to: Offset,
        min: usize,
    },
    /// A follower does.
    Learn {
        to: Offset,
    },
    Say(Fact),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    pub words: BTreeMap<Version, Word>,
    pub copies: BTreeMap<Node, Copy>,
    pub led: BTreeMap<Epoch, Led>,
    pub compared: BTreeSet<(Epoch, Node)>,
    pub held: BTreeMap<(Epoch, Node, Life), Offset>,
    pub proposed: BTreeSet<(Version, Lives)>,
    /// All that anybody ever took for committed.
    pub committed: Runs,
    /// A human took the loss of committed records upon himself.
    pub unclean: bool,
}

impl Copy {
    /// It, without what is on its way to the disk: no rule asks for that, and there may be much.
    fn settled(&self) -> Self {
        let (disk, mind, writing) = (self.disk.clone(), self.mind.clone(), VecDeque::new());
        Self { disk, writing, mind, heard: self.heard, leads: self.leads, high: self.high }
    }
}

fn rule(holds: bool, broken: Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken) }
}

impl State {
    /// The controller's last word.
    pub fn last_word(&self) -> Option<&Word> {
        self.words.values().next_back()
    }

    /// A word of the controller. One that is heard of late was judged by what came of it.
    ///
    /// # Errors
    ///
    /// The rule that it breaks.
    pub fn decide(&mut self, word: &Word, standing: &Standing) -> Result<(), Broken> {
        if self.words.contains_key(&word.version()) {
            return Ok(());
        }
        rule(word.leader.is_none_or(|node| word.in_sync.contains(&node)), "who leads is in sync")?;
        let before = self.words.range(..word.version()).next_back().map(|(_, word)| word.clone());
        let is_last = self.words.range(word.version()..).next().is_none();
        self.words.insert(word.version(), word.clone());
        let Some(before) = before else { return Ok(()) };
        if before.partition_epoch + 1 == word.partition_epoch {
            self.follows(&before, word, standing)?;
        }
        let elects = before.leader_epoch < word.leader_epoch;
        let is_judged = |node: &&Node| elects || !before.may_lead(**node);
        let members = word.in_sync.iter().chain(&word.eligible);
        for node in members.filter(is_judged).filter(|_| is_last && !self.unclean) {
            self.has_all(*node, standing)?;
        }
        Ok(())
    }

    fn follows(&mut self, before: &Word, word: &Word, standing: &Standing) -> Result<(), Broken> {
        let changes = before.leader != word.leader;
        rule(before.leader_epoch <= word.leader_epoch, "a leader epoch is never taken back")?;
        let is_new = before.leader_epoch < word.leader_epoch;
        rule(!changes || is_new, "another leader has another leader epoch")?;
        let only = |node: Node| word.in_sync.len() == 1 && word.in_sync.contains(&node);
        let may_have_lacked = |leader| only(leader) && !before.may_lead(leader);
        if before.leader.is_none() && word.leader.is_some_and(may_have_lacked) {
            // Nobody was there who could lead, and a human had somebody else do so.
            self.unclean = true;
            return Ok(());
        }
        let may_lead = |node: &Node| before.may_lead(*node);
        rule(word.eligible.iter().all(may_lead), "who is eligible was in sync")?;
        for node in word.in_sync.difference(&before.in_sync) {
            let elected = only(*node) && before.eligible.contains(node);
            let life = standing.live.get(node);
            rule(life.is_some() || elected, "who is fenced is not let in")?;
            let wishes = |(version, members): &(_, Lives)| {
                *version == before.version()
                    && life.is_some_and(|life| members.contains(&(*node, *life)))
            };
            let is_wished = self.proposed.iter().any(wishes);
            rule(is_wished || elected, "who is let in was proposed, in this life")?;
        }
        Ok(())
    }

    /// Who may be elected has on its disk all that is committed. One whose disk is not that of
    /// whom the controller knows is not judged: it is not who was let in.
    fn has_all(&self, node: Node, standing: &Standing) -> Result<(), Broken> {
        let nothing = Copy::default();
        let disk = &self.copies.get(&node).unwrap_or(&nothing).disk;
        let is_known = standing.known_disks.contains(&node);
        let has = disk.log.common(&self.committed) >= self.committed.len();
        rule(!is_known || has, "who may be elected has all that is committed")
    }

    /// Takes a replica's step, or says which rule it breaks; the state is of no use then.
    ///
    /// # Errors
    ///
    /// The rule.
    pub fn act(&mut self, me: Node, action: &Action, standing: &Standing) -> Result<(), Broken> {
        let copy = self.copies.entry(me).or_default().settled();
        let epoch = copy.heard.map_or(0, |(epoch, _)| epoch);
        match action {
            Action::Hear { version } => self.hear(me, &copy, *version),
            Action::Lead => self.lead(me, &copy, epoch),
            Action::Append { base, next } => {
                rule(copy.leads, "only a leader appends what is new")?;
                rule(*base == copy.mind.log.len(), "a batch stands at the end of the log")?;
                self.copy(me).mind.log.push(epoch, next.saturating_sub(*base));
                self.write(me);
                Ok(())
            }
            Action::Take { base, next, epoch: by } => self.take(me, &copy, (*base, *next), *by),
            Action::Cut { to } => self.cut(me, &copy, *to),
            Action::Reset { to } => self.reset(me, &copy, *to),
            Action::Delete { to } => {
                rule(*to <= copy.high, "only what is committed is deleted")?;
                self.copy(me).mind.start = copy.mind.start.max(*to);
                self.write(me);
                Ok(())
            }
            Action::Persist { writes } => {
                let copy = self.copy(me);
                for _ in 0..*writes {
                    copy.disk = copy.writing.pop_front().ok_or("nothing was written")?;
                }
                Ok(())
            }
            Action::PersistCut { writes, end } => {
                let copy = self.copy(me);
                let cut = copy.writing.drain(..*writes).next_back().ok_or("nothing was written")?;
                rule(cut.log.len() < copy.disk.log.len(), "only a cut takes more than it must")?;
                (copy.disk, copy.high) = (cut, copy.high.min(*end));
                copy.disk.log.truncate(*end);
                copy.mind.log.truncate(*end);
                Ok(())
            }
            Action::Restart => {
                self.compared.retain(|(_, node)| *node != me);
                let (disk, mind, high) = (copy.disk.clone(), copy.disk.clone(), copy.disk.start);
                *self.copy(me) = Copy { disk, mind, high, ..Copy::default() };
                Ok(())
            }
            Action::Vanish => {
                self.compared.retain(|(_, node)| *node != me);
                *self.copy(me) = Copy::default();
                Ok(())
            }
            Action::Commit { to, min } => self.commit(me, &copy, *to, *min, standing),
            Action::Learn { to } => self.learn(me, &copy, *to),
            Action::Say(fact) => self.say(me, &copy, epoch, fact),
        }
    }

    fn copy(&mut self, me: Node) -> &mut Copy {
        self.copies.entry(me).or_default()
    }

    /// What is in memory now is on its way to the disk. All that a leader ever had is known.
    fn write(&mut self, me: Node) {
        let copy = self.copies.entry(me).or_default();
        copy.writing.push_back(copy.mind.clone());
        if let Some((epoch, _)) = copy.heard.filter(|_| copy.leads)
            && let Some(led) = self.led.get_mut(&epoch)
        {
            led.kept = copy.mind.clone();
        }
    }

    /// The word that a replica goes by.
    fn word_of(&self, copy: &Copy) -> Result<&Word, Broken> {
        let word = copy.heard.and_then(|version| self.words.get(&version));
        word.ok_or("who has heard no word does nothing")
    }

    fn hear(&mut self, me: Node, copy: &Copy, version: Version) -> Result<(), Broken> {
        rule(self.words.contains_key(&version), "the controller has not said this")?;
        rule(copy.heard.is_none_or(|heard| heard < version), "an older word is not believed")?;
        let is_new = copy.heard.is_none_or(|(epoch, _)| epoch < version.0);
        let copy = self.copy(me);
        copy.heard = Some(version);
        copy.leads &= !is_new;
        Ok(())
    }

    fn lead(&mut self, me: Node, copy: &Copy, epoch: Epoch) -> Result<(), Broken> {
        let word = self.word_of(copy)?;
        rule(word.leader == Some(me), "who leads, the controller has named")?;
        let is_alone = word.replicas.iter().eq([&me]);
        let is_free = self.led.get(&epoch).is_none_or(|led| led.node == me && is_alone);
        rule(is_free, "one leadership an epoch")?;
        let from = copy.mind.log.len();
        let led = Led { node: me, from, kept: copy.mind.clone(), high: copy.high };
        self.led.insert(epoch, led);
        self.copy(me).leads = true;
        Ok(())
    }

    /// The leader's log, for a follower that knows where its own parts from it.
    fn leaders(&self, me: Node, copy: &Copy) -> Result<&Led, Broken> {
        rule(!copy.leads, "a leader follows nobody")?;
        let word = self.word_of(copy)?;
        let led = self.led.get(&word.leader_epoch).ok_or("nobody leads this epoch")?;
        let is_compared = self.compared.contains(&(word.leader_epoch, me));
        rule(is_compared, "logs are compared anew in each leader epoch")?;
        Ok(led)
    }

    fn take(
        &mut self,
        me: Node,
        copy: &Copy,
        (base, next): (Offset, Offset),
        epoch: Epoch,
    ) -> Result<(), Broken> {
        let led = self.leaders(me, copy)?;
        let (own, theirs) = (&copy.mind.log, &led.kept.log);
        rule(own.is_prefix_of(theirs), "batches follow a log that is the leader's")?;
        rule(base == own.len(), "a batch stands at the end of the log")?;
        rule(next <= theirs.len(), "what is taken, the leader has")?;
        rule(theirs.writer(next) == Some(epoch), "a batch is of the epoch that wrote it")?;
        let log = theirs.prefix(next);
        self.copy(me).mind.log = log;
        self.write(me);
        Ok(())
    }

    fn cut(&mut self, me: Node, copy: &Copy, to: Offset) -> Result<(), Broken> {
        let led = self.leaders(me, copy)?;
        let own = &copy.mind;
        let parting = own.log.common(&led.kept.log).max(own.start);
        // What the leader has deleted cannot be compared, and is not parted from.
        let deleted = own.log.len().min(led.kept.start).max(own.start);
        rule(to == parting || to == deleted, "a log is cut where it parts from the leader's")?;
        let copy = self.copy(me);
        copy.mind.log.truncate(to);
        copy.high = copy.high.clamp(copy.mind.start.min(to), to);
        self.write(me);
        Ok(())
    }

    fn reset(&mut self, me: Node, copy: &Copy, to: Offset) -> Result<(), Broken> {
        let led = self.leaders(me, copy)?;
        let own = &copy.mind;
        let holds_nothing = own.log.len() <= led.kept.start.max(own.start);
        rule(holds_nothing, "only what the leader has deleted is thrown away")?;
        rule(to <= led.kept.log.len(), "a log begins where the leader's has something")?;
        let log = led.kept.log.prefix(to);
        let copy = self.copy(me);
        (copy.mind, copy.high) = (Kept { start: to, log }, to);
        self.write(me);
        Ok(())
    }

    fn commit(
        &mut self,
        me: Node,
        copy: &Copy,
        to: Offset,
        min: usize,
        standing: &Standing,
    ) -> Result<(), Broken> {
        let word = self.word_of(copy)?;
        let (epoch, version) = (word.leader_epoch, word.version());
        let has = |node: Node| {
            let own = node == me && copy.disk.log.common(&copy.mind.log) >= to;
            let lives = self.held.range((epoch, node, 0)..=(epoch, node, Life::MAX));
            own || lives.into_iter().any(|(_, held)| *held >= to)
        };
        let is_alone = word.replicas.iter().eq([&me]);
        rule(copy.leads || is_alone, "only a leader counts")?;
        let wished = self.proposed.iter().filter(|(at, _)| *at == version);
        let wished = wished.flat_map(|(_, members)| members.iter().map(|(node, _)| *node));
        let mut counted: Nodes = word.in_sync.iter().copied().chain(wished).collect();
        counted.retain(|node| word.replicas.contains(node));
        rule(counted.iter().all(|node| has(*node)), "all in sync hold what is committed")?;
        let enough = word.in_sync.len() >= min.min(word.replicas.len());
        rule(enough, "enough are in sync for anything to be committed")?;
        if let Some(led) = self.led.get_mut(&epoch).filter(|_| copy.leads) {
            led.high = led.high.max(to);
        }
        let was = self.committed.len();
        self.raise(me, copy, to)?;
        let members = self.last_word().filter(|_| to > was).cloned().unwrap_or_default();
        for node in members.in_sync.iter().chain(&members.eligible) {
            self.has_all(*node, standing)?;
        }
        Ok(())
    }

    fn learn(&mut self, me: Node, copy: &Copy, to: Offset) -> Result<(), Broken> {
        let led = self.leaders(me, copy)?;
        rule(to <= led.high, "the leader has not committed this")?;
        let common = copy.disk.log.common(&led.kept.log);
        rule(to <= common, "a follower shows what its disk has of the leader's log")?;
        self.raise(me, copy, to)
    }

    /// One history: nobody shows another record than anybody else.
    fn raise(&mut self, me: Node, copy: &Copy, to: Offset) -> Result<(), Broken> {
        rule(to >= copy.high, "what was shown is never taken back")?;
        let log = copy.mind.log.prefix(to);
        let known = self.committed.len().min(to);
        rule(log.common(&self.committed) >= known, "one history is committed")?;
        if to > self.committed.len() {
            self.committed = log;
        }
        self.copy(me).high = to;
        Ok(())
    }

    fn say(&mut self, me: Node, copy: &Copy, epoch: Epoch, fact: &Fact) -> Result<(), Broken> {
        match fact {
            Fact::Compares { to } => {
                rule(copy.leads, "only a leader says where its log stands")?;
                self.compared.insert((epoch, *to));
            }
            Fact::Holds { life, through } => {
                let led = self.leaders(me, copy)?;
                let has = copy.disk.log.common(&led.kept.log);
                rule(*through <= has, "what is acknowledged is on the disk and the leader's")?;
                let held = self.held.entry((epoch, me, *life)).or_default();
                *held = (*through).max(*held);
            }
            Fact::Proposes { members } => {
                let word = self.word_of(copy)?;
                let led = self.led.get(&epoch).ok_or("nobody leads this epoch")?;
                rule(copy.leads && led.node == me, "only a leader proposes")?;
                let needed = copy.high.max(led.from);
                let joins = members.iter().filter(|(node, _)| !word.in_sync.contains(node));
                let has = |(node, life): &(Node, Life)| {
                    let held = self.held.get(&(epoch, *node, *life));
                    held.is_some_and(|held| *held >= needed)
                };
                let all = joins.into_iter().all(has);
                rule(all, "who joins has what is committed, and what may have been before")?;
                self.proposed.insert((word.version(), members.clone()));
            }
            Fact::Answers { base, committed } => {
                let below = if *committed { copy.high } else { copy.disk.log.len() };
                rule(*base < below, "a producer is answered once it is true")?;
            }
        }
        Ok(())
    }
}
