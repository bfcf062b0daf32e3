//! What the page knows of a run is what happened in it.

use std::collections::BTreeSet;

use quorate_core::time::Instant;

use super::wrong::witnesses;
use super::*;
use crate::check::Violation;
use crate::history::groups::{Claim, Committed, GroupCall, GroupEnd};
use crate::history::transactions::{
    Incident, IncidentKind, Last, Outcome, Place, Sent, Stamp, Stamped, View,
};
use crate::history::{Call, Partition, Seen};
use crate::plan::draw::draw_cluster;
use crate::run::Verdict;
use crate::run::{Options, run};
use crate::trace;
use crate::trace::{Kept, Sink};

fn watched(seed: u64) -> (Plan, Report) {
    let plan = draw_cluster(seed, 3);
    let sink = Sink::Events(Kept::default());
    let report = run(&plan, World::Cores, Options { sink, ..Options::default() });
    (plan, report)
}

#[test]
fn a_picture_has_all_that_happened() {
    let (plan, report) = watched(3);
    let draft = Draft::new(&plan, &report);
    let picture = draft.picture(&plan, World::Cores, None, &report);
    assert_eq!(picture.events.len() as u64, report.trace.events);
    let groups = report.history.groups.operations.len() + report.history.offsets.len();
    assert_eq!(picture.operations.len(), report.history.operations.len() + groups);
    assert!(picture.operations.iter().all(|operation| operation.lane >= 0 && operation.event > 0));
    for operation in &picture.operations {
        let event = &report.trace.kept.events[operation.event as usize - 1];
        assert_eq!((event.mark, micros(event.moment.at)), (Mark::Invoke, operation.from));
    }
    // Everybody leads something, and somebody the metadata; nobody does so while it is away.
    assert!(picture.bands.iter().any(|band| band.partition == -1));
    for partition in 0..picture.partitions.len() as i32 {
        assert!(picture.bands.iter().any(|band| band.partition == partition), "{partition}");
        assert!(!picture.levels[partition as usize].is_empty(), "{partition}");
    }
    for lane in 0..3 {
        assert!(picture.lives.iter().any(|life| life.lane == lane));
    }
    assert!(picture.healed.is_some_and(|healed| healed <= picture.end));
}

#[test]
fn a_story_has_what_led_to_the_failure_and_nothing_later() {
    let (plan, mut report) = watched(3);
    assert!(story(&plan, World::Cores, None, &report).contains("nothing to explain"));
    let appended = |operation: &crate::history::Operation| {
        matches!(&operation.end, End::Appended { base: Some(_), .. })
    };
    let places = report.history.operations.iter().enumerate();
    let place = places.filter(|(_, operation)| appended(operation)).nth(20).expect("so many").0;
    let operation = &report.history.operations[place];
    let partition = operation.call.partition().to_string();
    let at = micros(operation.completed.expect("it has ended").as_duration());
    let sentence = format!("operation {place} was told an offset that nobody had");
    let mut told = |property| {
        let violation =
            Violation { property, place: partition.clone(), sentence: sentence.clone() };
        report.verdict = Verdict::Safety;
        report.violations = vec![violation];
        story(&plan, World::Cores, None, &report)
    };
    let shown = told("inconsistent-offsets");
    assert!(shown.contains(&sentence) && shown.contains(&format!("leads {partition}")));
    assert!(shown.contains("seen to be wrong (#") && shown.contains("append"), "{shown}");
    // What is missing in the end was there when the operation ended.
    let missing = told("lost-write");
    assert!(missing.contains("seen to be wrong in the end"), "{missing}");
    let end = report_end(&report);
    let until = |at: u64| plan.faults.iter().filter(|fault| micros(fault.at) <= at).count();
    let (earlier, all) = (until(at), until(end));
    assert!(earlier < all, "some faults come later");
    assert_eq!(shown.matches('✗').count(), earlier, "{shown}");
    assert!(shown.contains(&format!("{} later faults", all - earlier)), "{shown}");
    // As far as there is room: the first lines are left out.
    let left_out = missing.split_once(" earlier lines").map_or(0, |(before, _)| {
        before.rsplit(' ').next().expect("a number").parse().expect("a number")
    });
    let told = missing.matches('✗').count();
    assert!(told > earlier && told <= all && told + left_out >= all, "{missing}");
    assert!(!missing.contains("later faults"), "{missing}");
}

fn report_end(report: &Report) -> u64 {
    let last = report.trace.kept.events.last().expect("something happened");
    micros(report.simulated.max(last.moment.at))
}

#[test]
fn nothing_in_the_data_ends_the_script() {
    let (mut plan, report) = watched(5);
    plan.story = vec!["</script><!-- is no end".to_owned()];
    let page = page(&plan, World::Cores, None, &report);
    assert!(!page.contains("</script><!--"));
    assert!(!page.contains(PLACE));
    assert!(!page.contains("http://") && !page.contains("https://"), "it fetches nothing");
}

#[test]
fn witnesses_are_found_by_number_and_by_value() {
    let (_, report) = watched(3);
    let append = report.history.operations.iter().position(|operation| {
        matches!(&operation.call, Call::Append { .. })
            && matches!(operation.end, End::Appended { .. })
    });
    let append = append.expect("something is written");
    let Call::Append { values, .. } = &report.history.operations[append].call else { return };
    let of = |sentence: String| {
        let violation = Violation { property: "lost-write", place: String::new(), sentence };
        witnesses(&violation, &report.history)
    };
    assert_eq!(of("operation 3 was told 8".to_owned()), [3]);
    assert!(of(format!("{:x} is lost", values[0])).contains(&append));
    assert_eq!(of("operation 999999999 is not there".to_owned()), [] as [usize; 0]);
    let stood = report.history.operations.iter().enumerate().find_map(|(n, it)| match it.end {
        End::Appended { base: Some(base), .. } => Some((n, it.call.partition(), base)),
        _ => None,
    });
    let (n, partition, base) = stood.expect("something is acknowledged");
    let violation = Violation {
        property: "shadow-watermark",
        place: partition.to_string(),
        sentence: format!("n2 lacks what is committed, such as offsets {base} to {}", base + 1),
    };
    assert!(witnesses(&violation, &report.history).contains(&n));
}

#[test]
fn what_a_specification_refuses_comes_first() {
    let (plan, mut report) = watched(3);
    // A step without an event of its own, behind one of another node's.
    let events = &report.trace.kept.events;
    let is_own = |event: &Event| event.who == "n2" && event.text.contains(" t0-0 ");
    let own = (0..events.len() - 1).find(|n| is_own(&events[*n]) && events[n + 1].who == "n3");
    let own = events[own.expect("it is told of that partition")].moment.ordinal;
    let Moment { at, ordinal } = events[own as usize].moment;
    let moment = Moment { at: at + Duration::from_micros(1), ordinal };
    let aside = Aside::Blames { property: "refines-partition" };
    report.trace.kept.asides.push((moment, "n2", aside));
    let of = |property, sentence: &str| {
        let (place, sentence) = ("t0-0".to_owned(), sentence.to_owned());
        Violation { property, place, sentence }
    };
    report.verdict = Verdict::Safety;
    report.violations = vec![
        of("inconsistent-offsets", "operation 40 was told 7, although 9 was known before"),
        of("lost-write", "operation 41 is lost"),
        of("refines-partition", "n2 cuts its log back to 1, behind #80: what is held stays"),
    ];
    let story = story(&plan, World::Cores, None, &report);
    let named = |property: &str| story.find(&format!("\n{property} of t0-0: ")).expect("a line");
    assert!(named("refines-partition") < named("inconsistent-offsets"), "{story}");
    assert!(named("inconsistent-offsets") < named("lost-write"), "{story}");
    let told = format!("n2  ✘ makes the step that refines-partition refuses (#{own})");
    assert!(story.contains(&told), "{story}");
    assert!(story.contains("✘ inconsistent-offsets is seen to be wrong (#"), "{story}");
    // One timeline, of these two.
    let lines: Vec<&str> = story.lines().filter(|line| line.contains("s  ")).collect();
    let once: BTreeSet<&&str> = lines.iter().collect();
    assert_eq!((once.len(), lines.is_empty()), (lines.len(), false), "{story}");
    assert!(!story.contains("lost-write is seen"), "{story}");
    let picture = Draft::new(&plan, &report).picture(&plan, World::Cores, None, &report);
    let refused = &picture.wrong[0];
    assert_eq!((refused.lane, refused.event, refused.at), (1, own, micros(moment.at)));
    assert_eq!(picture.wrong[1].lane, -1);
}

/// A history that is made while somebody looks, in the place of a run's; one millisecond a step.
fn told(report: &mut Report, tell: impl FnOnce(&mut History, &mut dyn FnMut() -> Instant)) {
    let mut millis = 0;
    let mut next = || {
        millis += 1;
        Instant::ZERO + Duration::from_millis(millis)
    };
    let mut history = History::default();
    trace::begin(Sink::Events(Kept::default()));
    tell(&mut history, &mut next);
    report.trace = trace::end();
    report.history = history;
    report.simulated = next().as_duration();
    report.verdict = Verdict::Safety;
}

#[test]
fn a_transactions_story_has_the_marker_that_came_late() {
    let (plan, mut report) = watched(3);
    let place = Place { topic: Topic::Input, index: 0 };
    told(&mut report, |history, now| {
        let life = history.init_producer("x-0", 0, now());
        history.producer_begins(life, now(), "7@1");
        let other = history.init_producer("x-1", 1, now());
        history.producer_begins(other, now(), "8@0");
        let sent = |value| Sent { place, value, copy_of: None };
        let first = history.begin_transaction(life, now());
        history.send_in_transaction(first, now(), sent(0x10_0018_0000_0010));
        history.ask_to_commit(first, now());
        history.end_transaction(first, now(), Outcome::Committed);
        let unrelated = history.begin_transaction(other, now());
        let second = history.begin_transaction(life, now());
        history.send_in_transaction(second, now(), sent(0x10_0018_0000_0011));
        let late = |client, id: &str, begun| Incident {
            client,
            transactional_id: id.to_owned(),
            kind: IncidentKind::Late,
            begun,
            ended: None,
            what: format!("{id}: WriteTxnMarkers (commit)"),
            end: String::new(),
        };
        let one = history.begin_incident(late(0, "x-0", now()));
        history.end_incident(one, now(), "is answered".to_owned());
        history.begin_incident(late(1, "x-1", now()));
        history.stored_in_transaction(second, now(), (place, 0x10_0018_0000_0011), 2);
        history.end_transaction(second, now(), Outcome::Aborted);
        history.end_transaction(unrelated, now(), Outcome::Committed);
        let seen = Seen { offset: 2, value: Some(0x10_0018_0000_0011), timestamp: 0 };
        let (completed, records) = (now(), vec![seen]);
        history.view(View { client: 2, completed, place, from: 2, next: 3, records });
        let records = Stamp::Records { sequence: 0, count: 1 };
        let marker = Stamp::Marker { coordinator_epoch: 0, committed: Some(true) };
        let stamped = |offset, kind| Stamped { offset, producer: 7, epoch: 1, kind };
        let batches = vec![stamped(2, records), stamped(3, marker)];
        let last = Last { stored: vec![seen], committed: vec![seen], batches, group: None };
        history.transactions.last.insert(place, last);
    });
    report.violations = vec![Violation {
        property: "outcome-reversed",
        place: "x0-0".to_owned(),
        sentence: "transaction 2 of x-0 is not committed, and its 10001800000011 is seen at the \
                   end"
        .to_owned(),
    }];
    let story = story(&plan, World::Nodes, None, &report);
    let after = |text: &str| story.find(text).unwrap_or_else(|| panic!("{text:?}: {story}"));
    let order = [
        "x-0 transaction 0 is committed",
        "x-0 transaction 2 begins",
        "x-0: WriteTxnMarkers (commit)",
        "x-0 transaction 2 is not committed",
        "c2  ← #",
        "✘ outcome-reversed is seen to be wrong",
        "in x0-0 at the end:",
        "    2: 1 record of 7@1, sequence 0",
        "    3: commit marker of 7@1, coordinator epoch 0",
    ];
    let places: Vec<usize> = order.iter().map(|text| after(text)).collect();
    assert!(places.is_sorted(), "{story}");
    assert!(!story.contains("x-1"), "another id has nothing to do with it: {story}");
    let picture = Draft::new(&plan, &report).picture(&plan, World::Nodes, None, &report);
    assert!(picture.wrong[0].at < picture.end, "it is where it was first seen");
    let transaction = picture.operations.iter().filter(|it| it.call == 'x').nth(2).expect("three");
    assert!(transaction.text.contains("transaction 2, 1 records x0-0; never asks to commit"));
    assert!(transaction.event > 0 && transaction.more.len() == 3, "{transaction:?}");
}

#[test]
fn a_groups_story_has_the_commit_of_whoever_is_out() {
    let (plan, mut report) = watched(3);
    let partition = Partition { topic: 0, index: 0 };
    told(&mut report, |history, now| {
        let who = |client, member: &str, generation| Claim {
            group: 0,
            client,
            by_epoch: false,
            member: member.to_owned(),
            instance: None,
            generation,
        };
        let mut ask = |who, call, end| {
            let id = history.invoke_in_group(who, now(), call);
            history.complete_in_group(id, now(), end);
        };
        let has = |generation| GroupEnd::Assigned { generation, partitions: vec![partition] };
        ask(who(0, "m-old", 1), GroupCall::ASSIGN, has(1));
        ask(who(1, "m-new", 2), GroupCall::ASSIGN, has(2));
        ask(who(2, "m-else", 2), GroupCall::Heartbeat, GroupEnd::Done);
        let at = Committed { offset: 5, leader_epoch: 0, metadata: String::new() };
        let commit = GroupCall::Commit { offsets: vec![(partition, at)] };
        ask(who(0, "m-old", 1), commit, GroupEnd::Committed);
        ask(who(1, "m-new", 2), GroupCall::Heartbeat, GroupEnd::Done);
    });
    report.violations = vec![Violation {
        property: "group-stale-commit",
        place: "g0 t0-0".to_owned(),
        sentence: "g0 \"m-old\"@1 commits 5/e0 \"\", but at 4 ms m-new was told its part of \
                   generation 2"
            .to_owned(),
    }];
    let story = story(&plan, World::Nodes, None, &report);
    assert!(story.contains("\"m-new\"@2 asks for its part"), "{story}");
    assert!(story.contains("g0 \"m-old\"@1 commits t0-0=5/e0"), "{story}");
    assert!(!story.contains("m-else"), "{story}");
    assert!(story.contains("0.008000s      ✘ group-stale-commit is seen to be wrong"), "{story}");
}

#[test]
fn a_committers_story_has_what_it_had_done() {
    use crate::history::offsets::{Event, Fate};
    let (plan, mut report) = watched(3);
    let committing = plan.committing().start;
    told(&mut report, |history, now| {
        let mut tell = |client: u32, event| history.tell_of_offsets(client, (now(), now()), event);
        let commit =
            |number| Event::Commit { partition: 0, number, by_name: true, fate: Fate::Accepted };
        let (it, other) = (committing, committing + 1);
        tell(it, commit(1));
        tell(other, commit(2));
        tell(it, Event::Read { partition: 0, found: None });
        tell(it, commit(3));
    });
    report.violations = vec![Violation {
        property: "offset-kept",
        place: "o0".to_owned(),
        sentence: "at 6 ms no offset is read in 0; 1 was accepted".to_owned(),
    }];
    let story = story(&plan, World::Nodes, None, &report);
    let places =
        ["commits 1 in 0", "reads no offset in 0", "✘ offset-kept is seen to be wrong (#3)"]
            .map(|text| story.find(text).unwrap_or_else(|| panic!("{text:?}: {story}")));
    assert!(places.is_sorted(), "{story}");
    assert!(!story.contains("commits 2") && !story.contains("commits 3"), "{story}");
}
