//! The text of a plan: parsing what was printed gives the plan back.

use proptest::prelude::*;
use quorate_sim::plan::{Plan, draw::draw};

proptest! {
    #[test]
    fn parse_of_print_is_the_identity(seed: u64, hash: Option<u64>, story in "[ -~]{0,40}") {
        let mut plan = draw(seed);
        plan.trace = hash;
        plan.story = vec![story.trim_end().to_owned(), String::new()];
        let text = plan.print();
        let again = Plan::parse(&text).expect("what was printed is understood");
        prop_assert_eq!(&again, &plan);
        prop_assert_eq!(again.print(), text);
    }

    #[test]
    fn any_text_is_refused_or_understood(text in "(quorate-plan 1\n)?([a-z=0-9. -]{0,30}\n){0,8}") {
        let _ = Plan::parse(&text);
    }
}

#[test]
fn an_error_names_its_line() {
    let text = draw(1).print().replace("disk read", "disk bread");
    let error = Plan::parse(&text).expect_err("bread= is not known");
    assert!(error.0.starts_with("line 6: "), "{error}");
}
