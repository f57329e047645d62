//! Damage to a data directory: it is refused with a remedy, never served as other data, and never a panic.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower::ServiceExt as _;
use watchkeeper::Env;
use watchkeeper::clock::Generator;
use watchkeeper_apiserver::{ApiServer, DataDirError};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(server: &ApiServer, method: &str, path: &str, body: String) -> (u16, Bytes) {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
}

/// Creates objects of several kinds, updates some and deletes some.
async fn fill(server: &ApiServer) {
    let definition = json!({"metadata": {"name": "lamps.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Lamp", "plural": "lamps"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(send(server, "POST", DEFINITIONS, definition.to_string()).await.0, 201);
    let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}});
    assert_eq!(send(server, "POST", "/apis/example.com/v1/lamps", lamp.to_string()).await.0, 201);
    for number in 0..60 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "v".repeat(number * 20)}});
        assert_eq!(send(server, "POST", MAPS, map.to_string()).await.0, 201);
    }
    for number in 0..20 {
        let path = format!("{MAPS}/m{number}");
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"changed": "yes"}});
        assert_eq!(send(server, "PUT", &path, map.to_string()).await.0, 200);
        if number % 2 == 0 {
            assert_eq!(send(server, "DELETE", &path, String::new()).await.0, 200);
        }
    }
}

/// Reads everything a client can see of a server, current and past.
async fn seen(server: &ApiServer, first: u64) -> Vec<(u16, Bytes)> {
    let mut seen = vec![(0, server.revision().to_string().into())];
    for path in ["/api/v1/namespaces", "/api/v1/services", DEFINITIONS, "/apis/example.com/v1/lamps", MAPS] {
        seen.push(send(server, "GET", path, String::new()).await);
    }
    for at in (first..server.revision()).step_by(17) {
        let path = format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact");
        seen.push(send(server, "GET", &path, String::new()).await);
    }
    seen
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(folder: &Path) -> Files {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Makes the folder contain exactly these files.
fn put(folder: &Path, files: &Files) {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, contents) in files {
        fs::write(path, contents).unwrap();
    }
}

/// Damage to one file of a data directory.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip(usize, u8),
    Cut(usize),
    /// 4096 bytes become zero.
    Blank(usize),
    /// The file is as it was one write before.
    Older,
    /// The file and the next one exchange their contents.
    Swap,
    Remove,
}

impl Harm {
    fn apply(self, file: &Path, files: &mut Files, older: &Files) {
        let contents = files.get_mut(file).unwrap();
        match self {
            Self::Flip(at, bit) => contents[at] ^= 1 << bit,
            Self::Cut(length) => contents.truncate(length),
            Self::Blank(at) => contents.iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
            Self::Older => *contents = older[file].clone(),
            Self::Swap => {
                let other = files.keys().find(|other| *other > file).or(files.keys().next()).unwrap().clone();
                let (here, there) = (files[file].clone(), files[&other].clone());
                files.extend([(file.to_owned(), there), (other, here)]);
            }
            Self::Remove => drop(files.remove(file)),
        }
    }
}

/// Random damage. Half of the flipped bits are in headers and small files.
fn harms(files: &Files, generator: &Generator, count: usize) -> Vec<(PathBuf, Harm)> {
    let mut harms = Vec::new();
    for (path, contents) in files {
        let below = |length: usize| generator.below(length as u64) as usize;
        // The database's header with its two slots, and the small files.
        let (head, used): (Vec<_>, Vec<_>) =
            (0..contents.len()).filter(|at| *at < 320 || contents[*at] != 0).partition(|at| *at < 320);
        let mut of_file = vec![Harm::Cut(0), Harm::Cut(contents.len() - 1)];
        for part in [head, used].iter().filter(|part| !part.is_empty()) {
            of_file.extend((0..count).map(|_| Harm::Flip(part[below(part.len())], below(8) as u8)));
            of_file.extend((0..count / 10).map(|_| Harm::Cut(part[below(part.len())])));
            of_file.extend((0..count / 10).map(|_| Harm::Blank(part[below(part.len())] / 4096 * 4096)));
        }
        of_file.extend([Harm::Older, Harm::Swap, Harm::Remove]);
        harms.extend(of_file.into_iter().map(|harm| (path.clone(), harm)));
    }
    harms
}

/// Counts panics that would be printed, until dropped.
struct CountedPanics(Arc<AtomicU64>, Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>);

impl CountedPanics {
    /// Call before the first server is opened, which wraps the panic hook.
    fn start() -> Self {
        let (count, usual) = (Arc::new(AtomicU64::new(0)), Arc::from(panic::take_hook()));
        let counted = Self(count, usual);
        let (count, usual) = (counted.0.clone(), counted.1.clone());
        panic::set_hook(Box::new(move |info| {
            count.fetch_add(1, Ordering::SeqCst);
            usual(info);
        }));
        counted
    }
}

impl Drop for CountedPanics {
    fn drop(&mut self) {
        // A panicking thread must not change the hook.
        if !thread::panicking() {
            let usual = self.1.clone();
            panic::set_hook(Box::new(move |info| usual(info)));
        }
    }
}

// The only test of this program, as it counts the panics of the whole process.
#[tokio::test]
async fn a_folder_with_harmed_files_is_refused_or_nothing_has_changed() {
    let panics = CountedPanics::start();
    let env = Env::simulated(1);
    let open = |folder: &Path| ApiServer::builder(&env).open(folder);
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let server = open(&folder).unwrap();
    let first = server.revision();
    fill(&server).await;
    let older = files(&folder);
    let last = json!({"metadata": {"name": "last"}});
    assert_eq!(send(&server, "POST", MAPS, last.to_string()).await.0, 201);
    let sound = seen(&server, first).await;
    let killed = files(&folder);
    drop(server);
    let stopped = files(&folder);
    let mut ends = BTreeMap::new();
    for (how, files) in [("killed", killed), ("stopped", stopped)] {
        for (file, harm) in harms(&files, &Generator::seeded(7), 50) {
            let mut harmed = files.clone();
            harm.apply(&file, &mut harmed, &older);
            put(&folder, &harmed);
            let name = file.file_name().unwrap().to_str().unwrap();
            // Twice: the first refusal must not alter the folder so that the second attempt succeeds.
            for attempt in 0..2 {
                let place = format!("{how}, {name}, {harm:?}, attempt {attempt}");
                let served = match open(&folder) {
                    Ok(server) => {
                        let now = seen(&server, first).await;
                        assert!(now == sound, "{place}: other data is served");
                        true
                    }
                    Err(DataDirError::Damaged { .. }) => false,
                    Err(other) => panic!("{place}: {other:?}"),
                };
                if matches!(harm, Harm::Older | Harm::Remove | Harm::Cut(0)) {
                    let expected = match name {
                        "lock" => true,
                        // It never changes, and a missing one is made again.
                        "service-account.key" => !matches!(harm, Harm::Cut(0)),
                        _ => false,
                    };
                    assert_eq!(served, expected, "{place}");
                }
                *ends.entry(served).or_insert(0) += 1;
                if served {
                    break;
                }
            }
        }
    }
    assert!(ends.contains_key(&true) && ends.contains_key(&false), "served: {ends:?}");
    assert_eq!(panics.0.load(Ordering::SeqCst), 0, "a panic is reported as damage, not printed");
}
