"""Why an answer of ours is not Kafka's: what the step is like, what the field is like, and why."""

NOT_SERVED = (
    "not part of this version: ACLs, SASL, delegation tokens, quotas, share and stream groups, "
    "telemetry, directories; a client sees so in ApiVersions"
)
CONFIGS = "a setting that the other broker does not have"
FORGOTTEN = (
    "a group that was forgotten: with this answer its members join again, with Kafka's they give up"
)

REASONS = [
    (r"ApiVersions", r"apiKeys", NOT_SERVED),
    (
        r"no name \(ApiVersions",
        r"Features",
        "told with the error as well; clients read nothing of it",
    ),
    (
        r"ApiVersions",
        r"Features",
        "features of what is not part of this version, and levels below which "
        "nothing was ever written here",
    ),
    (r"CreateTopics", r"configs\[(errors|local|remote|max\.decompressed|quorate)", CONFIGS),
    (
        r"CreateTopics",
        r"configs\[min\.insync",
        "configured in Kafka's sample settings, a default here",
    ),
    (r"CreateTopics", r"\.configs$", "nothing is told of a topic that was not made"),
    (r"only asked about", r"topics", "no id is drawn for a topic that is not made"),
    (
        r"t-nowhere-yet|one that is not there \(Metadata v[0-3]\)",
        r"",
        "a topic that is made by asking is " "there when the answer is; Kafka answers first",
    ),
    (r"JoinGroup", r"memberId", "the client's own id is told back to it with the refusal"),
    (
        r"(of an unknown group|in an unknown group|an epoch that was never given) \(",
        r"errorCode",
        FORGOTTEN,
    ),
    (
        r"ConsumerGroupHeartbeat",
        r"heartbeatIntervalMs",
        "a member that waits for partitions is asked to come sooner, and one that has all at its "
        "own turn of the interval; one that leaves is told what it was told before",
    ),
    (
        r"(joins|takes its place) \(ConsumerGroupHeartbeat",
        r"assignment",
        "which heartbeat brings the "
        "partitions is a matter of time; that they come is waited for",
    ),
    (
        r"goes on \(ConsumerGroupHeartbeat",
        r"assignment",
        "told again until the member says that it has " "it: an answer may have been lost",
    ),
    (
        r"ConsumerGroupDescribe",
        r"subscribedTopicRegex",
        "null where there is none, as the message's " "description says",
    ),
    (
        r"is told again",
        r"logAppendTimeMs",
        "a batch with the client's timestamps has no append time, "
        "when it is told again as when it was told first",
    ),
    (r"Produce", r"logStartOffset", "not told with a refusal"),
    (
        r"acks of two",
        r"",
        "acks=2 asks for two durable copies, which one node does not have (ruling: "
        "acks above 1 are kept)",
    ),
    (r"nothing \(Produce", r"", "a sentence instead of a closed connection"),
    (r"without a key", r"Message$", "another sentence"),
    (r"Fetch", r"abortedTransactions$", "empty rather than null with an error"),
    (r"twice the same partition", r"", "each is answered; Kafka refuses both"),
    (r"an unknown operation", r"", "INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR"),
    (r"no value", r"", "INVALID_CONFIG and a sentence; Kafka says INVALID_REQUEST"),
    (
        r"no topic \(DescribeConfigs",
        r"",
        "UNKNOWN_TOPIC_OR_PARTITION; Kafka says INVALID_TOPIC_EXCEPTION",
    ),
    (r"without a name \(Produce v11", r"", "INVALID_TXN_STATE: there are no authorizations here"),
    (
        r"beside it \(Produce",
        r"errorCode",
        "TRANSACTION_ABORTABLE, so that the producer can abort and go "
        "on; Kafka's INVALID_TXN_STATE is its end",
    ),
    (
        r"DescribeTransactions",
        r"",
        "no producer id with an error: -1; Kafka leaves 0, which is somebody's",
    ),
    (
        r"of no group \(AddOffsetsToTxn",
        r"",
        "offsets of a group without a name are not kept in " "transactions",
    ),
    (r"internal: .*DeleteTopics", r"", "internal topics are not deleted"),
]
