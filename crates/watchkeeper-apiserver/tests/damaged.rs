//! Damage to a data directory: it is refused with a remedy, never served as other data, and never a panic.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Objects of several kinds, some changed and some gone.
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

/// All that can be seen of a server, of now and of the past.
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

/// Puts the folder back as it was, but for the one bit.
fn damage(files: &Files, file: &Path, at: usize, bit: u8) {
    for (path, contents) in files {
        let mut contents = contents.clone();
        if path == file {
            contents[at] ^= 1 << bit;
        }
        fs::write(path, contents).unwrap();
    }
}

/// Places to damage, by chance: half of them in what says where the rest is.
fn places(files: &Files, generator: &Generator, count: usize) -> Vec<(PathBuf, usize, u8)> {
    let mut places = Vec::new();
    for (path, contents) in files {
        // The header of the database, with its two slots; and the small files.
        let (head, used): (Vec<_>, Vec<_>) =
            (0..contents.len()).filter(|at| *at < 320 || contents[*at] != 0).partition(|at| *at < 320);
        for part in [head, used].iter().filter(|part| !part.is_empty()) {
            let chosen = (0..count).map(|_| part[generator.below(part.len() as u64) as usize]);
            places.extend(chosen.map(|at| (path.clone(), at, generator.below(8) as u8)));
        }
    }
    places
}

#[tokio::test]
async fn a_flipped_bit_is_refused_or_changes_nothing() {
    // Who looks on sees no panic either.
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    let env = Env::simulated(1);
    let open = |folder: &Path| ApiServer::builder(&env).open(folder);
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let server = open(&folder).unwrap();
    let first = server.revision();
    fill(&server).await;
    let sound = seen(&server, first).await;
    let killed = files(&folder);
    drop(server);
    let stopped = files(&folder);
    let (mut served, mut refused) = (0, 0);
    for (how, files) in [("killed", killed), ("stopped", stopped)] {
        for (file, at, bit) in places(&files, &Generator::seeded(7), 50) {
            damage(&files, &file, at, bit);
            // Twice: a refusal must not be forgotten by what it did to the folder.
            for attempt in 0..2 {
                let place = format!("{how}, {}, byte {at}, bit {bit}, attempt {attempt}", file.display());
                match open(&folder) {
                    Ok(server) => {
                        let now = seen(&server, first).await;
                        assert!(now == sound, "{place}: other data is served");
                        served += 1;
                        break;
                    }
                    Err(DataDirError::Damaged { .. }) => refused += 1,
                    Err(other) => panic!("{place}: {other:?}"),
                }
            }
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a panic is told as damage");
}
