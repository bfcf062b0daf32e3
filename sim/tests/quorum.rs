//! Lives in the world of quorums: in any build, with all their checks. `cargo sim zoo` shows that
//! planted bugs are noticed there.

use quorate_sim::plan::Plan;
use quorate_sim::plan::draw::draw_quorum;
use quorate_sim::run::{self, Options, Report, Verdict, World};

fn live(plan: &Plan) -> Report {
    run::run(plan, World::Quorum, Options::default())
}

#[test]
fn a_quorum_keeps_its_promises() {
    let lives = if cfg!(debug_assertions) { 60 } else { 1000 };
    let (mut cuts, mut usurped, mut steps) = (0, 0, 0);
    for seed in 0..lives {
        let report = live(&draw_quorum(seed, 0));
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:?}", report.sentences());
        let count = |what: &str| report.faults.get(what).copied().unwrap_or(0);
        cuts += count("cut");
        usurped += count("usurp");
        steps += report.steps;
    }
    assert!(cuts > lives && usurped > lives, "{cuts} cuts, {usurped} usurpers");
    assert!(steps > lives * 3000, "{steps} steps");
}

#[test]
fn a_seed_gives_the_same_life_and_so_does_its_text() {
    let plan = draw_quorum(7, 0);
    let text = plan.print();
    assert_eq!(text.lines().count(), 3, "{text}");
    let again = Plan::parse(&text).expect("what was printed is understood");
    assert_eq!(again, plan);
    assert_eq!(live(&again).trace.hash, live(&plan).trace.hash);
    let mut nobody = plan;
    nobody.quorum.as_mut().expect("it has one").voters = 0;
    assert!(Plan::parse(&nobody.print()).is_err(), "nobody votes");
}
