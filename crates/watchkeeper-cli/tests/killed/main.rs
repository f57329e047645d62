//! After a SIGKILL, every acknowledged write exists exactly once, and watches resume where they were.
//!
//! `WATCHKEEPER_KILLS` says how often the server is killed (5 times), `WATCHKEEPER_SEED` at which moments.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(unix)]

mod http;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use http::{Connection, Watch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 4;

/// How many objects a writer keeps, about: what is more it deletes.
const POPULATION: usize = 30;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A server on a folder; killed when the test ends.
struct Server(Child);

impl Server {
    fn spawn(folder: &Path, address: SocketAddr) -> Self {
        let (data, kubeconfig) = (folder.join("data"), folder.join("kubeconfig"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
        command.args(["serve", "--insecure-http", "--listen", &address.to_string()]);
        command.arg("--data-dir").arg(data).arg("--kubeconfig-out").arg(kubeconfig);
        Self(
            command
                .env_remove("RUST_LOG")
                .env_remove("CLICOLOR_FORCE")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Where it listens, once it does.
    fn ready(&mut self) -> SocketAddr {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        url.unwrap_or_else(|| panic!("not ready: {line}")).parse().unwrap()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// One change of one object, as a watch tells it. The token is new with every write.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    kind: String,
    name: String,
    token: String,
    version: u64,
}

impl Event {
    fn read(event: &Value) -> Self {
        let object = &event["object"];
        Self {
            kind: event["type"].as_str().unwrap().to_owned(),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            token: object["data"]["token"].as_str().unwrap_or_default().to_owned(),
            version: version(object),
        }
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A write: what a watch is to tell of it, but for the version, which a delete does not answer.
#[derive(Clone, Debug)]
struct Write {
    kind: &'static str,
    name: String,
    token: String,
    version: Option<u64>,
}

impl Write {
    fn is(&self, event: &Event) -> bool {
        (self.kind, &self.name, &self.token) == (event.kind.as_str(), &event.name, &event.token)
            && self.version.is_none_or(|version| version == event.version)
    }
}

/// What a writer knows of an object of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    uid: String,
    version: u64,
    token: String,
}

/// One who writes over a connection of its own, under names of its own, one write after the other.
struct Writer {
    number: usize,
    generator: Generator,
    writes: u64,
    known: BTreeMap<String, Known>,
}

impl Writer {
    fn new(number: usize, generator: &Generator) -> Self {
        let generator = generator.fork(&format!("writer {number}"));
        Self { number, generator, writes: 0, known: BTreeMap::new() }
    }

    fn owns(&self, name: &str) -> bool {
        name.starts_with(&format!("w{}-", self.number))
    }

    /// Writes until the connection breaks. Every acknowledged write, and the one that was under way.
    fn storm(&mut self, address: SocketAddr, acknowledged: &Sender<()>) -> (Vec<Write>, Option<Write>) {
        let mut done = Vec::new();
        let Ok(mut connection) = Connection::open(address) else { return (done, None) };
        loop {
            let (mut write, method, path, body) = self.next();
            let Ok((code, answer)) = connection.send(method, &path, &body) else {
                return (done, Some(write));
            };
            assert!(code == 200 || code == 201, "{method} {path}: {answer}");
            if method != "DELETE" {
                let uid = answer["metadata"]["uid"].as_str().unwrap().to_owned();
                write.version = Some(version(&answer));
                let known = Known { uid, version: version(&answer), token: write.token.clone() };
                self.known.insert(write.name.clone(), known);
            } else {
                self.known.remove(&write.name);
            }
            done.push(write);
            // Nobody listens any more once the server is killed.
            let _counted = acknowledged.send(());
        }
    }

    fn next(&mut self) -> (Write, &'static str, String, Value) {
        self.writes += 1;
        let token = format!("t{}-{}", self.number, self.writes);
        let chosen = self.generator.below(self.known.len() as u64) as usize;
        let chosen = self.known.iter().nth(chosen).map(|(name, known)| (name.clone(), known.clone()));
        let object = |name: &str, version: &str| {
            json!({"metadata": {"name": name, "resourceVersion": version},
                "data": {"token": &token, "weight": "x".repeat(500)}})
        };
        let write = |kind, name: &str, token: &str| Write {
            kind,
            name: name.to_owned(),
            token: token.to_owned(),
            version: None,
        };
        match (chosen, self.generator.below(3)) {
            (Some((name, known)), 0) => {
                let body = object(&name, &known.version.to_string());
                (write("MODIFIED", &name, &token), "PUT", format!("{MAPS}/{name}"), body)
            }
            (Some((name, known)), draw) if draw == 1 || self.known.len() > POPULATION => {
                (write("DELETED", &name, &known.token), "DELETE", format!("{MAPS}/{name}"), Value::Null)
            }
            _ => {
                let name = format!("w{}-{}", self.number, self.writes);
                let body = object(&name, "");
                (write("ADDED", &name, &token), "POST", MAPS.to_owned(), body)
            }
        }
    }

    /// Takes what the server has now for what is known, after what must hold of it was checked.
    fn accept(&mut self, events: &[Event], done: &[Write], under_way: Option<&Write>, items: &[Value]) {
        let own: Vec<_> = events.iter().filter(|event| self.owns(&event.name)).collect();
        for (write, event) in done.iter().zip(&own) {
            assert!(write.is(event), "acknowledged {write:?}, and kept {event:?}");
        }
        assert!(own.len() >= done.len(), "lost: {:?}", &done[own.len()..]);
        match (&own[done.len()..], under_way) {
            ([], _) => {}
            ([event], Some(write)) => {
                assert!(write.is(event), "{write:?} was under way, and {event:?} is kept")
            }
            (more, write) => panic!("more than once: {more:?} of {write:?}"),
        }
        let mut kept = BTreeMap::new();
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap();
            if self.owns(name) {
                let uid = item["metadata"]["uid"].as_str().unwrap().to_owned();
                let token = item["data"]["token"].as_str().unwrap().to_owned();
                kept.insert(name.to_owned(), Known { uid, version: version(item), token });
            }
        }
        let uncertain = under_way.map(|write| write.name.as_str());
        let certain = |objects: &BTreeMap<String, Known>| -> BTreeMap<String, Known> {
            let certain = objects.iter().filter(|(name, _)| Some(name.as_str()) != uncertain);
            certain.map(|(name, known)| (name.clone(), known.clone())).collect()
        };
        assert_eq!(certain(&self.known), certain(&kept));
        self.known = kept;
    }
}

fn watch_from(address: SocketAddr, version: u64) -> Watch {
    let path = format!("{MAPS}?watch=1&resourceVersion={version}");
    Connection::open(address).unwrap().watch(&path).unwrap()
}

/// Everything after a version up to the object named `last`.
fn history(address: SocketAddr, after: u64, last: &str) -> Vec<Event> {
    let mut watch = watch_from(address, after);
    let mut events = Vec::new();
    loop {
        let event = Event::read(&watch.next().unwrap());
        assert_ne!(event.kind, "ERROR", "the history reaches that far");
        if event.name == last {
            return events;
        }
        events.push(event);
    }
}

/// What a watcher was told before the server died.
fn told(mut watch: Watch) -> Vec<Event> {
    let mut events = Vec::new();
    while let Ok(event) = watch.next() {
        events.push(Event::read(&event));
    }
    events
}

#[test]
fn no_acknowledged_write_is_lost_by_a_kill_and_none_is_there_twice() {
    let (kills, seed) = (number("WATCHKEEPER_KILLS", 5), number("WATCHKEEPER_SEED", 1));
    let generator = Generator::seeded(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut writers: Vec<_> = (0..WRITERS).map(|number| Writer::new(number, &generator)).collect();
    let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut server = Server::spawn(folder.path(), address);
    address = server.ready();
    let (mut newest, mut writes, mut uncertain, mut kept) = (0, 0, 0, 0);
    for round in 0..kills {
        let (_, list) = Connection::open(address).unwrap().send("GET", MAPS, &Value::Null).unwrap();
        let start = version(&list);
        assert!(start >= newest, "versions went back from {newest} to {start}");
        let watch = watch_from(address, start);
        let watcher = thread::spawn(move || told(watch));
        let (sender, acknowledged) = channel();
        let storm: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                let sender = sender.clone();
                thread::spawn(move || {
                    let (done, under_way) = writer.storm(address, &sender);
                    (writer, done, under_way)
                })
            })
            .collect();
        let moment = generator.below(400) as usize;
        assert_eq!(acknowledged.iter().take(moment).count(), moment, "the server ended by itself");
        server.kill();
        let storm: Vec<_> = storm.into_iter().map(|writer| writer.join().unwrap()).collect();
        let heard = watcher.join().unwrap();

        // Now and then it is killed again while it comes up.
        if generator.below(4) == 0 {
            server = Server::spawn(folder.path(), address);
            for _ in 0..generator.below(2_000) {
                thread::yield_now();
            }
            server.kill();
        }
        server = Server::spawn(folder.path(), address);
        assert_eq!(server.ready(), address);
        let mut connection = Connection::open(address).unwrap();
        let last = format!("last-{round}");
        let (_, list) = connection.send("GET", MAPS, &Value::Null).unwrap();
        let (code, marker) = connection.send("POST", MAPS, &json!({"metadata": {"name": last}})).unwrap();
        assert_eq!(code, 201, "{marker}");
        let events = history(address, start, &last);
        assert!(events.windows(2).all(|pair| pair[0].version < pair[1].version), "versions only grow");
        assert!(version(&marker) > events.last().map_or(start, |event| event.version));
        newest = version(&marker);
        // Nothing was told that is not there, and a watch goes on right after what it was told.
        assert_eq!(heard, events[..heard.len()]);
        let seen = heard.last().map_or(start, |event| event.version);
        assert_eq!(history(address, seen, &last), events[heard.len()..]);
        let items = list["items"].as_array().unwrap();
        writers = Vec::new();
        let mut done_in_all = 0;
        for (mut writer, done, under_way) in storm {
            done_in_all += done.len();
            uncertain += usize::from(under_way.is_some());
            writer.accept(&events, &done, under_way.as_ref(), items);
            writers.push(writer);
        }
        writes += done_in_all;
        kept += events.len() - done_in_all;
    }
    println!(
        "{kills} kills, seed {seed}: {writes} acknowledged writes, all there; {kept} of {uncertain} under way were kept"
    );
}
