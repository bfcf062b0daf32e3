//! Whether offsets are kept as they should be, as clients see it that commit and read them back:
//! `offset-kept`, what was accepted is read until another takes its place, or has had its time
//! (KIP-211); `offset-outlives-topic`, no offset of a topic is one of the next topic of its name
//! (KAFKA-16168); and of the members that these clients are now and then: `member-stays`, who was
//! heard within its session is known; `member-id`, no id is given twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::group::PAUSE_MIN;
use quorate_core::time::Instant;

use super::{Evidence, Violation, groups};
use crate::fault::{Fault, Kind};
use crate::history::offsets::{Event, Fate, Found, Number, Told};
use crate::plan::Plan;
use crate::plan::draw::AFTERMATH;

/// After the healing: whoever was deposed before has heard of it by then. A node that is not heard
/// is fenced after 1.5 seconds; leaderships that move without a fence are heard of at once.
pub(super) const NEWS: Duration = Duration::from_secs(2);

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let plan = evidence.plan;
    let Some(spec) = &plan.committers else { return };
    if !groups::offsets_survive(plan, evidence.struck) {
        return;
    }
    let times = Times {
        retention: spec.retention,
        is_judged: plan.dates_offsets_by_one_clock(),
        session: spec.session,
        pauses: pauses(plan, spec.session),
        words_count: words_count(plan),
    };
    let mut clients: BTreeMap<u32, Book> = BTreeMap::new();
    for told in &evidence.history.offsets {
        let book = clients.entry(told.client).or_default();
        if let Some((property, sentence)) = book.take(told, &times) {
            let ms = told.completed.as_duration().as_millis();
            let place = format!("o{}", told.client.saturating_sub(plan.committing().start));
            violations.push(Violation {
                property,
                place,
                sentence: format!("at {ms} ms {sentence}"),
            });
        }
    }
}

/// When the only node stood still for so long that it must have noticed (`group::PAUSE_MIN`), and
/// nothing else struck it: whoever was a member then has a whole session again.
fn pauses(plan: &Plan, session: Duration) -> Vec<(Instant, Instant)> {
    if plan.cluster.nodes > 1 {
        return Vec::new();
    }
    let at = |fault: &Fault| Instant::ZERO + fault.at;
    let long = plan.faults.iter().filter_map(|fault| match &fault.kind {
        Kind::Pause(it) => {
            let ends = (fault.at + it.during).min(plan.run.safety);
            let is_noticed = ends > fault.at + session + PAUSE_MIN + Duration::from_millis(50);
            is_noticed.then_some((at(fault), Instant::ZERO + ends))
        }
        _ => None,
    });
    let is_alone = |(begins, ends): &(Instant, Instant)| {
        let within = plan.faults.iter().filter(|fault| {
            let lasts = match &fault.kind {
                Kind::Pause(it) => it.during,
                _ => AFTERMATH,
            };
            at(fault) <= *ends && at(fault) + lasts >= *begins
        });
        within.count() == 1
    };
    long.filter(is_alone).collect()
}

/// From when on a heartbeat that was answered shows that the group's coordinator has heard it. One
/// that was deposed and does not know it answers heartbeats from memory, and the member's session
/// runs out at its successor, which has heard nothing; as with Kafka. Only what ends a membership
/// is confirmed (decision 0086). Nor would it do to count what the node said that refuses: it may
/// have been deposed, and elected again.
///
/// In the world of cores a node may stand still beyond the healing, and wake as such a coordinator
/// (seed 4569 of three cores).
pub(super) fn words_count(plan: &Plan) -> Instant {
    if plan.cluster.nodes == 1 {
        return Instant::ZERO;
    }
    news_of_healing(plan)
}

/// When everybody has heard that all is healed, and what was said before has come or never will.
pub(super) fn news_of_healing(plan: &Plan) -> Instant {
    let pauses = plan.faults.iter().filter_map(|fault| match &fault.kind {
        Kind::Pause(it) => Some(fault.at + it.during),
        _ => None,
    });
    let awake = pauses.fold(plan.run.safety, Duration::max);
    Instant::ZERO + awake + NEWS
}

struct Times {
    retention: Option<Duration>,
    /// Whether it can be said that an offset has gone too early.
    is_judged: bool,
    session: Duration,
    /// See `pauses`.
    pauses: Vec<(Instant, Instant)>,
    /// See `words_count`.
    words_count: Instant,
}

impl Times {
    /// Whether an offset that was in use then may be gone by now. Clocks drift by a thousandth.
    fn may_be_over(&self, used: Instant, now: Instant) -> bool {
        self.retention.is_some_and(|retention| {
            !self.is_judged || now.saturating_since(used) >= retention - retention / 100
        })
    }
}

/// A commit that may be what the coordinator has.
#[derive(Clone, Copy, Debug)]
struct Commit {
    invoked: Instant,
    by_name: bool,
}

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
struct Page {
    /// What is there, unless one of `maybe` is. `None`: nothing.
    last: Option<Number>,
    /// It was accepted by name, and was not read since: where it was taken for one of the topic
    /// before, nothing is there.
    is_soft: bool,
    /// When it was last surely in use: committed, or its group had a member.
    used: Instant,
    /// It may have had its time before it was in use again.
    may_be_gone: bool,
    /// Commits of which nobody knows whether they are done, or when they will be.
    maybe: BTreeMap<Number, Commit>,
}

impl Page {
    fn put(&mut self, number: Number, commit: Commit) {
        self.last = Some(number);
        (self.used, self.may_be_gone) = (commit.invoked, false);
    }

    /// The group has a member. What had its time before may be gone all the same.
    fn is_in_use(&mut self, told: &Told, times: &Times) {
        self.may_be_gone |= times.may_be_over(self.used, told.completed);
        self.used = self.used.max(told.invoked);
    }
}

/// What one client's group is known to have.
#[derive(Debug, Default)]
struct Book {
    topic: u32,
    pages: BTreeMap<u32, Page>,
    /// Commits of the topics before that named them, and may come yet.
    late: BTreeSet<(u32, Number)>,
    /// When it was last surely a member, if it may be one still.
    member: Option<Instant>,
    given: BTreeSet<String>,
}

type Blame = (&'static str, String);

impl Book {
    fn take(&mut self, told: &Told, times: &Times) -> Option<Blame> {
        match &told.event {
            Event::TopicBegins => self.begin_topic(),
            Event::Commit { partition, number, by_name, fate } => {
                let commit = Commit { invoked: told.invoked, by_name: *by_name };
                let page = self.pages.entry(*partition).or_default();
                match fate {
                    Fate::Accepted => {
                        page.put(*number, commit);
                        page.is_soft = *by_name;
                    }
                    Fate::Unknown => drop(page.maybe.insert(*number, commit)),
                    Fate::Refused => {}
                }
            }
            Event::Read { partition, found } => {
                return self.read(*partition, *found, told.completed, times);
            }
            Event::Garbled { partition, what } => {
                let sentence = format!("{what} is read in {partition}, and nobody committed it");
                return Some(("offset-kept", sentence));
            }
            Event::Heard { is_stored } => {
                if *is_stored || told.invoked >= times.words_count {
                    self.member = Some(told.invoked);
                    self.pages.values_mut().for_each(|page| page.is_in_use(told, times));
                }
            }
            Event::Leaves => self.member = None,
            Event::Expelled => return self.expelled(told.completed, times),
            Event::Given { member } => {
                if !self.given.insert(member.clone()) {
                    return Some(("member-id", format!("{member} is given a second time")));
                }
            }
        }
        None
    }

    fn begin_topic(&mut self) {
        for page in std::mem::take(&mut self.pages).into_values() {
            let late = page.maybe.iter().filter(|(_, commit)| commit.by_name);
            self.late.extend(late.map(|(number, _)| (self.topic, *number)));
        }
        self.topic += 1;
    }

    fn expelled(&mut self, now: Instant, times: &Times) -> Option<Blame> {
        let heard = self.member.take()?;
        let session = times.session;
        let least = session - session / 50;
        // The coordinator's own silence is not the member's.
        let slept = times.pauses.iter().any(|(begins, ends)| {
            heard + least > *begins && heard <= *ends && *ends < now && now < *ends + least
        });
        let silent = now.saturating_since(heard);
        (silent < least || slept).then(|| {
            let (silent, session) = (silent.as_millis(), session.as_millis());
            let why = if slept { ", and its coordinator stood still" } else { "" };
            let sentence = format!(
                "it is unknown {silent} ms after it was heard; its session is {session} ms{why}"
            );
            ("member-stays", sentence)
        })
    }

    fn read(
        &mut self,
        partition: u32,
        found: Option<Found>,
        now: Instant,
        times: &Times,
    ) -> Option<Blame> {
        let page = self.pages.entry(partition).or_default();
        match found {
            None => {
                let number = page.last?;
                let in_doubt = page.is_soft || page.maybe.values().any(|commit| commit.by_name);
                let may_be_gone = page.may_be_gone || times.may_be_over(page.used, now);
                if !in_doubt && !may_be_gone {
                    let ago = now.saturating_since(page.used).as_millis();
                    let sentence = format!(
                        "no offset is read in {partition}; {number} was accepted, and in use \
                         {ago} ms before"
                    );
                    return Some(("offset-kept", sentence));
                }
                (page.last, page.is_soft) = (None, false);
            }
            Some(Found { topic, number }) if topic != self.topic => {
                if !self.late.contains(&(topic, number)) {
                    let sentence = format!(
                        "{number} of topic {topic} is read in {partition}, and topic {} has the \
                         name",
                        self.topic
                    );
                    return Some(("offset-outlives-topic", sentence));
                }
                // It may have come on top of anything.
                page.last = None;
            }
            Some(Found { number, .. }) => {
                if let Some(commit) = page.maybe.remove(&number) {
                    page.put(number, commit);
                } else if page.last != Some(number) {
                    let last = page.last.unwrap_or(-1);
                    let sentence =
                        format!("{number} is read in {partition}, and {last} was there before");
                    return Some(("offset-kept", sentence));
                }
                (page.is_soft, page.may_be_gone) = (false, false);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Struck, check as check_all};
    use crate::history::History;
    use crate::plan::draw::draw;

    /// A heartbeat.
    const WORD: Event = Event::Heard { is_stored: false };
    /// A commit.
    const STORED: Event = Event::Heard { is_stored: true };

    /// A client's story, one thing after another, ten milliseconds each.
    struct Story {
        plan: Plan,
        history: History,
        now: Instant,
    }

    impl Story {
        /// Offsets are kept for two seconds, and sessions are one.
        fn new() -> Self {
            let mut plan = draw(1);
            let text: String = plan
                .print()
                .lines()
                .filter(|line| !line.starts_with("fault ") && !line.starts_with("committers "))
                .map(|line| format!("{line}\n"))
                .collect();
            let line = "committers clients=1 partitions=1 retention=2s session=1s \
                        pause=1ms..1ms away=1s..1s\n";
            plan = Plan::parse(&(text + line)).expect("a plan");
            plan.clock.wall_offset = 0;
            Self { plan, history: History::default(), now: Instant::ZERO }
        }

        fn tell(&mut self, event: Event) -> &mut Self {
            let invoked = self.now + Duration::from_millis(5);
            self.now = invoked + Duration::from_millis(5);
            let client = self.plan.committing().start;
            self.history.tell_of_offsets(client, (invoked, self.now), event);
            self
        }

        fn commit(&mut self, number: Number, by_name: bool, fate: Fate) -> &mut Self {
            self.tell(Event::Commit { partition: 0, number, by_name, fate })
        }

        fn read(&mut self, found: Option<(u32, Number)>) -> &mut Self {
            let found = found.map(|(topic, number)| Found { topic, number });
            self.tell(Event::Read { partition: 0, found })
        }

        fn wait(&mut self, millis: u64) -> &mut Self {
            self.now = self.now + Duration::from_millis(millis);
            self
        }

        fn blamed(&self) -> Vec<&'static str> {
            let violations = check_all(&self.history, &self.plan, Struck::default());
            violations.iter().map(|violation| violation.property).collect()
        }
    }

    #[test]
    fn what_was_accepted_is_read_back() {
        let mut story = Story::new();
        story.read(None).commit(1, false, Fate::Accepted).read(Some((0, 1)));
        story.commit(2, false, Fate::Unknown).read(Some((0, 1))).read(Some((0, 2)));
        assert_eq!(story.blamed(), [""; 0], "it may come late");
        story.read(Some((0, 1)));
        assert_eq!(story.blamed(), ["offset-kept"], "it was replaced");
    }

    #[test]
    fn nothing_is_forgotten_before_its_time() {
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).wait(2000).read(None);
        assert_eq!(story.blamed(), [""; 0]);
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).wait(1900).read(None);
        assert_eq!(story.blamed(), ["offset-kept"]);
    }

    #[test]
    fn what_is_in_use_is_kept() {
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).wait(1500).tell(WORD).wait(500).read(None);
        assert_eq!(story.blamed(), ["offset-kept"], "the group had a member half a second ago");
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).wait(2000).tell(WORD).read(None);
        assert_eq!(story.blamed(), [""; 0], "nobody was there when its time was over");
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).tell(WORD).tell(Event::Leaves);
        story.wait(2000).read(None);
        assert_eq!(story.blamed(), [""; 0]);
    }

    #[test]
    fn offsets_die_with_their_topic() {
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).tell(Event::TopicBegins).read(None);
        assert_eq!(story.blamed(), [""; 0]);
        story.read(Some((0, 1)));
        assert_eq!(story.blamed(), ["offset-outlives-topic"]);
    }

    #[test]
    fn a_name_may_be_anothers_by_the_time_it_is_heard() {
        let mut story = Story::new();
        story.commit(1, true, Fate::Unknown).tell(Event::TopicBegins).read(Some((0, 1)));
        assert_eq!(story.blamed(), [""; 0]);
        let mut story = Story::new();
        story.commit(1, false, Fate::Unknown).tell(Event::TopicBegins).read(Some((0, 1)));
        assert_eq!(story.blamed(), ["offset-outlives-topic"], "an id is one topic's");
        let mut story = Story::new();
        story.commit(1, false, Fate::Accepted).commit(2, true, Fate::Accepted).read(None);
        assert_eq!(story.blamed(), [""; 0], "it was taken for one of the topic before");
        story.commit(3, true, Fate::Accepted).read(Some((0, 3))).read(None);
        assert_eq!(story.blamed(), ["offset-kept"], "this one was not");
    }

    #[test]
    fn members_that_are_heard_stay() {
        let mut story = Story::new();
        story.tell(WORD).wait(970).tell(Event::Expelled);
        assert_eq!(story.blamed(), [""; 0]);
        let mut story = Story::new();
        story.tell(WORD).wait(500).tell(Event::Leaves).tell(Event::Expelled);
        assert_eq!(story.blamed(), [""; 0]);
        let mut story = Story::new();
        story.tell(WORD).wait(500).tell(Event::Expelled);
        assert_eq!(story.blamed(), ["member-stays"]);
    }

    /// Seed 4545 of three nodes.
    #[test]
    fn a_coordinator_that_was_deposed_may_answer_heartbeats() {
        let story = || {
            let mut story = Story::new();
            (story.plan.cluster.nodes, story.plan.run.safety) = (3, Duration::from_secs(10));
            story
        };
        let expelled = |words: &[Event], at: u64| {
            let mut story = story();
            story.wait(at);
            for word in words {
                story.tell(word.clone()).wait(490);
            }
            story.tell(Event::Expelled);
            story.blamed()
        };
        assert_eq!(expelled(&[WORD], 0), [""; 0]);
        assert_eq!(expelled(&[STORED, WORD], 0), [""; 0], "a second after it was written");
        assert_eq!(expelled(&[STORED], 0), ["member-stays"], "its successor has read it");
        assert_eq!(expelled(&[WORD, STORED], 0), ["member-stays"]);
        assert_eq!(expelled(&[STORED, WORD], 12_000), ["member-stays"], "all is healed");

        let forgotten = |word: Event| {
            let mut story = story();
            story.commit(1, false, Fate::Accepted).wait(1500).tell(word).wait(500).read(None);
            story.blamed()
        };
        assert_eq!(forgotten(WORD), [""; 0], "its group may be empty");
        assert_eq!(forgotten(STORED), ["offset-kept"]);
    }

    #[test]
    fn nobody_is_to_blame_for_a_pause_of_the_coordinator() {
        let mut story = Story::new();
        let text = story.plan.print() + "fault pause at=500ms during=3s\n";
        story.plan = Plan::parse(&text).expect("a plan");
        story.plan.run.safety = Duration::from_secs(10);
        story.tell(WORD).wait(480).tell(WORD).wait(3900).tell(Event::Expelled);
        assert_eq!(story.blamed(), ["member-stays"], "it woke at 3.5 seconds");
        story.history.offsets.pop();
        story.wait(500).tell(Event::Expelled);
        assert_eq!(story.blamed(), [""; 0]);
    }

    #[test]
    fn an_id_is_given_once() {
        let mut story = Story::new();
        let given = |member: &str| Event::Given { member: member.to_owned() };
        story.tell(given("a")).tell(given("b"));
        assert_eq!(story.blamed(), [""; 0]);
        story.tell(given("a"));
        assert_eq!(story.blamed(), ["member-id"]);
    }
}
