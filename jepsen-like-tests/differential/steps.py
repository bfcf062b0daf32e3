"""What scenarios are made of: requests that many of them make."""

from messages import batch, batches

# Nobody has these ids.
NO_TOPIC = "MkU3OEVBNTcwNTJENDM1TQ"
NO_TOPICS = (NO_TOPIC, "AAAAAAAAAAAAAAAAAAAAAA")
# Members of KIP-848 choose theirs.
MEMBERS = ("kRTcLUTySkOAtkoZcFe4bQ", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


def ready(answer):
    """Not while a coordinator loads, a topic is on its way, or a marker is."""
    if isinstance(answer, list):
        return all(ready(one) for one in answer)
    if not isinstance(answer, dict):
        return True
    codes = [code for name, code in answer.items() if name.lower().endswith("errorcode")]
    return not {5, 14, 15, 16, 51} & set(codes) and ready(list(answer.values()))


def topic(b, name, partitions=1, **configs):
    listed = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    b.ask(
        f"create {name}",
        "CreateTopics",
        7,
        {
            "timeoutMs": 10_000,
            "topics": [
                {
                    "name": name,
                    "numPartitions": partitions,
                    "replicationFactor": 1,
                    "configs": listed,
                }
            ],
        },
    )
    asked = {"topics": [{"name": name}]}
    found = lambda it: it["topics"][0]["errorCode"] == 0 and all(
        p["errorCode"] == 0 for p in it["topics"][0]["partitions"]
    )
    return b.ask(f"find {name}", "Metadata", 12, asked, until=found)["topics"][0]["topicId"]


def coordinator(b, key, kind=0):
    b.ask(
        f"who coordinates {kind}",
        "FindCoordinator",
        4,
        {"keyType": kind, "coordinatorKeys": [key]},
        until=lambda it: it["coordinators"][0]["errorCode"] == 0,
    )


def produce(b, step, name, values, version=9, until=None, acks=-1, transactional_id=None, **kind):
    kind.setdefault("transactional", transactional_id is not None)
    rows = [{"name": name, "partitionData": [{"index": 0, "records": batch(values, **kind)}]}]
    return b.ask(
        step,
        "Produce",
        version,
        {"acks": acks, "timeoutMs": 10_000, "topicData": rows, "transactionalId": transactional_id},
        until=until,
    )


def fetch(b, step, name, offset=0, isolation=0, version=12, partition=0, **more):
    """All that there is, however many answers it takes: what one holds is the broker's choice."""
    whole, aborted = [], {}
    while True:
        rows = [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": partition,
                        "fetchOffset": offset,
                        "partitionMaxBytes": 1 << 20,
                        **more,
                    }
                ],
            }
        ]
        body = {
            "maxWaitMs": 100,
            "minBytes": 0,
            "maxBytes": 1 << 20,
            "isolationLevel": isolation,
            "topics": rows,
        }
        answer, _ = b.end(b.begin("Fetch", version, body))
        rows = [row for one in answer.get("responses", []) for row in one["partitions"]]
        if not rows:
            break
        row = rows[0]
        found = batches(row["records"])
        whole += found
        for one in row["abortedTransactions"] or []:
            aborted[str(one)] = one
        row["records"] = whole
        if row["abortedTransactions"] is not None:
            row["abortedTransactions"] = list(aborted.values())
        end = row["lastStableOffset"] if isolation else row["highWatermark"]
        if not found or found[-1]["offset"] + found[-1]["last"] + 1 >= end:
            break
        offset = found[-1]["offset"] + found[-1]["last"] + 1
    b.note(f"{step} (Fetch v{version})", answer)
