"""All that both brokers are asked, in this order. Each scenario has names of its own; a step is a
request and its answer, named for what is asked."""

from groups import classic_groups, consumer_groups, static_members
from logs import producers, reading
from topics import coordinators, internal, settings, topics, versions
from transactions import transactions

ALL = [
    versions,
    topics,
    coordinators,
    classic_groups,
    static_members,
    consumer_groups,
    producers,
    reading,
    settings,
    transactions,
    internal,
]
