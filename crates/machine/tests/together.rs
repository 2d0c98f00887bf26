//! Atomic changes of several documents and a topic.

use std::collections::BTreeMap;

use base::TopicId;
use machine::{
    Check, Command, DocumentChange, DocumentsChange, Entry, EntryEffects, NewGroup, NewTopic,
    Outcome, Refusal, Role, State, TopicChange, decode_head, encode_head,
};
use uuid::Uuid;

fn run(state: &mut State, command: Command) -> Result<Outcome, Refusal> {
    let mut applied = EntryEffects::new();
    state.apply(&Entry { now_ms: 1, commands: &[command], ..Entry::default() }, &mut applied);
    applied.commands.pop().expect("each command is answered")
}

fn change(state: &mut State, change: DocumentsChange) -> Result<Outcome, Refusal> {
    let before = state.encode();
    let outcome = run(state, Command::ChangeDocuments(change));
    if outcome.is_err() {
        assert_eq!(before, state.encode(), "what is refused changes nothing");
    }
    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&*state));
    outcome
}

fn catalog() -> State {
    let mut state = State::of(Role::Catalog);
    run(&mut state, Command::SetShards { count: 2 }).expect("there are shards");
    state
}

fn put(name: &str, expect: Option<u64>) -> DocumentChange {
    let (space, name) = ("s".to_owned(), name.to_owned());
    DocumentChange { space, name, body: Some(vec![1]), expect }
}

fn delete(name: &str, expect: u64) -> DocumentChange {
    DocumentChange { body: None, ..put(name, Some(expect)) }
}

fn is(name: &str, version: u64) -> Check {
    Check::Document { space: "s".to_owned(), name: name.to_owned(), version }
}

fn under(prefix: &str, count: u64) -> Check {
    Check::Under { space: "s".to_owned(), prefix: prefix.to_owned(), count }
}

fn topic(name: &str, config: &[(&str, &str)]) -> TopicChange {
    let uuid = Uuid::from_u128(name.bytes().map(u128::from).sum());
    let (name, config_of_topic) = (name.to_owned(), BTreeMap::new());
    let topic = NewTopic { name, uuid, partitions: 1, config: config_of_topic };
    let config = config.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    TopicChange::Create { topic, group: Some(NewGroup { name: "main".to_owned(), config }) }
}

fn documents(documents: Vec<DocumentChange>) -> DocumentsChange {
    DocumentsChange { documents, ..DocumentsChange::default() }
}

fn names(state: &State) -> Vec<(String, u64)> {
    let documents = state.catalog.documents("s");
    documents.map(|(name, document)| (name.to_owned(), document.version)).collect()
}

#[test]
fn all_documents_change_or_none_does() {
    let mut state = catalog();
    change(&mut state, documents(vec![put("a", Some(0)), put("b", None)])).expect("they are free");
    assert_eq!(names(&state), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let refused = change(&mut state, documents(vec![delete("a", 1), put("b", Some(1))]));
    assert!(matches!(refused, Err(Refusal::DocumentConflict { version: 2, expected: 1, .. })));
    change(&mut state, documents(vec![delete("a", 1), put("b", Some(2))])).expect("as expected");
    assert_eq!(names(&state), [("b".to_owned(), 4)]);
    let refused = change(&mut state, documents(vec![put("c", None), delete("a", 0)]));
    assert!(matches!(refused, Err(Refusal::UnknownDocument { .. })));
}

#[test]
fn nothing_changes_where_a_check_fails() {
    let mut state = catalog();
    change(&mut state, documents(vec![put("x/1", None), put("x/2", None), put("y", None)]))
        .expect("they are free");
    for (checks, fits) in [
        (vec![is("x/1", 1), is("z", 0), under("x/", 2), under("y", 1), under("z", 0)], true),
        (vec![is("x/1", 2)], false),
        (vec![is("z", 1)], false),
        (vec![under("x/", 1)], false),
        (vec![under("x/", 3)], false),
        (vec![under("", u64::MAX)], false),
        (vec![Check::Topic(TopicId(0))], false),
    ] {
        let made = documents(vec![put("y", None)]);
        let outcome = change(&mut state, DocumentsChange { checks: checks.clone(), ..made });
        assert_eq!(outcome.is_ok(), fits, "{checks:?}");
    }
}

#[test]
fn a_topic_is_made_and_deleted_with_its_documents() {
    let mut state = catalog();
    let made = DocumentsChange {
        topic: topic("q", &[("lease.ms", "0")]),
        ..documents(vec![put("q", Some(0))])
    };
    change(&mut state, made.clone()).expect("it is made");
    let id = state.catalog.topic_named("q").expect("the topic is there").id;
    assert!(state.catalog.lease_group_named(id, "main").is_some());
    let version = state.catalog.version();
    // The topic stands in the way, so the document does not change either.
    let again = DocumentsChange { documents: vec![put("q", None)], ..made.clone() };
    assert!(matches!(change(&mut state, again), Err(Refusal::TopicExists { .. })));
    let wrong = DocumentsChange {
        topic: topic("other", &[("lease.ms", "never")]),
        ..documents(vec![put("other", None)])
    };
    assert!(matches!(change(&mut state, wrong), Err(Refusal::InvalidConfig(_))));
    let gone =
        DocumentsChange { topic: TopicChange::Delete(id), ..documents(vec![delete("q", 1)]) };
    change(&mut state, gone.clone()).expect("it is deleted");
    assert!(state.catalog.topic_named("q").is_none() && names(&state).is_empty());
    assert!(state.catalog.version() > version, "shards hear of it");
    assert!(matches!(change(&mut state, gone), Err(Refusal::UnknownTopic { .. })));
}

#[test]
fn the_persisted_form_does_not_change() {
    let (topic, group) = (TopicId(5), || "g".to_owned());
    let persisted: [(Command, &[u8]); 2] = [
        (
            Command::ChangeDocuments(DocumentsChange {
                checks: vec![
                    Check::Document { space: group(), name: group(), version: 3 },
                    Check::Topic(topic),
                    Check::Under { space: group(), prefix: group(), count: 2 },
                ],
                documents: vec![DocumentChange {
                    space: group(),
                    name: group(),
                    body: None,
                    expect: Some(3),
                }],
                topic: TopicChange::Delete(topic),
            }),
            &[
                27, 3, 0, 1, b'g', 1, b'g', 3, 1, 5, 2, 1, b'g', 1, b'g', 2, 1, 1, b'g', 1, b'g',
                0, 1, 3, 2, 5,
            ],
        ),
        (
            Command::ChangeDocuments(DocumentsChange {
                topic: TopicChange::Create {
                    topic: NewTopic {
                        name: group(),
                        uuid: Uuid::from_u128(1),
                        partitions: 1,
                        config: BTreeMap::new(),
                    },
                    group: Some(NewGroup { name: group(), config: BTreeMap::new() }),
                },
                ..DocumentsChange::default()
            }),
            &[
                27, 0, 0, 1, 1, b'g', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1,
                b'g', 0,
            ],
        ),
    ];
    for (command, bytes) in persisted {
        let head = encode_head(3, std::slice::from_ref(&command), &[]);
        assert_eq!(&head[4..], bytes, "{command:?}");
        assert_eq!(decode_head(&head).map(|head| head.commands), Ok(vec![command]));
    }
}
