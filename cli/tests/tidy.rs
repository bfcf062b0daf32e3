//! The house rules, as tests over the whole repository. CONTRIBUTING.md says why each rule is
//! there; the tables below say where an exception stands. It leaves types and lints to clippy.

#[path = "tidy/map.rs"]
mod map;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use std::path::{Path, PathBuf};

use source::Source;

/// What was found, where, in words that say what to do.
pub(crate) type Complaints = Vec<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli lies in the repository").into()
}

fn assert_none(complaints: Complaints) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

/// Runs one rule over every Rust file.
fn everywhere(rule: fn(&Source) -> Complaints) {
    let sources = source::all(&root());
    assert!(sources.len() > 10, "the walk found only {} files", sources.len());
    assert_none(sources.iter().flat_map(rule).collect());
}

macro_rules! rules {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            everywhere(rules::$name);
        })*
    };
}

rules! {
    file_lengths
    line_lengths
    function_lengths
    file_names
    first_lines
    unfinished_work
    biased_select
    simulator_cfg
    simulator_names
    time_only_from_the_clock
    files_only_in_their_places
    sockets_only_in_their_place
    pure_core
    simulable_async
    no_unsafe
    lints_stay_on
}

#[test]
fn the_map_names_what_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    assert_none(map::complaints(&text, &source::all(&root())));
}

#[test]
fn arrows_between_crates() {
    assert_none(repository::arrows(&root()));
}

#[test]
fn scripts_and_plans_tell_their_story() {
    assert_none(repository::stories(&root()));
}

#[test]
fn decision_records_are_whole() {
    assert_none(repository::decisions(&root()));
}
