//! Every kind of node, and the graph of them, compared with a matcher that tries every binding.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use routing::headers::Pattern;
use routing::{
    Arguments, BindingTarget, HeaderMatch, HeaderPattern, Headers, Kind, Message, Network,
    NoHeaders, NodeOptions, Property, Route, Value,
};

/// A message's headers, small enough to match bindings often.
#[derive(Clone, Debug)]
struct Table(BTreeMap<String, Pattern>);

fn value(pattern: &Pattern) -> Value<'_> {
    match pattern {
        Pattern::Void => Value::Void,
        Pattern::Bool(yes) => Value::Bool(*yes),
        Pattern::Integer(number) => Value::Integer(*number),
        Pattern::Float(number) => Value::Float(*number),
        Pattern::Bytes(bytes) => Value::Bytes(bytes),
        Pattern::Encoded(bytes) => Value::Encoded(bytes),
    }
}

impl Headers for Table {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).map(value)
    }

    fn each(&self, see: &mut dyn FnMut(&str, Value<'_>)) {
        self.0.iter().for_each(|(name, pattern)| see(name, value(pattern)));
    }

    fn property(&self, _property: Property) -> Option<Value<'_>> {
        None
    }
}

fn words(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

fn naive_topic(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => {
            (0..=key.len()).any(|skipped| naive_topic(rest, &key[skipped..]))
        }
        (Some((&"*", rest)), Some((_, key))) => naive_topic(rest, key),
        (Some((word, rest)), Some((first, key))) if word == first => naive_topic(rest, key),
        _ => false,
    }
}

fn naive_headers(pattern: &HeaderPattern, table: &Table) -> bool {
    let meets = |(name, wanted): &(Box<str>, Pattern)| match table.0.get(&**name) {
        None => false,
        Some(found) => *wanted == Pattern::Void || wanted == found,
    };
    match pattern.which {
        HeaderMatch::All => pattern.pairs.iter().all(meets),
        HeaderMatch::Any => pattern.pairs.iter().any(meets),
    }
}

fn key() -> impl Strategy<Value = String> {
    vec("[ab]?", 0..6).prop_map(|words| words.join("."))
}

fn pattern() -> impl Strategy<Value = String> {
    vec("[ab*#]?", 0..6).prop_map(|words| words.join("."))
}

fn pair_value() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        Just(Pattern::Void),
        any::<bool>().prop_map(Pattern::Bool),
        (0_i64..3).prop_map(Pattern::Integer),
        prop_oneof![Just(0.0), Just(-0.0), Just(1.0)].prop_map(Pattern::Float),
        "[xy]?".prop_map(|text: String| Pattern::Bytes(text.into_bytes().into())),
    ]
}

fn header_pattern() -> impl Strategy<Value = HeaderPattern> {
    let which = prop_oneof![Just(HeaderMatch::All), Just(HeaderMatch::Any)];
    (which, vec(("[abc]".prop_map(Box::from), pair_value()), 0..4))
        .prop_map(|(which, pairs)| HeaderPattern { which, pairs })
}

fn reached<H: Headers>(
    network: &Network<usize>,
    start: &str,
    keys: &[&str],
    headers: &H,
) -> Vec<usize> {
    let mut route = Route::default();
    let message = Message { keys, headers, deferred: false };
    let start = network.node_named(start).expect("the node is there");
    network.route(start, &message, &mut route);
    let mut sinks: Vec<_> =
        route.sinks.iter().map(|(sink, _)| *network.sink(*sink).expect("a sink")).collect();
    sinks.sort_unstable();
    sinks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Bindings are added and removed; a key reaches each sink with a matching one, once.
    #[test]
    fn topics_match_as_trying_every_binding_does(
        steps in vec((any::<bool>(), pattern(), 0_usize..4), 0..40),
        keys in vec(key(), 1..4),
    ) {
        let mut network = Network::new();
        let node = network.add_node("x", &Kind::Topic, NodeOptions::default());
        let sinks: Vec<_> = (0..4).map(|n| network.add_sink(n.to_string(), n)).collect();
        let mut bindings: Vec<(String, usize)> = Vec::new();
        for (bind, pattern, sink) in steps {
            // `#.#` and `#` are one pattern to the trie, as they are to messages.
            let target = BindingTarget::Sink(sinks[sink]);
            let place = bindings.iter().position(|known| *known == (pattern.clone(), sink));
            if bind {
                network.bind(node, Arguments::Key(&pattern), target);
                bindings.push((pattern, sink));
            } else if let Some(place) = place {
                prop_assert!(network.unbind(node, Arguments::Key(&pattern), target));
                bindings.remove(place);
            }
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let fits = |(pattern, _): &&(String, usize)| {
            keys.iter().any(|key| naive_topic(&words(pattern), &words(key)))
        };
        let expected: BTreeSet<usize> =
            bindings.iter().filter(fits).map(|(_, sink)| *sink).collect();
        let found = reached(&network, "x", &keys, &NoHeaders);
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn headers_match_as_trying_every_binding_does(
        steps in vec((any::<bool>(), header_pattern(), 0_usize..4), 0..30),
        table in btree_map("[abcd]", pair_value(), 0..4).prop_map(Table),
    ) {
        let mut network = Network::new();
        let node = network.add_node("x", &Kind::Headers, NodeOptions::default());
        let sinks: Vec<_> = (0..4).map(|n| network.add_sink(n.to_string(), n)).collect();
        let mut bindings: Vec<(HeaderPattern, usize)> = Vec::new();
        for (bind, pattern, sink) in steps {
            let target = BindingTarget::Sink(sinks[sink]);
            let place = bindings.iter().position(|known| *known == (pattern.clone(), sink));
            if bind {
                network.bind(node, Arguments::Headers(&pattern), target);
                bindings.push((pattern, sink));
            } else {
                prop_assert_eq!(
                    network.unbind(node, Arguments::Headers(&pattern), target),
                    place.is_some()
                );
                place.map(|place| bindings.remove(place));
            }
        }
        let fits = |(pattern, _): &&(HeaderPattern, usize)| naive_headers(pattern, &table);
        let expected: BTreeSet<usize> =
            bindings.iter().filter(fits).map(|(_, sink)| *sink).collect();
        let found = reached(&network, "x", &[""], &table);
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    /// Any graph, including cycles and alternates: exactly the reachable sinks are reached.
    #[test]
    fn message_reaches_each_reachable_sink_once(
        kinds in vec(any::<bool>(), 5),
        alternates in vec(proptest::option::of(0_usize..6), 5),
        bindings in vec((0_usize..5, "[ab]", 0_usize..10), 0..25),
        key in "[abc]",
    ) {
        let mut network = Network::new();
        let nodes: Vec<_> = (0..5).map(|node| {
            let kind = if kinds[node] { Kind::Fanout } else { Kind::Direct };
            // Node 5 does not exist.
            let alternate = alternates[node].map(|other| other.to_string().into());
            network.add_node(&node.to_string(), &kind, NodeOptions { alternate, defers: false })
        }).collect();
        let sinks: Vec<_> = (0..5).map(|n| network.add_sink(n.to_string(), n)).collect();
        let target = |place: usize| match place {
            0..5 => BindingTarget::Node(nodes[place]),
            _ => BindingTarget::Sink(sinks[place - 5]),
        };
        for (node, binding_key, place) in &bindings {
            network.bind(nodes[*node], Arguments::Key(binding_key), target(*place));
        }
        let mut visited = BTreeSet::from([0]);
        let mut expected = BTreeSet::new();
        let mut waiting = vec![0];
        while let Some(node) = waiting.pop() {
            let fits = |(from, binding_key, _): &&(usize, String, usize)| {
                *from == node && (kinds[node] || *binding_key == key)
            };
            let mut places: Vec<_> = bindings.iter().filter(fits).map(|(_, _, to)| *to).collect();
            if places.is_empty() {
                places.extend(alternates[node].filter(|other| *other < 5));
            }
            for place in places {
                if place >= 5 {
                    expected.insert(place - 5);
                } else if visited.insert(place) {
                    waiting.push(place);
                }
            }
        }
        let found = reached(&network, "0", &[key.as_str()], &NoHeaders);
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn message_deferred_on_only_one_path_arrives_twice() {
    let mut network = Network::new();
    let entry = network.add_node("in", &Kind::Fanout, NodeOptions::default());
    let holding = NodeOptions { defers: true, alternate: None };
    let slow = network.add_node("slow", &Kind::Fanout, holding);
    let both = network.add_sink("both", 0);
    let late = network.add_sink("late", 1);
    network.bind(entry, Arguments::Key(""), BindingTarget::Node(slow));
    network.bind(entry, Arguments::Key(""), BindingTarget::Sink(both));
    network.bind(slow, Arguments::Key(""), BindingTarget::Sink(both));
    network.bind(slow, Arguments::Key(""), BindingTarget::Sink(late));
    let mut route = Route::default();
    let mut message = Message { keys: &[""], headers: &NoHeaders, deferred: true };
    network.route(entry, &message, &mut route);
    assert_eq!(route.sinks, [(both, false), (both, true), (late, true)]);
    message.deferred = false;
    network.route(entry, &message, &mut route);
    assert_eq!(route.sinks, [(both, false), (late, false)]);
}

#[test]
fn names_node_routes_to_the_sink_named_by_the_key() {
    let mut network = Network::new();
    network.add_node("", &Kind::Names, NodeOptions::default());
    network.add_sink("a", 7);
    let keys = ["a", "nobody", "a"];
    assert_eq!(reached(&network, "", &keys, &NoHeaders), [7]);
    let sink = network.sink_named("a").expect("the sink is there");
    assert_eq!(network.remove_sink(sink), Some(7));
    assert_eq!(reached(&network, "", &keys, &NoHeaders), [0_usize; 0]);
}
