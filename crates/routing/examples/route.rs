//! Time of one message through 100,000 bindings, by kind: `cargo run --release -p routing --example
//! route`.

#![expect(clippy::disallowed_types, reason = "it measures the time of this machine")]

use std::hint::black_box;
use std::time::Instant;

use routing::headers::Pattern;
use routing::{
    Arguments, BindingTarget, HeaderMatch, HeaderPattern, Headers, Kind, Message, Network,
    NoHeaders, NodeOptions, Property, Route, Value,
};

const BINDINGS: u32 = 100_000;
const MESSAGES: u32 = 1_000_000;

struct User(i64);

impl Headers for User {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "kind" => Some(Value::Bytes(b"order")),
            "user" => Some(Value::Integer(self.0)),
            _ => None,
        }
    }

    fn each(&self, see: &mut dyn FnMut(&str, Value<'_>)) {
        see("kind", Value::Bytes(b"order"));
        see("user", Value::Integer(self.0));
    }

    fn property(&self, _property: Property) -> Option<Value<'_>> {
        None
    }
}

fn measure<H: Headers>(
    what: &str,
    kind: &Kind,
    bind: impl Fn(&mut Network<u32>, u32, BindingTarget),
    headers: impl Fn(u32) -> H,
    key: impl Fn(u32) -> String,
) {
    let mut network = Network::new();
    network.add_node("x", kind, NodeOptions::default());
    let started = Instant::now();
    for number in 0..BINDINGS {
        let sink = network.add_sink(number.to_string(), number);
        bind(&mut network, number, BindingTarget::Sink(sink));
    }
    let made = started.elapsed() / BINDINGS;
    let keys: Vec<String> = (0..1_000).map(|number| key(number * 97 % BINDINGS)).collect();
    let headers: Vec<H> = (0..1_000).map(|number| headers(number * 97 % BINDINGS)).collect();
    let node = network.node_named("x").expect("the node was made");
    let mut route = Route::default();
    let (mut reached, started) = (0, Instant::now());
    for number in 0..MESSAGES as usize {
        let message = Message {
            keys: &[keys[number % 1_000].as_str()],
            headers: &headers[number % 1_000],
            deferred: false,
        };
        network.route(node, black_box(&message), &mut route);
        reached += route.sinks.len();
    }
    let took = started.elapsed() / MESSAGES;
    println!(
        "{what:32} bind {made:?}, route {took:?}, {:.1} sinks each",
        reached as f64 / f64::from(MESSAGES)
    );
}

fn main() {
    let by_key = |make: fn(u32) -> String| {
        move |network: &mut Network<u32>, number: u32, target: BindingTarget| {
            let node = network.node_named("x").expect("the node was made");
            network.bind(node, Arguments::Key(&make(number)), target);
        }
    };
    let plain: fn(u32) -> String = |n| format!("eu.orders.{}.{}.new", n % 100, n);
    let stars: fn(u32) -> String = |n| format!("*.orders.*.{n}.*");
    let hashes: fn(u32) -> String = |n| format!("#.{n}.#");
    measure("direct", &Kind::Direct, by_key(plain), |_| NoHeaders, plain);
    measure("topic, words", &Kind::Topic, by_key(plain), |_| NoHeaders, plain);
    measure("topic, *.orders.*.ID.*", &Kind::Topic, by_key(stars), |_| NoHeaders, plain);
    measure("topic, #.ID.#", &Kind::Topic, by_key(hashes), |_| NoHeaders, plain);
    measure(
        "headers, all of two",
        &Kind::Headers,
        |network, number, target| {
            let node = network.node_named("x").expect("the node was made");
            let pairs = vec![
                ("kind".into(), Pattern::Bytes(b"order".as_slice().into())),
                ("user".into(), Pattern::Integer(number.into())),
            ];
            let pattern = HeaderPattern { which: HeaderMatch::All, pairs };
            network.bind(node, Arguments::Headers(&pattern), target);
        },
        |number| User(number.into()),
        plain,
    );
}
