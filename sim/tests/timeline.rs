//! The page of a run, in a browser: it shows a failure, its witnesses and the trace, by mouse and
//! by keys, in both lights, and 100,000 events scroll and zoom at 30 frames a second. Where there
//! is no Chromium it says so and checks nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use quorate_sim::check::Violation;
use quorate_sim::plan::draw::draw_cluster;
use quorate_sim::run::{Options, Report, Verdict, World, run};
use quorate_sim::timeline::page;
use quorate_sim::trace::{Aside, Kept, Sink};

const EVENTS: usize = 100_000;

/// What is done on the page while it is loaded; what comes of it stands in the page then.
const ACTS: &str = include_str!("timeline/acts.html");

/// A run with so many events, and something wrong with it.
fn subject() -> String {
    let plan = draw_cluster(3, 3);
    let sink = Sink::Events(Kept::default());
    let mut report: Report = run(&plan, World::Cores, Options { sink, ..Options::default() });
    let kept = &mut report.trace.kept.events;
    while kept.len() < EVENTS {
        let mut event = kept[kept.len() % 4000].clone();
        event.moment = kept.last().expect("there are some").moment;
        event.moment.ordinal += 1;
        kept.push(event);
    }
    let refused_at = kept[49].moment;
    let blames = Aside::Blames { property: "refines-partition" };
    report.trace.kept.asides.push((refused_at, "n2", blames));
    report.verdict = Verdict::Safety;
    let sentence = "operation 40 was told 7, although 9 was known before".to_owned();
    let (property, place) = ("high-watermark", "t0-0".to_owned());
    let refused = Violation {
        property: "refines-partition",
        place: place.clone(),
        sentence: "n2 cuts its log back to 1, behind #50: what is held stays".to_owned(),
    };
    report.violations = vec![Violation { property, place, sentence }, refused];
    page(&plan, World::Cores, None, &report)
}

fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// What a browser makes of the page.
fn opened(browser: &str, page: &str) -> String {
    let folder = std::env::temp_dir().join(format!("quorate-timeline-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for what passes");
    let file: PathBuf = folder.join("run.html");
    fs::write(&file, page).expect("writes");
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000", &profile])
        .args(["--timeout=120000", "--dump-dom", &format!("file://{}", file.display())])
        .output()
        .expect("it was there a moment ago");
    let _ = fs::remove_dir_all(&folder);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[allow(clippy::print_stderr)]
fn the_page_works_in_a_browser() {
    let Some(browser) = chromium() else {
        eprintln!("no Chromium is installed: the page is not tested (apt-get install chromium)");
        return;
    };
    let acting = subject().replace("</body>", ACTS);
    let shown = opened(browser, &acting);
    let acted =
        shown.split("<pre id=\"acted\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let acted = acted.expect("the page was opened");
    assert!(acted.ends_with("the end") && !acted.contains("WRONG"), "{acted}");
}
