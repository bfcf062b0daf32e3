//! What the page knows of a run is what happened in it.

use super::*;
use crate::plan::draw::draw_cluster;
use crate::run::{Options, run};
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
    assert_eq!(picture.operations.len(), report.history.operations.len());
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
        report.verdict = crate::run::Verdict::Safety;
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
}
