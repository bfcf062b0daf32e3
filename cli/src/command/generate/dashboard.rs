//! Grafana's dashboard over what the nodes tell at `/metrics`.

use serde_json::{Value, json};

/// A panel: its title, its unit, and what it shows, with how a line is called.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const GROUPS: &[Panel] = &[
    (
        "Lag in time",
        "s",
        &[(
            "max by (consumergroup, topic) \
             (quorate_consumergroup_lag_seconds{consumergroup=~\"$group\"})",
            "{{consumergroup}} {{topic}}",
        )],
    ),
    (
        "Lag in records",
        "short",
        &[(
            "kafka_consumergroup_lag_sum{consumergroup=~\"$group\"}",
            "{{consumergroup}} {{topic}}",
        )],
    ),
    (
        "Lag in bytes",
        "bytes",
        &[(
            "sum by (consumergroup, topic) \
             (quorate_consumergroup_lag_bytes{consumergroup=~\"$group\"})",
            "{{consumergroup}} {{topic}}",
        )],
    ),
    (
        "Records consumed a second",
        "short",
        &[(
            "clamp_min(sum by (consumergroup, topic) \
             (deriv(kafka_consumergroup_current_offset{consumergroup=~\"$group\"}\
             [$__rate_interval])), 0)",
            "{{consumergroup}} {{topic}}",
        )],
    ),
    (
        "Partitions in which a group does not keep up",
        "short",
        &[(
            "sum by (consumergroup, progress) \
             (quorate_consumergroup_partitions{consumergroup=~\"$group\",progress!=\"OK\"})",
            "{{consumergroup}} {{progress}}",
        )],
    ),
    (
        "Members",
        "short",
        &[("kafka_consumergroup_members{consumergroup=~\"$group\"}", "{{consumergroup}}")],
    ),
];

const CLUSTER: &[Panel] = &[
    (
        "Nodes",
        "short",
        &[
            ("max(kafka_brokers)", "there"),
            ("sum(kafka_controller_kafkacontroller_activecontrollercount)", "controllers"),
        ],
    ),
    (
        "Partitions that are not as they are to be",
        "short",
        &[
            ("sum(kafka_controller_kafkacontroller_offlinepartitionscount)", "without a leader"),
            ("sum(kafka_server_replicamanager_underminisrpartitioncount)", "too few in sync"),
            ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated"),
            ("sum(quorate_logs_offline)", "rotten copies"),
        ],
    ),
    (
        "Records written a second",
        "short",
        &[(
            "clamp_min(sum by (topic) \
             (deriv(kafka_topic_partition_current_offset{topic!~\"__.*\"}[$__rate_interval])), 0)",
            "{{topic}}",
        )],
    ),
    (
        "Bytes a second",
        "Bps",
        &[
            ("sum(rate(quorate_received_bytes_total[$__rate_interval]))", "from clients"),
            ("sum(rate(quorate_sent_bytes_total[$__rate_interval]))", "to clients"),
        ],
    ),
    (
        "Requests a second",
        "reqps",
        &[("rate(quorate_requests_total[$__rate_interval])", "{{instance}}")],
    ),
    ("Connections", "short", &[("quorate_connections", "{{instance}}")]),
    (
        "Bytes of topics, each copy once",
        "bytes",
        &[("sum by (topic) (quorate_partition_bytes)", "{{topic}}")],
    ),
];

const WIDTH: usize = 12;
const HEIGHT: usize = 8;

fn row(title: &str, y: usize) -> Value {
    json!({
        "type": "row", "title": title, "collapsed": false, "panels": [],
        "gridPos": { "h": 1, "w": 2 * WIDTH, "x": 0, "y": y },
    })
}

fn panel(&(title, unit, lines): &Panel, x: usize, y: usize) -> Value {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let targets = lines.iter().zip('A'..).map(|(&(expression, name), id)| {
        json!({
            "refId": id.to_string(), "datasource": source, "expr": expression,
            "legendFormat": name,
        })
    });
    json!({
        "type": "timeseries", "title": title, "datasource": source,
        "gridPos": { "h": HEIGHT, "w": WIDTH, "x": x, "y": y },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "targets": targets.collect::<Vec<_>>(),
    })
}

pub(super) fn dashboard() -> Value {
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, of) in [("Consumer groups", GROUPS), ("Cluster", CLUSTER)] {
        panels.push(row(title, y));
        y += 1;
        for (at, shown) in of.iter().enumerate() {
            panels.push(panel(shown, at % 2 * WIDTH, y + at / 2 * HEIGHT));
        }
        y += of.len().div_ceil(2) * HEIGHT;
    }
    for (id, panel) in (1..).zip(&mut panels) {
        panel["id"] = Value::from(id);
    }
    json!({
        "title": "Quorate", "uid": "quorate", "schemaVersion": 39, "editable": true,
        "refresh": "30s", "time": { "from": "now-1h", "to": "now" }, "timezone": "",
        "tags": ["quorate", "kafka"],
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource",
              "query": "prometheus" },
            { "name": "group", "label": "Group", "type": "query", "multi": true,
              "includeAll": true, "allValue": ".*", "refresh": 2, "sort": 1,
              "datasource": { "type": "prometheus", "uid": "${datasource}" },
              "definition": "label_values(kafka_consumergroup_members, consumergroup)",
              "query": "label_values(kafka_consumergroup_members, consumergroup)" },
        ] },
        "panels": panels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_have_places_of_their_own() {
        let dashboard = dashboard();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut places: Vec<_> = panels
            .iter()
            .map(|panel| (panel["gridPos"]["y"].as_u64(), panel["gridPos"]["x"].as_u64()))
            .collect();
        assert_eq!(places.len(), GROUPS.len() + CLUSTER.len() + 2);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), panels.len());
    }
}
