//! A server with a data directory whose disk fails.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use tower::ServiceExt as _;
use watchkeeper::Env;

use crate::http::reply::ReplyBody;
use crate::persist::damage::is_quiet;
use crate::persist::disk::{DataDirError, Disk, Kept};
use crate::persist::durable::Durable;
use crate::persist::restore::restore;
use crate::server::ApiServer;
use crate::state::core::{Core, commit_change};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A storage backend that fails or panics on demand.
#[derive(Debug, Default)]
struct Flaky {
    backend: InMemoryBackend,
    is_full: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
}

impl Flaky {
    fn disk(self) -> Disk {
        Disk::over(self, tempfile::tempfile().unwrap())
    }
}

impl StorageBackend for Flaky {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "the disk is gone, quietly: {}", is_quiet());
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(io::Error::new(io::ErrorKind::StorageFull, "no space left")),
            false => self.backend.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }
}

fn core() -> Arc<Mutex<Core>> {
    let mut core = restore(&Env::simulated(1), 10, Kept::default()).unwrap();
    core.create_defaults();
    Arc::new(Mutex::new(core))
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &str) -> http::Response<ReplyBody> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    server.service().oneshot(request).await.unwrap()
}

async fn create(server: &ApiServer, name: &str) -> u16 {
    let body = format!(r#"{{"metadata": {{"name": "{name}"}}}}"#);
    send(server, "POST", MAPS, &body).await.status().as_u16()
}

#[tokio::test]
async fn a_watch_delivers_a_change_once_it_is_durable() {
    // Without a writer thread, the test decides when changes become durable.
    let core = core();
    let server = ApiServer::builder(&Env::simulated(1)).with(core.clone(), None);
    let settle = || {
        let batch = core.lock().store.take_batch().unwrap();
        commit_change(&core, |core| core.store.settle(&batch));
    };
    settle();
    let path = format!("{MAPS}?watch=1&resourceVersion={}&allowWatchBookmarks=1", server.revision());
    let mut watch = send(&server, "GET", &path, "").await.into_body();
    assert_eq!(create(&server, "a").await, 201);
    assert!(watch.frame().now_or_never().is_none(), "not safe yet");
    let next = tokio::spawn(async move { watch.frame().await.unwrap().unwrap().into_data().unwrap() });
    tokio::task::yield_now().await;
    settle();
    let text = next.await.unwrap();
    assert!(text.starts_with(b"{\"type\":\"ADDED\"") && text.windows(3).any(|part| part == b"\"a\""));
}

#[tokio::test]
async fn when_the_disk_fails_nothing_is_acknowledged_any_more() {
    let (core, flaky) = (core(), Flaky::default());
    let full = flaky.is_full.clone();
    let durable = Durable::start(flaky.disk(), &core).unwrap();
    let server = ApiServer::builder(&Env::simulated(1)).with(core, Some(durable));
    assert_eq!(create(&server, "a").await, 201);
    full.store(true, Ordering::SeqCst);
    let path = format!("{MAPS}?watch=1&resourceVersion={}", server.revision());
    let mut watch = send(&server, "GET", &path, "").await.into_body();
    let answer = send(&server, "POST", MAPS, r#"{"metadata": {"name": "b"}}"#).await;
    assert_eq!(answer.status(), 500);
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("somewhere") && text.contains("no space left"), "{text}");
    assert!(
        watch.frame().await.is_none(),
        "a change that is not durable is not delivered, and all watches end"
    );
    full.store(false, Ordering::SeqCst);
    for path in ["/readyz", MAPS] {
        assert_eq!(send(&server, "GET", path, "").await.status(), 500, "memory may differ from the disk");
    }
}

async fn refusal(server: &ApiServer, name: &str) -> String {
    let body = format!(r#"{{"metadata": {{"name": "{name}"}}}}"#);
    let answer = send(server, "POST", MAPS, &body).await;
    assert_eq!(answer.status(), 500);
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_panic_while_writing_is_printed_and_reported_but_not_as_damage() {
    let (core, flaky) = (core(), Flaky::default());
    let panics = flaky.panics.clone();
    let durable = Durable::start(flaky.disk(), &core).unwrap();
    let server = ApiServer::builder(&Env::simulated(1)).with(core, Some(durable));
    panics.store(true, Ordering::SeqCst);
    for name in ["a", "b"] {
        let text = refusal(&server, name).await;
        assert!(text.contains("it panicked: the disk is gone, quietly: false"), "{text}");
        assert!(text.contains("restart the server"), "{text}");
        assert!(!text.contains("damaged") && !text.contains("remove"), "{text}");
    }
    panics.store(false, Ordering::SeqCst);
}

#[test]
fn a_write_after_one_that_failed_is_not_reported_as_damage() {
    let (core, flaky) = (core(), Flaky::default());
    let full = flaky.is_full.clone();
    let disk = flaky.disk();
    let batch = core.lock().store.take_batch().unwrap();
    full.store(true, Ordering::SeqCst);
    assert!(matches!(disk.write(&batch), Err(DataDirError::Io { .. })));
    full.store(false, Ordering::SeqCst);
    let again = disk.write(&batch).unwrap_err();
    assert!(matches!(again, DataDirError::Failed { .. }), "{again}");
}

#[tokio::test]
async fn a_note_that_cannot_be_written_fails_no_write() {
    let core = core();
    let read_only = tempfile::NamedTempFile::new().unwrap();
    let disk = Disk::over(InMemoryBackend::new(), File::open(read_only.path()).unwrap());
    let durable = Durable::start(disk, &core).unwrap();
    let server = ApiServer::builder(&Env::simulated(1)).with(core, Some(durable));
    for name in ["a", "b"] {
        assert_eq!(create(&server, name).await, 201);
    }
    assert_eq!(send(&server, "GET", "/readyz", "").await.status(), 200);
}
