"""What both brokers are asked of groups, of the classic protocol and of KIP-848, and of offsets."""

import base64
import threading

from steps import MEMBERS, NO_TOPIC, coordinator, topic

SESSION = 60_000
METADATA = base64.b64encode(b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff").decode()
ASSIGNMENT = base64.b64encode(b"\0\1\0\0\0\0\xff\xff\xff\xff").decode()


def join(b, step, group, version=9, connection="first", wait=True, **more):
    body = {
        "groupId": group,
        "sessionTimeoutMs": SESSION,
        "rebalanceTimeoutMs": SESSION,
        "memberId": "",
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
        **more,
    }
    if not wait:
        return b.begin("JoinGroup", version, body, connection)
    return b.ask(step, "JoinGroup", version, body, connection)


def classic_groups(b):
    group = "g-classic"
    topic(b, "t-classic", 2)
    coordinator(b, group)
    join(b, "no group id", "")
    join(b, "a short session", group, sessionTimeoutMs=1)
    join(b, "a long session", group, sessionTimeoutMs=1 << 30)
    join(b, "an unknown member", group, memberId="nobody")
    join(b, "no protocols", group, protocols=[])
    join(b, "no protocol type", group, protocolType="")
    for version in (0, 1, 2, 3):
        join(b, "as old clients do", f"g-old-{version}", version)
    told = join(b, "first, without an id", group)
    member = told["memberId"]
    told = join(b, "first, with the id that was given", group, memberId=member)
    generation = told["generationId"]
    mine = {"groupId": group, "memberId": member, "generationId": generation}
    b.ask("before it is synced", "Heartbeat", 4, mine)
    sync = lambda step, version=5, **more: b.ask(
        step,
        "SyncGroup",
        version,
        {
            **mine,
            "protocolType": "consumer",
            "protocolName": "range",
            "assignments": [{"memberId": member, "assignment": ASSIGNMENT}],
            **more,
        },
    )
    sync("of a generation to come", generationId=generation + 1)
    sync("of nobody", memberId="nobody")
    sync("of another type", protocolType="other")
    sync("of another protocol", protocolName="roundrobin")
    sync("of no group", groupId="")
    for version in range(0, 6):
        sync("the leader", version)
    for version in range(0, 5):
        b.ask("in time", "Heartbeat", version, mine)
    b.ask("of a generation to come", "Heartbeat", 4, {**mine, "generationId": 77})
    b.ask("of nobody", "Heartbeat", 4, {**mine, "memberId": "nobody"})
    b.ask("of an unknown group", "Heartbeat", 4, {**mine, "groupId": "g-nowhere"})
    b.ask("of no group", "Heartbeat", 4, {**mine, "groupId": ""})
    join(b, "of another type", group, protocolType="connect", memberId=member)
    join(b, "of no common protocol", group, protocols=[{"name": "x", "metadata": METADATA}])
    commits(b, group, member, generation)
    for version in range(0, 7):
        b.ask("it", "DescribeGroups", version, {"groups": [group, "g-nowhere"]})
    for version in range(0, 6):
        b.ask("all", "ListGroups", version, {})
    b.ask("by state", "ListGroups", 5, {"statesFilter": ["Stable"]})
    b.ask("by a state in small letters", "ListGroups", 5, {"statesFilter": ["stable"]})
    b.ask("by an unknown state", "ListGroups", 5, {"statesFilter": ["Nowhere"]})
    b.ask("by type", "ListGroups", 5, {"typesFilter": ["consumer"]})
    b.ask("by an unknown type", "ListGroups", 5, {"typesFilter": ["nothing"]})
    b.ask("with members", "DeleteGroups", 2, {"groupsNames": [group]})
    b.ask(
        "offsets that are subscribed",
        "OffsetDelete",
        0,
        {
            "groupId": group,
            "topics": [{"name": "t-classic", "partitions": [{"partitionIndex": 0}]}],
        },
    )
    for version in range(0, 3):
        b.ask("nobody", "LeaveGroup", version, {"groupId": group, "memberId": "nobody"})
    b.ask(
        "nobody and somebody",
        "LeaveGroup",
        5,
        {"groupId": group, "members": [{"memberId": "nobody"}, {"memberId": member}]},
    )
    b.ask("when it has left", "Heartbeat", 4, mine)
    b.ask("an empty one", "DescribeGroups", 6, {"groups": [group]})
    b.ask(
        "offsets",
        "OffsetDelete",
        0,
        {
            "groupId": group,
            "topics": [
                {"name": "t-classic", "partitions": [{"partitionIndex": 0}, {"partitionIndex": 9}]},
                {"name": "t-nowhere", "partitions": [{"partitionIndex": 0}]},
            ],
        },
    )
    b.ask(
        "offsets of an unknown group",
        "OffsetDelete",
        0,
        {
            "groupId": "g-nowhere",
            "topics": [{"name": "t-classic", "partitions": [{"partitionIndex": 0}]}],
        },
    )
    b.ask(
        "it, and an unknown one, and none",
        "DeleteGroups",
        2,
        {"groupsNames": [group, "g-nowhere", ""]},
    )
    b.ask("what is gone", "DescribeGroups", 6, {"groups": [group]})


def commits(b, group, member, generation):
    def commit(step, version=9, row=None, name="t-classic", **more):
        row = {"partitionIndex": 0, "committedOffset": 5, "committedMetadata": "m", **(row or {})}
        b.ask(
            step,
            "OffsetCommit",
            version,
            {
                "groupId": group,
                "memberId": member,
                "generationIdOrMemberEpoch": generation,
                "topics": [{"name": name, "partitions": [row]}],
                **more,
            },
        )

    for version in range(2, 10):
        commit("of a member", version)
    commit("of a generation to come", generationIdOrMemberEpoch=generation + 1)
    commit("of no generation", generationIdOrMemberEpoch=-1)
    commit("of nobody", memberId="nobody")
    commit("of no member", memberId="", generationIdOrMemberEpoch=-1)
    commit("of an unknown group", groupId="g-nowhere")
    commit(
        "of an unknown group, by itself",
        groupId="g-alone",
        memberId="",
        generationIdOrMemberEpoch=-1,
    )
    commit("of no group", groupId="", memberId="", generationIdOrMemberEpoch=-1)
    commit("of an unknown topic", name="t-nowhere")
    commit("of an unknown partition", row={"partitionIndex": 99})
    commit("with too much metadata", row={"committedMetadata": "x" * 5000})
    commit("without metadata", row={"committedMetadata": None})
    commit("of a negative offset", row={"committedOffset": -1})
    commit("with an epoch", row={"committedLeaderEpoch": 3})
    for version in range(1, 8):
        b.ask(
            "some",
            "OffsetFetch",
            version,
            {
                "groupId": group,
                "topics": [
                    {"name": "t-classic", "partitionIndexes": [0, 1, 99]},
                    {"name": "t-nowhere", "partitionIndexes": [0]},
                ],
            },
        )
    for version in (2, 7):
        b.ask("all", "OffsetFetch", version, {"groupId": group, "topics": None})
        b.ask(
            "all of an unknown group",
            "OffsetFetch",
            version,
            {"groupId": "g-nowhere", "topics": None},
        )
    for version in (8, 9):
        b.ask(
            "of several groups",
            "OffsetFetch",
            version,
            {
                "groups": [
                    {
                        "groupId": group,
                        "topics": [{"name": "t-classic", "partitionIndexes": [0, 1]}],
                    },
                    {"groupId": "g-nowhere", "topics": None},
                ]
            },
        )
    b.ask(
        "of a member and its epoch",
        "OffsetFetch",
        9,
        {
            "groups": [
                {"groupId": group, "memberId": member, "memberEpoch": generation, "topics": None}
            ]
        },
    )
    b.ask(
        "of nobody",
        "OffsetFetch",
        9,
        {"groups": [{"groupId": group, "memberId": "nobody", "memberEpoch": 3, "topics": None}]},
    )
    b.ask(
        "by ids",
        "OffsetFetch",
        10,
        {
            "groups": [
                {"groupId": group, "topics": [{"topicId": NO_TOPIC, "partitionIndexes": [0]}]}
            ]
        },
    )


def static_members(b):
    group = "g-static"
    coordinator(b, group)
    told = join(b, "a static one", group, groupInstanceId="one")
    old, generation = told["memberId"], told["generationId"]
    sync = lambda step, member, generation: b.ask(
        step,
        "SyncGroup",
        5,
        {
            "groupId": group,
            "memberId": member,
            "generationId": generation,
            "groupInstanceId": "one",
            "protocolType": "consumer",
            "protocolName": "range",
            "assignments": [{"memberId": member, "assignment": ASSIGNMENT}],
        },
    )
    sync("the leader", old, generation)
    told = join(b, "comes back without its id", group, groupInstanceId="one")
    new = told["memberId"]
    beat = lambda step, member, **more: b.ask(
        step,
        "Heartbeat",
        4,
        {
            "groupId": group,
            "memberId": member,
            "generationId": told["generationId"],
            "groupInstanceId": "one",
            **more,
        },
    )
    beat("of who was replaced", old)
    beat("of who came", new)
    beat("of an unknown instance", new, groupInstanceId="two")
    join(b, "with the id of before", group, groupInstanceId="one", memberId=old)
    sync("of who was replaced", old, generation)
    b.ask(
        "of who was replaced",
        "OffsetCommit",
        9,
        {
            "groupId": group,
            "memberId": old,
            "generationIdOrMemberEpoch": generation,
            "groupInstanceId": "one",
            "topics": [
                {"name": "t-classic", "partitions": [{"partitionIndex": 0, "committedOffset": 1}]}
            ],
        },
    )
    b.ask(
        "by the id of before",
        "LeaveGroup",
        5,
        {"groupId": group, "members": [{"memberId": old, "groupInstanceId": "one"}]},
    )
    b.ask(
        "by the instance alone",
        "LeaveGroup",
        5,
        {
            "groupId": group,
            "members": [
                {"memberId": "", "groupInstanceId": "one"},
                {"memberId": "", "groupInstanceId": "two"},
            ],
        },
    )


def assigned(b, told, mine):
    """Heartbeats until the member has its partitions; its epoch then."""
    for _ in range(100):
        if (told["assignment"] or {}).get("topicPartitions"):
            break
        threading.Event().wait(0.1)
        body = {**mine, "rebalanceTimeoutMs": -1, "memberEpoch": told["memberEpoch"]}
        heard, _ = b.end(b.begin("ConsumerGroupHeartbeat", 1, body))
        told = heard if not heard["errorCode"] else told
    return told["memberEpoch"]


def consumer_groups(b):
    group = "g-848"
    topic(b, "t-848", 2)
    coordinator(b, group)
    mine = {"groupId": group, "memberId": MEMBERS[0], "rebalanceTimeoutMs": 30_000}

    def beat(step, version=1, until=None, **more):
        return b.ask(step, "ConsumerGroupHeartbeat", version, {**mine, **more}, until=until)

    first = {"memberEpoch": 0, "subscribedTopicNames": ["t-848"], "topicPartitions": []}
    beat("no group", groupId="", **first)
    beat("no member id", memberId="", **first)
    beat("no topics", memberEpoch=0, topicPartitions=[])
    beat("no time for rebalances", **{**first, "rebalanceTimeoutMs": -1})
    beat(
        "partitions that it cannot have yet",
        **{**first, "topicPartitions": [{"topicId": NO_TOPIC, "partitions": [0]}]},
    )
    beat("an unknown assignor", **first, serverAssignor="no such")
    beat("an empty assignor", **first, serverAssignor="")
    beat("an empty instance", **first, instanceId="")
    beat("an empty rack", **first, rackId="")
    beat(
        "a pattern that is none",
        **{**first, "subscribedTopicNames": None, "subscribedTopicRegex": "("},
    )
    beat("an epoch that was never given", memberEpoch=5)
    beat("a static one leaves for a while, without an instance", memberEpoch=-2)
    beat("an epoch below all", memberEpoch=-3)
    epoch = assigned(b, beat("joins", **first), mine)
    beat("goes on", memberEpoch=epoch)
    beat("of an epoch to come", memberEpoch=epoch + 5)
    beat("of nobody", memberEpoch=epoch, memberId=MEMBERS[1])
    beat("in an unknown group", memberEpoch=epoch, groupId="g-nowhere")
    for version in range(0, 2):
        b.ask(
            "it, and what there is not",
            "ConsumerGroupDescribe",
            version,
            {"groupIds": [group, "g-nowhere", ""]},
        )
    b.ask("as a classic one", "DescribeGroups", 6, {"groups": [group]})
    b.ask("by type", "ListGroups", 5, {"typesFilter": ["Consumer"]})
    join(b, "a classic member with an unknown id", group, memberId="nobody")
    b.ask(
        "as a classic member",
        "Heartbeat",
        4,
        {"groupId": group, "memberId": mine["memberId"], "generationId": epoch},
    )
    commit = lambda step, version, **more: b.ask(
        step,
        "OffsetCommit",
        version,
        {
            "groupId": group,
            "memberId": mine["memberId"],
            "generationIdOrMemberEpoch": epoch,
            "topics": [
                {"name": "t-848", "partitions": [{"partitionIndex": 0, "committedOffset": 3}]}
            ],
            **more,
        },
    )
    commit("of an old version", 8)
    commit("of a member", 9)
    commit("of an epoch to come", 9, generationIdOrMemberEpoch=epoch + 3)
    commit("of an epoch that is over", 9, generationIdOrMemberEpoch=0)
    commit("of nobody", 9, memberId="nobody")
    commit("of no member", 9, memberId="", generationIdOrMemberEpoch=-1)
    ask = lambda step, version=9, **more: b.ask(
        step,
        "OffsetFetch",
        version,
        {
            "groups": [
                {
                    "groupId": group,
                    "memberId": mine["memberId"],
                    "memberEpoch": epoch,
                    "topics": None,
                    **more,
                }
            ]
        },
    )
    ask("of a member")
    ask("of an epoch to come", memberEpoch=epoch + 3)
    ask("of an epoch that is over", memberEpoch=0)
    ask("of nobody", memberId="nobody")
    ask("of no member", memberId=None, memberEpoch=-1)
    b.ask("with members", "DeleteGroups", 2, {"groupsNames": [group]})
    b.ask(
        "offsets that are subscribed",
        "OffsetDelete",
        0,
        {"groupId": group, "topics": [{"name": "t-848", "partitions": [{"partitionIndex": 0}]}]},
    )
    beat("leaves", memberEpoch=-1)
    beat("leaves again", memberEpoch=-1)
    b.ask("an empty one", "ConsumerGroupDescribe", 1, {"groupIds": [group]})
    one = {"instanceId": "one", **first}
    told = beat("a static one joins", **one)
    told = {"memberEpoch": assigned(b, told, {"instanceId": "one", **mine})}
    beat("another of the same instance", memberId=MEMBERS[1], **one)
    beat("it leaves for a while", memberEpoch=-2, instanceId="one")
    beat("another takes its place", memberId=MEMBERS[2], **one)
    beat("it comes with the id of before", memberEpoch=told["memberEpoch"], instanceId="one")
    beat("an unknown instance", memberEpoch=1, instanceId="two")
    beat("the static one leaves", memberId=MEMBERS[2], memberEpoch=-1, instanceId="one")
    b.ask("it", "DeleteGroups", 2, {"groupsNames": [group]})
