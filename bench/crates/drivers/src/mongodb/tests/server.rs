//! A server in memory that speaks MongoDB's wire protocol (`OP_MSG`): documents by `_id`, found by
//! their next delivery.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use mongodb::bson::{Bson, DateTime, Document, doc};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stand_in::{Door, Planned};

const OP_MSG: i32 = 2013;
const HEADER_BYTES: usize = 16;

#[derive(Clone)]
pub(super) struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// By command.
    planned: Planned<Document>,
}

#[derive(Default)]
struct State {
    collections: HashMap<String, BTreeMap<Vec<u8>, Document>>,
    asked: Vec<(String, Document)>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let door = Door::open().await;
        let server =
            Self { address: door.address, state: Arc::default(), planned: Planned::default() };
        let serving = server.clone();
        door.serve(move |stream| serving.clone().serve(stream));
        server
    }

    pub(super) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Requests with this command so far, the latest last.
    pub(super) fn requests(&self, command: &str) -> Vec<Document> {
        let state = self.state.lock();
        let asked = state.asked.iter().filter(|(name, _)| name == command);
        asked.map(|(_, asked)| asked.clone()).collect()
    }

    pub(super) fn answer_once(&self, command: &str, answer: Document) {
        self.planned.once(command, answer);
    }

    async fn serve(self, mut stream: TcpStream) {
        while let Some((id, asked)) = read(&mut stream).await {
            let command = asked.keys().next().expect("a command").clone();
            let planned = self.planned.take(&command);
            let answer = planned.unwrap_or_else(|| self.state.lock().answer(&command, asked));
            let mut body = vec![0; 5];
            answer.to_writer(&mut body).expect("can be written");
            let length = (HEADER_BYTES + body.len()) as i32;
            let mut message: Vec<u8> =
                [length, 0, id, OP_MSG].into_iter().flat_map(i32::to_le_bytes).collect();
            message.extend(body);
            if stream.write_all(&message).await.is_err() {
                return;
            }
        }
    }
}

impl State {
    fn answer(&mut self, command: &str, asked: Document) -> Document {
        let collection = asked.get_str(command).unwrap_or_default().to_owned();
        self.asked.push((command.to_owned(), asked.clone()));
        let documents = self.collections.entry(collection).or_default();
        match command {
            "hello" | "isMaster" | "ismaster" => hello(),
            "buildInfo" => doc! { "ok": 1, "version": "8.0.0" },
            "createIndexes" | "endSessions" => doc! { "ok": 1 },
            "drop" => {
                documents.clear();
                doc! { "ok": 1 }
            }
            "insert" => {
                let new = array(&asked, "documents");
                let count = new.len() as i32;
                documents.extend(new.into_iter().map(|new| (key(new.get("_id")), new)));
                doc! { "ok": 1, "n": count }
            }
            "findAndModify" => {
                let filter = asked.get_document("query").expect("a filter");
                let by_time = filter.get_document("next_delivery").expect("by time");
                let now = by_time.get_datetime("$lte").expect("a time");
                // Without a sort the order is arbitrary; the youngest comes first here.
                let due = |document: &&mut Document| next_delivery(document) <= *now;
                let found = if asked.contains_key("sort") {
                    documents.values_mut().find(due)
                } else {
                    documents.values_mut().rev().find(due)
                };
                let found = found.map(|document| {
                    change(document, asked.get_document("update").expect("an update"));
                    document.clone()
                });
                doc! { "ok": 1, "value": found.map_or(Bson::Null, Bson::Document) }
            }
            "update" => {
                let statement = array(&asked, "updates").remove(0);
                let ids = ids(statement.get_document("q").expect("a filter"));
                let update = statement.get_document("u").expect("an update");
                for id in &ids {
                    if let Some(document) = documents.get_mut(id) {
                        change(document, update);
                    }
                }
                doc! { "ok": 1, "n": ids.len() as i32, "nModified": ids.len() as i32 }
            }
            "delete" => {
                let statement = array(&asked, "deletes").remove(0);
                let ids = ids(statement.get_document("q").expect("a filter"));
                let deleted = ids.iter().filter(|id| documents.remove(*id).is_some()).count();
                doc! { "ok": 1, "n": deleted as i32 }
            }
            other => panic!("{other}"),
        }
    }
}

fn hello() -> Document {
    doc! {
        "ok": 1, "helloOk": true, "ismaster": true, "isWritablePrimary": true, "minWireVersion": 0,
        "maxWireVersion": 25, "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "localTime": DateTime::now(), "readOnly": false,
    }
}

fn next_delivery(document: &Document) -> DateTime {
    *document.get_datetime("next_delivery").expect("has a time")
}

fn change(document: &mut Document, update: &Document) {
    for (name, value) in update.get_document("$set").into_iter().flatten() {
        document.insert(name, value.clone());
    }
    for (name, by) in update.get_document("$inc").into_iter().flatten() {
        let before = document.get_i32(name).expect("a number");
        document.insert(name, before + by.as_i32().expect("a number"));
    }
}

fn key(id: Option<&Bson>) -> Vec<u8> {
    match id {
        Some(Bson::Binary(id)) => id.bytes.clone(),
        other => panic!("{other:?}"),
    }
}

fn ids(filter: &Document) -> Vec<Vec<u8>> {
    let among = filter.get_document("_id").and_then(|among| among.get_array("$in"));
    among.expect("some ids").iter().map(|id| key(Some(id))).collect()
}

fn array(asked: &Document, name: &str) -> Vec<Document> {
    let all = asked.get_array(name).expect(name);
    all.iter().map(|one| one.as_document().expect("a document").clone()).collect()
}

/// Reads the id of a message and its command, merged with its document sequences.
async fn read(stream: &mut TcpStream) -> Option<(i32, Document)> {
    let length = stream.read_i32_le().await.ok()? as usize;
    let id = stream.read_i32_le().await.ok()?;
    let (_, code) = (stream.read_i32_le().await.ok()?, stream.read_i32_le().await.ok()?);
    assert_eq!(code, OP_MSG);
    let mut body = vec![0; length - HEADER_BYTES];
    stream.read_exact(&mut body).await.ok()?;
    let mut rest = &body[4..];
    let (mut asked, mut beside) = (Document::new(), Vec::new());
    while let Some((kind, section)) = rest.split_first() {
        rest = section;
        if *kind == 0 {
            asked = document(&mut rest);
            continue;
        }
        let size = i32::from_le_bytes(*rest.first_chunk().expect("a size")) as usize;
        let (sequence, behind) = rest.split_at(size);
        rest = behind;
        let end = sequence[4..].iter().position(|byte| *byte == 0).expect("an end") + 4;
        let name = String::from_utf8_lossy(&sequence[4..end]).into_owned();
        let mut left = &sequence[end + 1..];
        let mut documents = Vec::new();
        while !left.is_empty() {
            documents.push(Bson::Document(document(&mut left)));
        }
        beside.push((name, documents));
    }
    for (name, documents) in beside {
        asked.insert(name, documents);
    }
    Some((id, asked))
}

fn document(bytes: &mut &[u8]) -> Document {
    Document::from_reader(bytes).expect("is a document")
}
