//! A run as a page to look at, for the commands that run plans.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::Path;

use super::HARNESS_BROKE;
use crate::plan::Plan;
use crate::run::{self, Options, Report, World};
use crate::spec::Wanted;
use crate::timeline;
use crate::trace::{Kept, Sink};

/// Runs the plan once more, and writes the page; an exit code.
pub(super) fn write(plan: &Plan, world: World, mutant: Option<&str>, page: &Path) -> u8 {
    let report = watch(plan, world, mutant);
    match fs::write(page, timeline::page(plan, world, mutant, &report)) {
        Ok(()) => {
            println!("  {}", page.display());
            0
        }
        Err(error) => {
            println!("{}: {error}", page.display());
            HARNESS_BROKE
        }
    }
}

/// Runs a plan while somebody looks, and holds each step against the specification: what it refuses
/// is nearest to the cause.
pub(super) fn watch(plan: &Plan, world: World, mutant: Option<&str>) -> Report {
    let (mutant, sink) = (mutant.map(str::to_owned), Sink::Events(Kept::default()));
    run::run(plan, world, Options { mutant, sink, spec: Wanted::REFINE, ..Options::default() })
}
