//! A history as lines of JSON, an operation a line, for whoever wants to check it with other tools.

use serde_json::{Value as Json, json};

use super::{Call, End, History, Operation};

impl History {
    /// Times are microseconds of the simulated clock; what has not ended has no `end_us`. Values
    /// are numbers in base 16, as the trace has them.
    pub fn json_lines(&self) -> String {
        let mut text = String::new();
        for (place, operation) in self.operations.iter().enumerate() {
            let is_last_phase = self.last_phase.is_some_and(|first| place >= first);
            text.push_str(&line(place, operation, is_last_phase).to_string());
            text.push('\n');
        }
        text
    }
}

fn line(place: usize, operation: &Operation, is_last_phase: bool) -> Json {
    let micros = |at: quorate_core::time::Instant| at.as_duration().as_micros() as u64;
    let mut line = json!({
        "operation": place,
        "client": operation.client,
        "begin_us": micros(operation.invoked),
        "partition": operation.call.partition().to_string(),
    });
    if let Some(completed) = operation.completed {
        line["end_us"] = micros(completed).into();
    }
    if is_last_phase {
        line["last_phase"] = true.into();
    }
    match &operation.call {
        Call::Append { values, acks, producer, attempts, .. } => {
            line["call"] = "append".into();
            line["values"] = values.iter().map(|value| format!("{value:x}")).collect();
            line["acks"] = acks.word().into();
            line["attempts"] = (*attempts).into();
            if let Some(producer) = producer {
                line["producer"] = json!([producer.id, producer.epoch, producer.sequence]);
            }
        }
        Call::Read { from, .. } => {
            line["call"] = "read".into();
            line["from"] = (*from).into();
        }
        Call::Latest { .. } => line["call"] = "latest".into(),
        Call::Delete { before, .. } => {
            line["call"] = "delete".into();
            line["before"] = (*before).into();
        }
    }
    end(&operation.end, &mut line);
    line
}

fn end(end: &End, line: &mut Json) {
    let name = match end {
        End::Unknown => "unknown",
        End::Failed => "failed",
        End::Appended { .. } | End::Read { .. } | End::Deleted { .. } | End::Ends { .. } => "ok",
    };
    line["end"] = name.into();
    match end {
        End::Unknown | End::Failed => {}
        End::Appended { base, .. } => line["base"] = (*base).into(),
        End::Read { records, high_watermark, log_start } => {
            let records = records
                .iter()
                .map(|seen| json!([seen.offset, seen.value.map(|value| format!("{value:x}"))]));
            line["records"] = records.collect();
            line["high_watermark"] = (*high_watermark).into();
            line["log_start"] = (*log_start).into();
        }
        End::Deleted { log_start } => line["log_start"] = (*log_start).into(),
        End::Ends { at, leader_epoch } => {
            line["at"] = (*at).into();
            line["leader_epoch"] = (*leader_epoch).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::time::Instant;

    use super::*;
    use crate::history::{Partition, Seen};

    #[test]
    fn each_operation_is_a_line() {
        let mut history = History::default();
        let partition = Partition { topic: 0, index: 1 };
        let now = Instant::default();
        let read = history.invoke(3, now, Call::Read { partition, from: 5 });
        history.begin_last_phase();
        history.invoke(4, now, Call::Latest { partition });
        let records = vec![Seen { offset: 5, value: Some(0x1f), timestamp: 0 }];
        history.complete(read, now, End::Read { records, high_watermark: 6, log_start: 0 });
        let text = history.json_lines();
        let lines: Vec<Json> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["records"], json!([[5, "1f"]]));
        assert_eq!((&lines[0]["partition"], &lines[0]["end_us"]), (&json!("t0-1"), &json!(0)));
        assert_eq!((&lines[1]["end"], &lines[1]["last_phase"]), (&json!("unknown"), &json!(true)));
    }
}
