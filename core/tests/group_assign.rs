//! What the assignors promise, for whatever members and topics: each partition has one subscriber,
//! loads are as even as subscriptions allow, who may keep something keeps it, and nothing is left
//! to chance.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quorate_core::group::assignment::Assignment;
use quorate_core::group::consumer::assign::{Subscriber, Targets, Wanted, range, uniform};
use quorate_core::id::TopicId;
use quorate_core::time::Instant;

/// Of members that are alike.
const RANK: (bool, Instant) = (false, Instant::ZERO);

fn topic(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let topics = prop::collection::btree_map((0_u8..5).prop_map(topic), 0_i32..9, 0..5);
    let all: Vec<TopicId> = (0..5).map(topic).collect();
    let subscribed = prop::sample::subsequence(all, 0..=5);
    let before = prop::collection::vec(((0_u8..5).prop_map(topic), 0_i32..12), 0..12);
    let rank = (any::<bool>(), 0_u64..3).prop_map(|(late, at)| (late, Instant::from_micros(at)));
    let members = prop::collection::btree_map("[a-f]", (subscribed, before, rank), 0..6);
    (topics, members).prop_map(|(topics, members)| {
        let mut taken = BTreeSet::new();
        let members = members.into_iter().map(|(name, (subscribed, before, rank))| {
            let before = before.into_iter().filter(|place| taken.insert(*place)).collect();
            let topics = subscribed.into_iter().collect();
            (name.clone(), Subscriber { topics, before, order: name, rank })
        });
        Wanted { members: members.collect(), topics }
    })
}

/// Everybody subscribes to everything.
fn alike(wanted: Wanted) -> Wanted {
    let all: BTreeSet<_> = wanted.topics.keys().copied().collect();
    let members = wanted
        .members
        .into_iter()
        .map(|(name, subscriber)| (name, Subscriber { topics: all.clone(), ..subscriber }));
    Wanted { members: members.collect(), topics: wanted.topics }
}

fn check_exclusive(wanted: &Wanted, targets: &Targets) {
    assert!(targets.keys().eq(wanted.members.keys()));
    let mut owners = BTreeMap::new();
    for (name, target) in targets {
        for (topic, partition) in target.iter() {
            assert!(wanted.members[name].topics.contains(&topic), "{name} does not subscribe");
            assert!((0..wanted.topics[&topic]).contains(&partition), "there is no such partition");
            assert!(owners.insert((topic, partition), name).is_none(), "two have it");
        }
    }
    for (&topic, &partitions) in &wanted.topics {
        if wanted.members.values().any(|member| member.topics.contains(&topic)) {
            assert!((0..partitions).all(|at| owners.contains_key(&(topic, at))), "nobody has it");
        }
    }
}

fn kept(wanted: &Wanted, targets: &Targets) -> usize {
    let each = wanted.members.iter();
    each.map(|(name, member)| member.before.and(&targets[name]).len()).sum()
}

/// Two have too much, and one too little: the one with more gives, and the other one keeps all.
#[test]
fn uniform_takes_from_whoever_has_most() {
    let places = |places: &[(u8, i32)]| {
        let mut assignment = Assignment::default();
        for (topic, at) in places {
            assignment.insert(TopicId([*topic; 16]), *at);
        }
        assignment
    };
    let member = |name: &str, before: Assignment| {
        let topics = [1, 2, 3].map(|topic| TopicId([topic; 16])).into();
        (name.to_owned(), Subscriber { topics, before, order: name.to_owned(), rank: RANK })
    };
    let wanted = Wanted {
        members: BTreeMap::from([
            member("a", places(&[(1, 2), (1, 3), (3, 0), (3, 1)])),
            member("b", places(&[])),
            member("c", places(&[(1, 0), (1, 1), (2, 0)])),
            member("d", places(&[])),
            member("e", places(&[])),
        ]),
        topics: [(1, 5), (2, 2), (3, 5)].map(|(topic, count)| (TopicId([topic; 16]), count)).into(),
    };
    let targets = uniform::assign(&wanted);
    check_exclusive(&wanted, &targets);
    assert_eq!(kept(&wanted, &targets), 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn uniform_is_exclusive_and_balanced(wanted in wanted()) {
        let targets = uniform::assign(&wanted);
        check_exclusive(&wanted, &targets);
        prop_assert_eq!(&targets, &uniform::assign(&wanted));
        for (rich, target) in &targets {
            for (poor, other) in &targets {
                let could = target.iter().any(|(topic, _)| {
                    wanted.members[poor].topics.contains(&topic)
                });
                prop_assert!(
                    !could || target.len() <= other.len() + 1,
                    "{} has {}, {} has {}", rich, target.len(), poor, other.len()
                );
            }
        }
    }

    #[test]
    fn uniform_moves_no_more_than_it_must(wanted in wanted()) {
        let wanted = alike(wanted);
        let targets = uniform::assign(&wanted);
        check_exclusive(&wanted, &targets);
        if wanted.members.is_empty() {
            return Ok(());
        }
        // Everybody keeps what fits into its share; the larger shares go where they are needed.
        let all: usize = wanted.topics.values().map(|count| *count as usize).sum();
        let (share, longer) = (all / wanted.members.len(), all % wanted.members.len());
        let had = |member: &Subscriber| {
            let count = |topic: &TopicId| wanted.topics.get(topic).copied().unwrap_or_default();
            member.before.iter().filter(|(topic, at)| *at < count(topic)).count()
        };
        let over = wanted.members.values().filter(|member| had(member) > share).count();
        let fitting: usize = wanted.members.values().map(|member| had(member).min(share)).sum();
        let most = fitting + over.min(longer);
        prop_assert_eq!(kept(&wanted, &targets), most);
        // And once it is balanced, nothing moves.
        let again = Wanted {
            members: wanted.members.iter().map(|(name, member)| {
                (name.clone(), Subscriber { before: targets[name].clone(), ..member.clone() })
            }).collect(),
            topics: wanted.topics.clone(),
        };
        prop_assert_eq!(uniform::assign(&again), targets);
    }

    #[test]
    fn range_gives_runs_and_the_same_of_topics_alike(wanted in wanted()) {
        let targets = range::assign(&wanted);
        check_exclusive(&wanted, &targets);
        prop_assert_eq!(&targets, &range::assign(&wanted));
        let wanted = alike(wanted);
        let targets = range::assign(&wanted);
        for target in targets.values() {
            let mut runs = BTreeMap::<i32, BTreeSet<Vec<i32>>>::new();
            for (&topic, &count) in &wanted.topics {
                let own = target.iter().filter(|place| place.0 == topic).map(|place| place.1);
                let own: Vec<i32> = own.collect();
                prop_assert!(own.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a run");
                runs.entry(count).or_default().insert(own);
            }
            prop_assert!(runs.values().all(|alike| alike.len() == 1), "co-partitioned");
        }
    }
}

#[test]
fn a_newcomer_takes_no_more_than_its_share() {
    let topics = BTreeMap::from([(topic(1), 1000)]);
    let member = |before: Assignment| Subscriber {
        topics: [topic(1)].into(),
        before,
        order: String::new(),
        rank: RANK,
    };
    let all: Assignment = (0..1000).map(|at| (topic(1), at)).collect();
    let members = BTreeMap::from([
        ("a".to_owned(), member(all)),
        ("b".to_owned(), member(Assignment::default())),
    ]);
    let targets = uniform::assign(&Wanted { members, topics });
    assert_eq!((targets["a"].len(), targets["b"].len()), (500, 500));
}

/// What is free goes to those who are heard soonest, and last to those who should have been heard.
#[test]
fn uniform_prefers_who_is_heard_first() {
    let member = |name: &str, rank| {
        let (topics, before) = ([topic(1)].into(), Assignment::default());
        (name.to_owned(), Subscriber { topics, before, order: name.to_owned(), rank })
    };
    let at = Instant::from_micros;
    let members = BTreeMap::from([
        member("a", (true, at(1))),
        member("b", (false, at(9))),
        member("c", (false, at(5))),
    ]);
    let topics = BTreeMap::from([(topic(1), 1)]);
    let targets = uniform::assign(&Wanted { members, topics });
    assert_eq!(["a", "b", "c"].map(|name| targets[name].len()), [0, 0, 1]);
}
