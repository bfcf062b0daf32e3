//! An operator's evening: a consumer stops getting on, Prometheus, which scrapes the node and reads
//! our rules, says so, and takes it back once the consumer goes on. All of them are processes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::process::{Recipe, free_address};
use crate::stopwatch::{Stopwatch, retry};

/// A group without progress for so long is stalled.
const STALLED_AFTER: Duration = Duration::from_secs(5);
/// What is expected comes within this time.
const WITHIN: Duration = Duration::from_secs(60);
const ALERT: &str = "QuorateConsumerGroupStalled";

/// Killed when dropped, with all that it has started.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(command: &mut Command) -> io::Result<Self> {
        let what = format!("{command:?}");
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        child.map(Self).map_err(|error| io::Error::other(format!("{what}: {error}")))
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(io::Error::other(format!("kill {name} failed"))) }
    }
}

/// The parts of the scene.
struct Scene {
    quorate: PathBuf,
    bootstrap: String,
    folder: PathBuf,
    prometheus: SocketAddr,
}

/// Plays it.
///
/// # Errors
///
/// What did not come as it should, in a sentence.
pub fn run(recipe: &Recipe, folder: &Path, say: fn(&str)) -> io::Result<String> {
    let http = free_address()?;
    let mut recipe = recipe.clone();
    recipe.settings.extend([format!("http.listen={http}"), "http.lag_interval=250ms".to_owned()]);
    let broker = recipe.start(WITHIN)?;
    let scene = Scene {
        quorate: recipe.root.join("target/release/quorate"),
        bootstrap: recipe.address.to_string(),
        folder: folder.to_owned(),
        prometheus: free_address()?,
    };
    scene.check_what_is_generated(http)?;
    say("promtool accepts the rules, the configuration and the metrics");
    let _prometheus = scene.start_prometheus()?;
    scene.quorate(&["topic", "create", "orders"])?;
    let producer = scene.produce()?;
    let consumer = scene.consume()?;
    wait_for("the group's lag in Prometheus", || {
        scene.holds("quorate_consumergroup_lag_seconds >= 0")
    })?;
    // Longer than the rule looks back: somebody who gets on is not told to be stalled.
    let calm = Stopwatch::start();
    while calm.elapsed() < STALLED_AFTER * 2 {
        if scene.fires()? {
            return Err(io::Error::other("the alert fires although the consumer gets on"));
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    say("the consumer gets on, and nothing fires");
    consumer.signal("-STOP")?;
    let watch = Stopwatch::start();
    wait_for("the alert of a stalled consumer", || scene.fires())?;
    let fired = watch.elapsed();
    say(&format!("the consumer was stopped, and the alert fires after {fired:?}"));
    consumer.signal("-CONT")?;
    let watch = Stopwatch::start();
    wait_for("the end of the alert", || scene.fires().map(|fires| !fires))?;
    let cleared = watch.elapsed();
    drop((consumer, producer));
    broker.terminate(WITHIN)?;
    Ok(format!(
        "{ALERT}: fires {fired:.1?} after a consumer stalls, ends {cleared:.1?} after it goes on"
    ))
}

fn wait_for(what: &str, mut holds: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut failure = None;
    let came = retry(WITHIN, || match holds() {
        Ok(true) => Some(()),
        Ok(false) => None,
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let last = failure.map(|error| format!("; at last: {error}")).unwrap_or_default();
    came.ok_or_else(|| io::Error::other(format!("{what} did not come within {WITHIN:?}{last}")))
}

impl Scene {
    fn quorate(&self, arguments: &[&str]) -> io::Result<String> {
        let mut command = Command::new(&self.quorate);
        ended_well(command.args(arguments).args(["--bootstrap", &self.bootstrap]), "")
    }

    /// Rules, configuration and metrics, as promtool sees them.
    fn check_what_is_generated(&self, http: SocketAddr) -> io::Result<()> {
        let seconds = format!("{}s", STALLED_AFTER.as_secs());
        let rules = self.quorate(&["generate", "alerts", "--stalled-after", &seconds])?;
        fs::write(self.folder.join("rules.yml"), rules)?;
        fs::write(self.folder.join("default.yml"), self.quorate(&["generate", "alerts"])?)?;
        let configuration = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [rules.yml]\nscrape_configs:\n  - job_name: quorate\n    \
             static_configs: [{{ targets: ['{http}'] }}]\n"
        );
        fs::write(self.folder.join("prometheus.yml"), configuration)?;
        let promtool = |arguments: &[&str], input: &str| {
            ended_well(Command::new("promtool").args(arguments).current_dir(&self.folder), input)
        };
        promtool(&["check", "rules", "rules.yml", "default.yml"], "")?;
        promtool(&["check", "config", "prometheus.yml"], "")?;
        promtool(&["check", "metrics"], &get(http, "/metrics")?)?;
        let dashboard: Value = serde_json::from_str(&self.quorate(&["generate", "dashboard"])?)?;
        self.check_dashboard(&dashboard)
    }

    /// Each of the dashboard's questions is one, as a rule that records it would be.
    fn check_dashboard(&self, dashboard: &Value) -> io::Result<()> {
        let panels = dashboard["panels"].as_array().into_iter().flatten();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let asked = targets.filter_map(|target| target["expr"].as_str());
        let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
        let mut count = 0;
        for expression in asked {
            count += 1;
            let expression = expression.replace("$__rate_interval", "1m").replace("$group", ".*");
            rules += &format!(
                "      - record: dashboard:{count}\n        expr: |-\n          {expression}\n"
            );
        }
        if count < 10 {
            return Err(io::Error::other(format!("the dashboard asks {count} questions only")));
        }
        let rules = rules.replace("dashboard:", "dashboard:panel_");
        fs::write(self.folder.join("dashboard.yml"), rules)?;
        let mut promtool = Command::new("promtool");
        let promtool = promtool.args(["check", "rules", "dashboard.yml"]).current_dir(&self.folder);
        ended_well(promtool, "").map(|_| ())
    }

    fn start_prometheus(&self) -> io::Result<Process> {
        let log = File::create(self.folder.join("prometheus.log"))?;
        let mut command = Command::new("prometheus");
        command
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=prometheus-data"])
            .arg(format!("--web.listen-address={}", self.prometheus))
            .current_dir(&self.folder)
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::start(&mut command)?;
        wait_for("Prometheus", || get(self.prometheus, "/-/ready").map(|_| true))?;
        Ok(process)
    }

    /// Ten records a second, for longer than anything here takes.
    fn produce(&self) -> io::Result<Process> {
        let script = format!(
            "for i in $(seq 1 6000); do echo record $i; sleep 0.1; done | \
             '{}' produce orders -b {}",
            self.quorate.display(),
            self.bootstrap
        );
        Process::start(Command::new("sh").args(["-c", &script]).stdout(Stdio::null()))
    }

    fn consume(&self) -> io::Result<Process> {
        let mut command = Command::new(&self.quorate);
        let arguments = ["consume", "orders", "--group", "billing", "--commit", "auto=500ms"];
        command.args(arguments).args(["--bootstrap", &self.bootstrap]).stdout(Stdio::null());
        Process::start(&mut command)
    }

    /// Whether a question to Prometheus has an answer.
    fn holds(&self, expression: &str) -> io::Result<bool> {
        let escaped = expression.replace(' ', "%20").replace('>', "%3E").replace('=', "%3D");
        let told = get(self.prometheus, &format!("/api/v1/query?query={escaped}"))?;
        let told: Value = serde_json::from_str(&told)?;
        Ok(told["data"]["result"].as_array().is_some_and(|rows| !rows.is_empty()))
    }

    fn fires(&self) -> io::Result<bool> {
        let told: Value = serde_json::from_str(&get(self.prometheus, "/api/v1/alerts")?)?;
        let alerts =
            told["data"]["alerts"].as_array().ok_or_else(|| io::Error::other("no list"))?;
        let ours = |alert: &&Value| {
            alert["labels"]["alertname"] == ALERT && alert["labels"]["consumergroup"] == "billing"
        };
        Ok(alerts.iter().filter(ours).any(|alert| alert["state"] == "firing"))
    }
}

/// Standard output of a command that must succeed.
fn ended_well(command: &mut Command, input: &str) -> io::Result<String> {
    let what = format!("{command:?}");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|error| io::Error::other(format!("{what}: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let done = child.wait_with_output()?;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if done.status.success() {
        return Ok(out.into_owned());
    }
    Err(io::Error::other(format!("{what} failed:\n{out}{err}")))
}

/// The body of an answer with status 200.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // Version 1.0: the answer comes whole, and the connection ends with it.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    Err(io::Error::other(format!("{path} answered {}", head.lines().next().unwrap_or("nothing"))))
}
