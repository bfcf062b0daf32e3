//! Prometheus's alert rules over what a node tells at `/metrics`.

use std::fmt::Write as _;
use std::time::Duration;

/// What is too long.
pub(super) struct Bounds {
    pub(super) stalled_after: Duration,
    pub(super) behind: Duration,
    pub(super) patience: Duration,
    pub(super) job: String,
}

struct Rule<'a> {
    name: &'a str,
    expression: String,
    lasts: Duration,
    severity: &'a str,
    summary: &'a str,
    description: &'a str,
}

/// As Prometheus writes times.
fn time(time: Duration) -> String {
    format!("{}ms", time.as_millis().max(1))
}

/// A file of rules, in YAML.
pub(super) fn rules(bounds: &Bounds) -> String {
    let mut out = String::from(
        "# Alert rules of Quorate for Prometheus, by `quorate generate alerts`. Every node is\n\
         # scraped at http://NODE:9644/metrics (http.listen); each series comes from one of them.\n\
         groups:\n",
    );
    let groups = [("quorate-groups", of_groups(bounds)), ("quorate-cluster", of_cluster(bounds))];
    for (group, rules) in groups {
        let _ = writeln!(out, "  - name: {group}\n    rules:");
        for rule in rules {
            let expression = rule.expression.replace('\n', "\n          ");
            let _ = writeln!(out, "      - alert: {}", rule.name);
            let _ = writeln!(out, "        expr: |-\n          {expression}");
            if rule.lasts > Duration::ZERO {
                let _ = writeln!(out, "        for: {}", time(rule.lasts));
            }
            let _ = writeln!(out, "        labels:\n          severity: {}", rule.severity);
            let _ = writeln!(out, "        annotations:\n          summary: '{}'", rule.summary);
            let _ = writeln!(out, "          description: '{}'", rule.description);
        }
    }
    out
}

fn of_groups(bounds: &Bounds) -> Vec<Rule<'static>> {
    let window = time(bounds.stalled_after);
    let (stalled, behind) = (bounds.stalled_after.as_secs_f64(), bounds.behind.as_secs_f64());
    vec![
        Rule {
            name: "QuorateConsumerGroupStalled",
            // A group that was measured for less than the window has not had it to get on in.
            expression: format!(
                "quorate_consumergroup_lag_seconds > {stalled}\n\
                 and changes(kafka_consumergroup_current_offset[{window}]) == 0\n\
                 and kafka_consumergroup_current_offset offset {window}"
            ),
            lasts: Duration::ZERO,
            severity: "critical",
            summary: "Group {{ $labels.consumergroup }} does not get on in {{ $labels.topic }}",
            description: "Its offset of partition {{ $labels.partition }} has not moved, and the \
                          first record that it has not consumed is {{ $value | humanizeDuration }} \
                          old. `quorate group describe {{ $labels.consumergroup }}` says why.",
        },
        Rule {
            name: "QuorateConsumerGroupBehind",
            expression: format!(
                "max by (consumergroup, topic) (quorate_consumergroup_lag_seconds) > {behind}"
            ),
            lasts: bounds.patience,
            severity: "warning",
            summary: "Group {{ $labels.consumergroup }} is far behind in {{ $labels.topic }}",
            description: "The first record that it has not consumed is \
                          {{ $value | humanizeDuration }} old.",
        },
        Rule {
            name: "QuorateConsumerGroupFallsBehind",
            expression: "sum by (consumergroup) \
                         (quorate_consumergroup_partitions{progress!=\"OK\"}) > 0"
                .to_owned(),
            lasts: bounds.behind,
            severity: "warning",
            summary: "Group {{ $labels.consumergroup }} does not keep up",
            description: "In {{ $value }} partitions its lag never falls, or it has stopped. \
                          `quorate group describe {{ $labels.consumergroup }}` says why.",
        },
    ]
}

fn of_cluster(bounds: &Bounds) -> Vec<Rule<'static>> {
    let job = bounds.job.replace(['\\', '"', '\n', '\''], "");
    let rule = |name, expression: &str, severity, summary, description| Rule {
        name,
        expression: expression.to_owned(),
        lasts: bounds.patience,
        severity,
        summary,
        description,
    };
    vec![
        rule(
            "QuorateNodeDown",
            &format!("up{{job=\"{job}\"}} == 0"),
            "critical",
            "Node {{ $labels.instance }} does not answer",
            "`quorate cluster status` says what is missing without it.",
        ),
        rule(
            "QuorateOfflinePartitions",
            "sum(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
            "critical",
            "{{ $value }} partitions have no leader",
            "They can be neither read nor written. `quorate cluster health` names them.",
        ),
        rule(
            "QuorateNoController",
            "sum(kafka_controller_kafkacontroller_activecontrollercount) < 1",
            "critical",
            "The cluster has no controller",
            "No leader is elected and no topic changed. `quorate cluster quorum` says who votes.",
        ),
        rule(
            "QuorateTooFewInSync",
            "sum(kafka_server_replicamanager_underminisrpartitioncount) > 0",
            "critical",
            "{{ $value }} partitions refuse producers with acks=all",
            "Fewer copies are in sync than min.insync.replicas: see `quorate cluster health`.",
        ),
        rule(
            "QuorateUnderReplicated",
            "sum(kafka_server_replicamanager_underreplicatedpartitions) > 0",
            "warning",
            "{{ $value }} partitions have fewer copies in sync than they are to have",
            "`quorate cluster status` says what is being repaired.",
        ),
        rule(
            "QuorateDiskNearlyFull",
            "quorate_storage_short == 1",
            "critical",
            "Node {{ $labels.instance }} refuses producers for want of room",
            "Delete records or topics, shorten their retention, or give it a larger disk.",
        ),
        rule(
            "QuorateRot",
            "quorate_logs_offline > 0 or increase(quorate_rot_found_total[1h]) > 0",
            "critical",
            "The disk of {{ $labels.instance }} does not give back what was written",
            "The node says in its log which file and which byte.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alert_stands_there_once_with_its_bounds() {
        let bounds = Bounds {
            stalled_after: Duration::from_secs(7),
            behind: Duration::from_secs(600),
            patience: Duration::from_millis(1500),
            job: "q\"}'".to_owned(),
        };
        let text = rules(&bounds);
        for name in ["Stalled", "Behind", "FallsBehind"] {
            assert_eq!(text.matches(&format!("alert: QuorateConsumerGroup{name}\n")).count(), 1);
        }
        assert!(text.contains("lag_seconds > 7\n          and changes("), "{text}");
        assert!(text.contains("for: 1500ms") && text.contains("[7000ms]"), "{text}");
        assert!(text.contains("up{job=\"q}\"} == 0"), "{text}");
    }
}
