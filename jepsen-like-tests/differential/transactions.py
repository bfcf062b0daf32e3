"""What both brokers are asked of transactions."""

import threading

from steps import coordinator, fetch, produce, ready, topic


def init(b, step, name, version=5, timeout=60_000, **more):
    return b.ask(
        step,
        "InitProducerId",
        version,
        {"transactionalId": name, "transactionTimeoutMs": timeout, **more},
        until=ready,
    )


def transactions(b):
    topic(b, "t-x", 2)
    coordinator(b, "x-1", 1)
    init(b, "no name", "")
    init(b, "no time", "x-1", timeout=0)
    init(b, "too much time", "x-1", timeout=1 << 30)
    for version in range(0, 6):
        told = init(b, "a producer", "x-1", version)
    one = {"producerId": told["producerId"], "producerEpoch": told["producerEpoch"]}
    init(b, "one that never was", "x-1", producerId=4_000_000, producerEpoch=0)
    init(b, "an epoch that is over", "x-1", producerId=one["producerId"], producerEpoch=0)
    told = init(b, "its own epoch", "x-1", **one)
    one = {"producerId": told["producerId"], "producerEpoch": told["producerEpoch"]}

    def end(step, commits, version=5, until=ready, **more):
        told = b.ask(
            step,
            "EndTxn",
            version,
            {"transactionalId": "x-1", "committed": commits, **one, **more},
            until=until,
        )
        if version >= 5 and told.get("errorCode") == 0:
            one["producerId"], one["producerEpoch"] = told["producerId"], told["producerEpoch"]

    end("commits what has not begun", True)
    end("commits what has not begun, as before", True, 4)
    end("aborts what has not begun, as before", False, 4)
    end("aborts what has not begun", False)

    def add(step, version=3, partitions=(0,), name="t-x", **more):
        given = {**one, **more}
        body = {
            "v3AndBelowTransactionalId": given.get("transactionalId", "x-1"),
            "v3AndBelowProducerId": given["producerId"],
            "v3AndBelowProducerEpoch": given["producerEpoch"],
            "v3AndBelowTopics": [{"name": name, "partitions": list(partitions)}],
        }
        b.ask(step, "AddPartitionsToTxn", version, body, until=ready)

    add("of an epoch to come", producerEpoch=99)
    add("of another producer", producerId=4_000_000)
    add("of an unknown id", transactionalId="x-nowhere")
    add("of no name", transactionalId="")
    add("of an unknown topic", name="t-nowhere")
    add("of an unknown partition", partitions=(0, 9))
    for version in range(0, 4):
        add("a partition", version)
    produce(
        b,
        "in it",
        "t-x",
        [b"a", b"b"],
        11,
        transactional_id="x-1",
        sequence=0,
        producer=one["producerId"],
        epoch=one["producerEpoch"],
        until=ready,
    )
    produce(
        b,
        "without a name",
        "t-x",
        [b"a"],
        11,
        sequence=2,
        transactional=True,
        producer=one["producerId"],
        epoch=one["producerEpoch"],
    )
    produce(
        b,
        "beside it",
        "t-x",
        [b"a"],
        11,
        sequence=2,
        transactional=False,
        producer=one["producerId"],
        epoch=one["producerEpoch"],
    )
    produce(
        b,
        "of an epoch to come",
        "t-x",
        [b"a"],
        11,
        sequence=0,
        transactional_id="x-1",
        producer=one["producerId"],
        epoch=one["producerEpoch"] + 3,
    )
    for version in (0,):
        b.ask(
            "it, and an unknown one",
            "DescribeTransactions",
            version,
            {"transactionalIds": ["x-1", "x-nowhere", ""]},
        )
    b.ask(
        "its producer",
        "DescribeProducers",
        0,
        {"topics": [{"name": "t-x", "partitionIndexes": [0]}]},
    )
    for version in range(0, 3):
        b.ask("all", "ListTransactions", version, {})
    b.ask("by state", "ListTransactions", 1, {"stateFilters": ["Ongoing"]})
    b.ask("by an unknown state", "ListTransactions", 1, {"stateFilters": ["Nowhere"]})
    b.ask("by producer", "ListTransactions", 1, {"producerIdFilters": [one["producerId"]]})
    b.ask("by age", "ListTransactions", 1, {"durationFilter": 10_000_000})
    b.ask("by name", "ListTransactions", 2, {"transactionalIdPattern": "x-.*"})
    b.ask("by a bad pattern", "ListTransactions", 2, {"transactionalIdPattern": "("})
    fetch(b, "all of it while it is open", "t-x")
    fetch(b, "only committed while it is open", "t-x", isolation=1)
    end("of an epoch to come", True, producerEpoch=one["producerEpoch"] + 5)
    end("of another producer", True, producerId=4_000_000)
    end("of an unknown id", True, transactionalId="x-nowhere")
    before = dict(one)
    end("commits", True)
    settled(b, "t-x")
    end("commits again, with the epoch of before", True, **before)
    end("aborts what was committed", False, **before)
    fetch(b, "only committed after it", "t-x", isolation=1)
    newer_clients(b, one, end)
    within_groups(b, one, end)


def settled(b, name):
    """The last marker is there: nothing is undecided."""
    for _ in range(100):
        rows = [{"topic": name, "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}]
        told, _ = b.end(b.begin("Fetch", 12, {"maxWaitMs": 0, "maxBytes": 1 << 20, "topics": rows}))
        row = told["responses"][0]["partitions"][0]
        if row["highWatermark"] == row["lastStableOffset"]:
            return
        threading.Event().wait(0.1)


def newer_clients(b, one, end):
    """Version 2 of transactions: a batch adds its partition."""
    produce(
        b,
        "begins by itself",
        "t-x",
        [b"c"],
        12,
        transactional_id="x-1",
        sequence=0,
        producer=one["producerId"],
        epoch=one["producerEpoch"],
        until=ready,
    )
    b.ask("it", "DescribeTransactions", 0, {"transactionalIds": ["x-1"]})
    end("aborts", False)
    settled(b, "t-x")
    fetch(b, "only committed after an abort", "t-x", isolation=1)
    b.ask(
        "only committed",
        "ListOffsets",
        7,
        {
            "replicaId": -1,
            "isolationLevel": 1,
            "topics": [{"name": "t-x", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}],
        },
    )
    asked = lambda step, **more: b.ask(
        step,
        "AddPartitionsToTxn",
        5,
        {
            "transactions": [
                {
                    "transactionalId": "x-1",
                    "producerId": one["producerId"],
                    "producerEpoch": one["producerEpoch"],
                    "verifyOnly": True,
                    "topics": [{"name": "t-x", "partitions": [0]}],
                    **more,
                }
            ]
        },
        until=ready,
    )
    asked("is it in a transaction")
    asked("of another epoch", producerEpoch=77)
    asked("of another producer", producerId=4_000_000)
    asked("of an unknown id", transactionalId="x-nowhere")
    markers(b, one)


def markers(b, one):
    write = lambda step, version=2, name="t-x", partition=0, **more: b.ask(
        step,
        "WriteTxnMarkers",
        version,
        {
            "markers": [
                {
                    "producerId": one["producerId"],
                    "producerEpoch": one["producerEpoch"],
                    "transactionResult": False,
                    "topics": [{"name": name, "partitionIndexes": [partition]}],
                    "coordinatorEpoch": 0,
                    "transactionVersion": 2,
                    **more,
                }
            ]
        },
    )
    write("for nobody's transaction, of an unknown producer", producerId=4_000_000)
    write("of an epoch that is over", producerEpoch=0)
    write("to an unknown topic", name="t-nowhere")
    write("to an unknown partition", partition=9)


def within_groups(b, one, end):
    coordinator(b, "g-x")

    def offsets(step, version=3, row=None, **more):
        return b.ask(
            step,
            "TxnOffsetCommit",
            version,
            {
                "transactionalId": "x-1",
                "groupId": "g-x",
                **one,
                "topics": [
                    {
                        "name": "t-x",
                        "partitions": [{"partitionIndex": 0, "committedOffset": 1, **(row or {})}],
                    }
                ],
                **more,
            },
            until=ready,
        )

    offsets("before the group is added")
    added = lambda step, version=3, **more: b.ask(
        step,
        "AddOffsetsToTxn",
        version,
        {"transactionalId": "x-1", "groupId": "g-x", **one, **more},
        until=ready,
    )
    added("of an epoch to come", producerEpoch=99)
    added("of an unknown id", transactionalId="x-nowhere")
    added("of no group", groupId="")
    for version in range(0, 5):
        added("a group", version)
    for version in range(0, 6):
        offsets("of no member", version)
    offsets("of an unknown member", 5, memberId="nobody", generationIdOrMemberEpoch=1)
    offsets("of a generation alone", 5, generationIdOrMemberEpoch=4)
    offsets(
        "of an unknown topic",
        5,
        topics=[{"name": "t-nowhere", "partitions": [{"partitionIndex": 0}]}],
    )
    offsets("with too much metadata", 5, row={"committedMetadata": "x" * 5000})
    asked = lambda step, stable: b.ask(
        step,
        "OffsetFetch",
        9,
        {
            "requireStable": stable,
            "groups": [{"groupId": "g-x", "topics": [{"name": "t-x", "partitionIndexes": [0]}]}],
        },
    )
    asked("while it is open", False)
    asked("stable, while it is open", True)
    end("commits offsets", True)
    for _ in range(50):
        told, _ = b.end(
            b.begin(
                "OffsetFetch",
                9,
                {
                    "requireStable": True,
                    "groups": [
                        {"groupId": "g-x", "topics": [{"name": "t-x", "partitionIndexes": [0]}]}
                    ],
                },
            )
        )
        if not told["groups"][0]["topics"][0]["partitions"][0]["errorCode"]:
            break
        threading.Event().wait(0.1)
    asked("stable, when it was committed", True)
    b.ask("what a transaction has left", "DeleteGroups", 2, {"groupsNames": ["g-x"]})
