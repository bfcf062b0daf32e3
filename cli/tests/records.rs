//! `quorate produce` and `quorate consume` against a node.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use node::Node;
use serde_json::Value;

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn what_goes_in_comes_out() {
    let node = Node::in_memory();
    let produce = ["produce", "orders", "-k", ":", "-H", "source=test", "--priority", "7"];
    let receipts = node.ok_with("a:1\nb:2\nno key\n", &[&produce[..], &["--receipts"]].concat());
    let offsets: Vec<&str> =
        lines(&receipts).iter().map(|l| l.split('\t').nth(1).unwrap()).collect();
    assert_eq!(offsets, ["0", "1", "2"]);
    let format = "%t %p %o %k(%K)=%s(%S) [%h]\\n";
    assert_eq!(
        node.ok(&["consume", "orders", "-e", "-f", format]),
        "orders 0 0 a(1)=1(1) [source=test,priority=7]\n\
         orders 0 1 b(1)=2(1) [source=test,priority=7]\n\
         orders 0 2 (-1)=no key(6) [source=test,priority=7]\n"
    );
}

#[test]
fn every_codec_and_every_acks() {
    let node = Node::in_memory();
    let input: String = (0..500).map(|number| format!("record {number}\n")).collect();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("codec-{codec}");
        node.ok_with(&input, &["produce", &topic, "-z", codec]);
        assert_eq!(node.ok(&["consume", &topic, "-e"]), input, "{codec}");
    }
    for acks in ["all", "1", "0"] {
        let topic = format!("acks-{acks}");
        node.ok(&["topic", "create", &topic]);
        node.ok_with(&input, &["produce", &topic, "--acks", acks]);
        assert_eq!(node.ok(&["consume", &topic, "-c", "500"]), input, "{acks}");
    }
    let wrong = node.run(&["produce", "orders", "-z", "zst"]);
    assert!(wrong.exit == 2 && wrong.err.contains("did you mean zstd?"), "{}", wrong.err);
}

#[test]
fn json_lines_lose_nothing() {
    let node = Node::in_memory();
    let input = concat!(
        r#"{"key":null,"payload":null,"ts":1000}"#,
        "\n",
        r#"{"key":"","payload":"","headers":["a","1","a",null]}"#,
        "\n",
        r#"{"key_base64":"/w==","payload_base64":"AP8="}"#,
        "\n"
    );
    node.ok_with(input, &["produce", "first", "-J"]);
    let copied = node.ok(&["consume", "first", "-e", "-J"]);
    node.ok_with(&copied, &["produce", "second", "-J"]);
    let again = node.ok(&["consume", "second", "-e", "-J"]);
    assert_eq!(copied.replace("\"first\"", "\"second\""), again);
    let records: Vec<Value> =
        lines(&again).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[0]["key"], Value::Null);
    assert_eq!((&records[0]["payload"], &records[0]["ts"]), (&Value::Null, &Value::from(1000)));
    assert_eq!((records[1]["key"].as_str(), records[1]["payload"].as_str()), (Some(""), Some("")));
    assert_eq!(records[1]["headers"].as_array().unwrap().len(), 4);
    assert_eq!(records[2]["payload_base64"], "AP8=");
    let wrong = node.run_with("no json\n", &["produce", "first", "-J"]);
    assert!(wrong.exit == 1 && wrong.err.contains("line 1"), "{}", wrong.err);
}

#[test]
fn positions_bound_what_is_read() {
    let node = Node::in_memory();
    let format = ["produce", "orders", "-f", "%T %s"];
    node.ok_with("1000 a\n2000 b\n3000 c\n4000 d\n", &format);
    let read = |arguments: &[&str]| node.ok(&[&["consume", "orders", "-e"], arguments].concat());
    assert_eq!(read(&["-o", "beginning", "-c", "2"]), "a\nb\n");
    assert_eq!(read(&["-o", "2"]), "c\nd\n");
    assert_eq!(read(&["-o", "-1"]), "d\n");
    assert_eq!(read(&["-o", "@2500"]), "c\nd\n");
    assert_eq!(read(&["-o", "@9000"]), "");
    assert_eq!(read(&["-o", "end"]), "");
    let wrong = node.run(&["consume", "orders", "-o", "middle"]);
    assert_eq!(wrong.exit, 2, "{}", wrong.err);
}

#[test]
fn a_reader_of_committed_records_reads_what_is_in_no_transaction() {
    let node = Node::in_memory();
    node.ok_with("a\nb\n", &["produce", "orders"]);
    for level in ["committed", "uncommitted", "read_committed"] {
        for how in [&["-e"][..], &["-e", "--merge", "time"], &["-e", "-g", level]] {
            let consume = [&["consume", "orders", "--isolation", level], how].concat();
            assert_eq!(node.ok(&consume), "a\nb\n", "{consume:?}");
        }
    }
}

#[test]
fn partitions_merge_by_time() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "-p", "3"]);
    let input = "0 1000 a\n1 3000 d\n2 2000 b\n0 2000 c\n1 4000 f\n2 3000 e\n";
    // By partition, equal times are in the order of the partitions.
    node.ok_with(input, &["produce", "orders", "-f", "%p %T %s"]);
    let merged = node.ok(&["consume", "orders", "--merge", "time", "-e", "-f", "%T %p %s\\n"]);
    let expected = "1000 0 a\n2000 0 c\n2000 2 b\n3000 1 d\n3000 2 e\n4000 1 f\n";
    assert_eq!(merged, expected);
}

#[test]
fn keys_go_where_java_puts_them() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "-p", "10"]);
    // murmur2("foobar") is -790332482 in Kafka's own test.
    let receipts = node.ok_with("foobar:x\n", &["produce", "orders", "-k", ":", "--receipts"]);
    let partition = (-790_332_482 & 0x7fff_ffff) % 10;
    assert!(receipts.starts_with(&format!("{partition}\t0\t")), "{receipts}");
}

#[test]
fn a_group_remembers_what_was_written_out() {
    let node = Node::in_memory();
    node.ok_with("1\n2\n3\n", &["produce", "orders"]);
    let consume = ["consume", "orders", "-g", "readers", "-e"];
    assert_eq!(node.ok(&consume), "1\n2\n3\n");
    assert_eq!(node.ok(&consume), "");
    node.ok_with("4\n5\n", &["produce", "orders"]);
    let first = node.ok(&["consume", "orders", "-g", "readers", "-c", "1"]);
    assert_eq!(first, "4\n", "only what was printed is committed");
    assert_eq!(node.ok(&[&consume[..], &["--commit", "none"]].concat()), "5\n");
    assert_eq!(node.ok(&consume), "5\n");
    let wrong = node.run(&["consume", "orders", "-g", "readers", "--commit", "befor"]);
    assert_eq!(wrong.exit, 2, "{}", wrong.err);
}

#[test]
fn a_record_that_is_too_large_is_refused() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "-c", "max.message.bytes=1000"]);
    let done = node.run_with(&"x".repeat(2000), &["produce", "orders"]);
    assert!(done.exit == 1 && done.err.contains("MESSAGE_TOO_LARGE"), "{}", done.err);
    // Small ones are, however many come at once.
    let small: String = (0..200).map(|number| format!("record {number}\n")).collect();
    node.ok_with(&small, &["produce", "orders"]);
    assert_eq!(node.ok(&["consume", "orders", "-e"]), small);
}

#[test]
fn a_bench_tells_programs_what_it_found() {
    let node = Node::in_memory();
    for bench in ["produce", "consume", "end-to-end"] {
        let report = node.ok(&["bench", bench, "-n", "200", "--size", "100", "--json"]);
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["records"], 200, "{report}");
        assert_eq!(report["latency_us"].is_object(), bench != "consume");
    }
    assert_eq!(node.ok(&["topic", "list", "--json"]).trim(), "[]", "they clean up");
}
