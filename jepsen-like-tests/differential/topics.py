"""What both brokers are asked of themselves, of topics and of their settings."""

from steps import NO_TOPIC, topic


def versions(b):
    answer, _ = b.end(
        b.begin("ApiVersions", 4, {"clientSoftwareName": "a", "clientSoftwareVersion": "1"})
    )
    b.note("what is served (ApiVersions v4)", answer)
    b.ask("oldest", "ApiVersions", 0, {})
    b.ask("no name", "ApiVersions", 3, {"clientSoftwareName": "", "clientSoftwareVersion": "1"})


def topics(b):
    def create(step, version=7, validate=False, **one):
        one = {"name": "t-topics", "numPartitions": 1, "replicationFactor": 1, **one}
        b.ask(
            step,
            "CreateTopics",
            version,
            {"timeoutMs": 10_000, "validateOnly": validate, "topics": [one]},
        )

    for version in range(2, 8):
        create("a new one", version, name=f"t-topics-{version}")
    create("only asked about", validate=True)
    create("again", name="t-topics-7")
    create("no partitions", numPartitions=0)
    create("no copies", replicationFactor=0)
    create("more copies than nodes", replicationFactor=3)
    create("defaults", name="t-topics-default", numPartitions=-1, replicationFactor=-1)
    create("a name with a slash", name="a/b")
    create("no name", name="")
    create("a long name", name="x" * 250)
    create("an unknown setting", configs=[{"name": "no.such", "value": "1"}])
    create("a bad value", configs=[{"name": "retention.ms", "value": "soon"}])
    create(
        "an assignment of a node that is not there",
        numPartitions=-1,
        replicationFactor=-1,
        assignments=[{"partitionIndex": 0, "brokerIds": [77]}],
    )
    create(
        "a number beside an assignment",
        numPartitions=2,
        assignments=[{"partitionIndex": 0, "brokerIds": [1]}],
    )
    b.ask(
        "twice in one request",
        "CreateTopics",
        7,
        {
            "timeoutMs": 10_000,
            "topics": [
                {"name": "t-twice", "numPartitions": 1, "replicationFactor": 1},
                {"name": "t-twice", "numPartitions": 2, "replicationFactor": 1},
            ],
        },
    )
    for version in range(0, 13):
        b.ask(
            "of one that is not there",
            "Metadata",
            version,
            {
                "topics": [{"name": "t-nowhere" if version >= 4 else "t-nowhere-yet"}],
                "allowAutoTopicCreation": False,
            },
        )
    b.ask(
        "of an id that is not there",
        "Metadata",
        12,
        {"topics": [{"topicId": NO_TOPIC, "name": None}]},
    )
    b.ask("of a bad name", "Metadata", 12, {"topics": [{"name": "a/b"}]})

    def grow(step, version=3, **one):
        b.ask(
            step,
            "CreatePartitions",
            version,
            {
                "timeoutMs": 10_000,
                "topics": [{"name": "t-topics-7", "count": 3, "assignments": None, **one}],
            },
        )

    grow("three")
    grow("three again")
    grow("fewer", count=1)
    grow("of an unknown topic", name="t-nowhere", count=2)
    grow("as many assignments as new ones", count=4, assignments=[{"brokerIds": [1]}])
    grow("more assignments", count=5, assignments=[{"brokerIds": [1]}, {"brokerIds": [1]}])
    grow("on a node that is not there", count=5, assignments=[{"brokerIds": [77]}])
    for version in range(1, 6):
        b.ask(
            "unknown", "DeleteTopics", version, {"timeoutMs": 10_000, "topicNames": ["t-nowhere"]}
        )
    b.ask("one", "DeleteTopics", 6, {"timeoutMs": 10_000, "topics": [{"name": "t-topics-2"}]})
    b.ask(
        "an unknown id",
        "DeleteTopics",
        6,
        {"timeoutMs": 10_000, "topics": [{"name": None, "topicId": NO_TOPIC}]},
    )


def coordinators(b):
    for version in range(0, 4):
        b.ask(
            "a group's",
            "FindCoordinator",
            version,
            {"key": "g-find"},
            until=lambda it: not it["errorCode"],
        )
    for version in range(4, 7):
        b.ask(
            "of two groups",
            "FindCoordinator",
            version,
            {"coordinatorKeys": ["g-find", "g-other"]},
            until=lambda it: not any(one["errorCode"] for one in it["coordinators"]),
        )
        b.ask(
            "a transaction's",
            "FindCoordinator",
            version,
            {"keyType": 1, "coordinatorKeys": ["x-find"]},
            until=lambda it: not it["coordinators"][0]["errorCode"],
        )
        b.ask("of no name", "FindCoordinator", version, {"coordinatorKeys": [""]})
        b.ask(
            "of no transactional id",
            "FindCoordinator",
            version,
            {"keyType": 1, "coordinatorKeys": [""]},
        )
        b.ask(
            "of an unknown kind",
            "FindCoordinator",
            version,
            {"keyType": 9, "coordinatorKeys": ["a"]},
        )
    b.ask("of an unknown kind", "FindCoordinator", 3, {"keyType": 9, "key": "a"})


def settings(b):
    topic(b, "t-settings")

    def alter(step, name, value, operation=0, resource="t-settings", kind=2, version=1):
        b.ask(
            step,
            "IncrementalAlterConfigs",
            version,
            {
                "resources": [
                    {
                        "resourceType": kind,
                        "resourceName": resource,
                        "configs": [{"name": name, "configOperation": operation, "value": value}],
                    }
                ]
            },
        )

    alter("a value", "retention.ms", "1000")
    alter("no number", "retention.ms", "soon")
    alter("an unknown setting", "no.such", "1")
    alter("back to the default", "retention.ms", None, 1)
    alter("one more in a list", "cleanup.policy", "compact", 2)
    alter("one less in a list", "cleanup.policy", "delete", 3)
    alter("one more where there is no list", "retention.ms", "1", 2)
    alter("an unknown operation", "retention.ms", "1", 9)
    alter("an unknown topic", "retention.ms", "1", resource="t-nowhere")
    alter("an unknown kind", "retention.ms", "1", kind=77)
    alter("no value", "retention.ms", None)

    def describe(
        step, name="t-settings", kind=2, version=4, keys=("retention.ms", "cleanup.policy")
    ):
        b.ask(
            step,
            "DescribeConfigs",
            version,
            {
                "resources": [
                    {"resourceType": kind, "resourceName": name, "configurationKeys": list(keys)}
                ]
            },
        )

    for version in range(1, 5):
        describe("two", version=version)
    describe("an unknown setting", keys=["no.such"])
    describe("an unknown topic", name="t-nowhere")
    describe("no topic", name="")
    describe("an unknown kind", kind=77)
    describe("an unknown node", name="77", kind=4)
    describe("a node that is no number", name="x", kind=4)


def internal(b):
    b.ask(
        "an internal one",
        "DeleteTopics",
        6,
        {"timeoutMs": 10_000, "topics": [{"name": "__consumer_offsets"}]},
    )
