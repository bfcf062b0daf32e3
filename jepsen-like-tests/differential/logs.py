"""What both brokers are asked by producers and readers."""

import base64

from messages import batch
from steps import fetch, produce, ready, topic


def producers(b):
    topic(b, "t-idempotent")
    for version in range(0, 6):
        told = b.ask(
            "of no transaction",
            "InitProducerId",
            version,
            {"transactionalId": None, "transactionTimeoutMs": 60_000},
            until=ready,
        )
    b.ask(
        "with an id, but not an epoch",
        "InitProducerId",
        5,
        {
            "transactionalId": None,
            "transactionTimeoutMs": 60_000,
            "producerId": 5,
            "producerEpoch": -1,
        },
    )
    one = {"producer": told["producerId"], "epoch": 0}
    for version in range(3, 13):
        produce(b, "no sequence", "t-idempotent", [b"a"], version)
    produce(b, "begins", "t-idempotent", [b"a", b"b"], sequence=0, **one)
    produce(b, "is told again", "t-idempotent", [b"a", b"b"], sequence=0, **one)
    produce(b, "a gap", "t-idempotent", [b"c"], sequence=7, **one)
    produce(b, "goes on", "t-idempotent", [b"c"], sequence=2, **one)
    produce(b, "part of what was written", "t-idempotent", [b"b"], sequence=1, **one)
    produce(
        b,
        "a new epoch, not from 0",
        "t-idempotent",
        [b"b"],
        sequence=3,
        producer=one["producer"],
        epoch=1,
    )
    produce(b, "a new epoch", "t-idempotent", [b"b"], sequence=0, producer=one["producer"], epoch=1)
    produce(b, "the epoch of before", "t-idempotent", [b"b"], sequence=3, **one)
    produce(
        b,
        "an unknown one, not from 0",
        "t-idempotent",
        [b"b"],
        sequence=3,
        producer=4_000_000,
        epoch=0,
    )
    produce(b, "an id without a sequence", "t-idempotent", [b"b"], **one)
    produce(b, "acks of two", "t-idempotent", [b"b"], acks=2)
    produce(b, "to an unknown topic", "t-nowhere", [b"b"])
    produce(b, "to an internal topic", "__consumer_offsets", [b"b"])
    b.ask(
        "to an unknown partition",
        "Produce",
        9,
        {
            "acks": -1,
            "timeoutMs": 10_000,
            "topicData": [
                {"name": "t-idempotent", "partitionData": [{"index": 9, "records": batch([b"a"])}]}
            ],
        },
    )
    b.ask(
        "nothing",
        "Produce",
        9,
        {
            "acks": -1,
            "timeoutMs": 10_000,
            "topicData": [
                {"name": "t-idempotent", "partitionData": [{"index": 0, "records": None}]}
            ],
        },
    )
    broken = base64.b64decode(batch([b"abc"]))
    broken = base64.b64encode(broken[:-2] + b"x\0").decode()
    b.ask(
        "a wrong checksum",
        "Produce",
        9,
        {
            "acks": -1,
            "timeoutMs": 10_000,
            "topicData": [
                {"name": "t-idempotent", "partitionData": [{"index": 0, "records": broken}]}
            ],
        },
    )
    topic(b, "t-compact", cleanup_policy="compact")
    produce(b, "without a key to a compacted topic", "t-compact", [b"b"])
    topic(b, "t-small", max_message_bytes="200")
    produce(b, "too large", "t-small", [b"b" * 300])
    for version in (0,):
        b.ask(
            "it",
            "DescribeProducers",
            version,
            {
                "topics": [
                    {"name": "t-idempotent", "partitionIndexes": [0, 9]},
                    {"name": "t-nowhere", "partitionIndexes": [0]},
                ]
            },
        )


def reading(b):
    topic(b, "t-read", 2)
    for place in range(3):
        produce(b, f"batch {place}", "t-read", [b"a", b"b"], time=1_700_000_000_000 + place * 1000)
    for version in range(4, 13):
        fetch(b, "from the beginning", "t-read", version=version)
    fetch(b, "from the middle", "t-read", 3)
    fetch(b, "at the end", "t-read", 6)
    fetch(b, "beyond the end", "t-read", 7)
    fetch(b, "before the beginning", "t-read", -1)
    fetch(b, "an unknown partition", "t-read", partition=9)
    fetch(b, "an unknown topic", "t-nowhere")
    fetch(b, "an epoch to come", "t-read", currentLeaderEpoch=1000)
    fetch(b, "only committed", "t-read", isolation=1)
    body = {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 1000, "sessionId": 77, "sessionEpoch": 3}
    b.ask("an unknown session", "Fetch", 12, body)

    def offsets(step, timestamp, version=7, name="t-read", partition=0, isolation=0, **more):
        b.ask(
            step,
            "ListOffsets",
            version,
            {
                "replicaId": -1,
                "isolationLevel": isolation,
                "timeoutMs": 1000,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partitionIndex": partition, "timestamp": timestamp, **more}
                        ],
                    }
                ],
            },
        )

    for version in range(1, 12):
        offsets("the end", -1, version)
        offsets("the beginning", -2, version)
        offsets("by time", 1_700_000_001_000, version)
    for version, timestamp in ((7, -3), (8, -4), (9, -5), (11, -6), (11, -7), (6, -3), (7, -4)):
        offsets(f"the special time {timestamp}", timestamp, version)
    offsets("of an empty partition, the greatest time", -3, 7, partition=1)
    offsets("a time after all", 1_800_000_000_000)
    offsets("a time before all", 1)
    offsets("only committed", -1, isolation=1)
    offsets("an unknown partition", -1, partition=9)
    offsets("an unknown topic", -1, name="t-nowhere")
    offsets("an epoch to come", -1, currentLeaderEpoch=1000)
    b.ask(
        "twice the same partition",
        "ListOffsets",
        7,
        {
            "replicaId": -1,
            "topics": [
                {
                    "name": "t-read",
                    "partitions": [
                        {"partitionIndex": 0, "timestamp": -1},
                        {"partitionIndex": 0, "timestamp": -2},
                    ],
                }
            ],
        },
    )
    for version in range(2, 5):
        b.ask(
            "where an epoch ends",
            "OffsetForLeaderEpoch",
            version,
            {
                "replicaId": -1,
                "topics": [
                    {
                        "topic": "t-read",
                        "partitions": [
                            {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0},
                            {"partition": 9, "leaderEpoch": 0},
                        ],
                    }
                ],
            },
        )
    b.ask(
        "an epoch to come",
        "OffsetForLeaderEpoch",
        4,
        {
            "replicaId": -1,
            "topics": [
                {
                    "topic": "t-read",
                    "partitions": [
                        {"partition": 0, "currentLeaderEpoch": 1000, "leaderEpoch": 0},
                        {"partition": 1, "currentLeaderEpoch": -1, "leaderEpoch": 1000},
                    ],
                }
            ],
        },
    )

    def delete(step, offset, version=2, name="t-read", partition=0):
        b.ask(
            step,
            "DeleteRecords",
            version,
            {
                "timeoutMs": 5000,
                "topics": [
                    {"name": name, "partitions": [{"partitionIndex": partition, "offset": offset}]}
                ],
            },
        )

    for version in range(0, 3):
        delete("the first", 1 + version, version)
    delete("what is deleted", 1)
    delete("beyond the end", 100)
    delete("a negative offset", -5)
    delete("all", -1)
    delete("of an unknown topic", 1, name="t-nowhere")
    delete("of an unknown partition", 1, partition=9)
    fetch(b, "what was deleted", "t-read", 0)
    offsets("the beginning of what was deleted", -2)
