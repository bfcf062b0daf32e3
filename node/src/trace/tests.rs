//! Lines as a reader gets them, and filters as a reader writes them.

use std::sync::{Arc, Mutex};

use tracing::subscriber::with_default;
use tracing::{debug, error_span, info, warn};
use tracing_subscriber::fmt::MakeWriter;

use super::{Form, Stamp, subscriber, whole_names};

struct Noon;

impl Stamp for Noon {
    fn text(&self) -> String {
        "12:00".to_owned()
    }

    fn json(&self) -> serde_json::Value {
        12.into()
    }
}

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Kept {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is printed of what is told.
fn printed(filter: &str, form: Form, told: impl FnOnce()) -> String {
    let kept = Kept::default();
    with_default(subscriber(filter, form, Noon, kept.clone()).unwrap(), told);
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

const TEXT: Form = Form::Text { color: false };

fn tell() {
    let who = error_span!("node", id = 1, name = "n1");
    who.in_scope(|| {
        warn!(topic = "orders", index = 3, error = %"no room", "not stored");
        error_span!("task", name = "inner").in_scope(|| info!(?TEXT, empty = ""));
    });
    debug!(target: "quorate_net::client", "trying again");
}

#[test]
fn a_line_says_when_who_how_bad_where_and_what() {
    assert_eq!(
        printed("debug", TEXT, tell),
        "12:00 n1  WARN  node::trace::tests: not stored topic=orders index=3 error=no room\n\
         12:00 n1  INFO  node::trace::tests: TEXT=Text { color: false } empty=\"\"\n\
         12:00 DEBUG net::client: trying again\n"
    );
}

#[test]
fn an_object_says_the_same() {
    assert_eq!(
        printed("debug", Form::Json, tell),
        "{\"time\":12,\"node\":\"n1\",\"level\":\"WARN\",\"target\":\"node::trace::tests\",\
         \"message\":\"not stored\",\
         \"fields\":{\"topic\":\"orders\",\"index\":3,\"error\":\"no room\"}}\n\
         {\"time\":12,\"node\":\"n1\",\"level\":\"INFO\",\"target\":\"node::trace::tests\",\
         \"message\":\"\",\"fields\":{\"TEXT\":\"Text { color: false }\",\"empty\":\"\"}}\n\
         {\"time\":12,\"level\":\"DEBUG\",\"target\":\"net::client\",\
         \"message\":\"trying again\"}\n"
    );
}

#[test]
fn what_comes_from_outside_cannot_end_a_line() {
    let told = || info!(topic = "a\n12:00 ERROR node: b\x1b[2J", "{}", "one\r\ntwo");
    let text = printed("info", TEXT, told);
    assert_eq!(
        text,
        "12:00 INFO  node::trace::tests: one\\r\\ntwo \
         topic=a\\n12:00 ERROR node: b\\u{1b}[2J\n"
    );
    let object = printed("info", Form::Json, told);
    assert_eq!(object.lines().count(), 1);
}

#[test]
fn filters_name_modules_as_they_are_printed() {
    let text = printed("node::trace=info,net=off", TEXT, tell);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(printed("net=debug", TEXT, tell), "12:00 DEBUG net::client: trying again\n");
    let command = || info!(target: "quorate::command::up", "ready");
    assert_eq!(printed("cli=info", TEXT, command), "12:00 INFO  cli::command::up: ready\n");
    assert_eq!(
        whole_names("warn, core=debug,cli::trace=info,nodes=error"),
        "warn,quorate_core=debug,quorate::trace=info,nodes=error"
    );
    let spans = "node[a{b=1,net=2}]=info";
    assert_eq!(whole_names(spans), spans);
    assert!(subscriber("node=loud", TEXT, Noon, std::io::sink).is_err());
}
