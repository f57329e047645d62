//! A program with a real work queue and informer cache of many keys, to measure what the page costs.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use watchkeeper::explain::{Explain, Explained, ProgramPhase};
use watchkeeper::kube_client::{Client as KubeClient, Config};
use watchkeeper::workqueue::{Priority, Reason, Trigger, limiter};
use watchkeeper::{Client, Env, ObjectName, RateLimitingQueue, SharedInformerFactory};

/// A program whose queue has that many keys: some idle, one of them failed, most of them delayed, the others waiting. Its
/// informer runs until this is dropped.
pub(super) struct Real {
    pub(super) explain: Explain,
    _factory: SharedInformerFactory,
    _stop: tokio_util::sync::DropGuard,
}

fn key(number: usize) -> ObjectName {
    ObjectName::namespaced("bakery", &format!("site-{number:06}"))
}

impl Real {
    /// Returns the program once its cache has that many objects.
    pub(super) async fn start(keys: usize, env: &Env) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(serve(listener, keys));
        let kube = KubeClient::try_from(Config::new(url.parse()?))?;
        let factory = SharedInformerFactory::builder(&Client::from_kube(kube, env)).build();
        let informer = factory.informer::<ConfigMap>();
        let stop = CancellationToken::new();
        factory.start(&stop);
        factory.wait_for_sync(&stop).await?;
        if informer.indexer().snapshot().len() != keys {
            return Err("the cache does not have all objects".into());
        }
        let explain = Explain::new("website-operator", env);
        explain.informers(&factory);
        explain.add(Explained::new("websites", &queue(keys, env).await, &informer));
        explain.set_phase(ProgramPhase::Running);
        Ok(Self { explain, _factory: factory, _stop: stop.drop_guard() })
    }
}

async fn queue(keys: usize, env: &Env) -> RateLimitingQueue<ObjectName> {
    let queue = RateLimitingQueue::<ObjectName>::new("websites", limiter::default_controller(), env);
    for number in 0..keys {
        match number % 10 {
            0 => {
                let trigger = Trigger::itself(Reason::Changed, &"7".into());
                queue.add_because(key(number), Priority::Normal, trigger);
                match queue.get().await {
                    Some(item) if number == 0 => item.give_up("no domain"),
                    Some(item) => item.forget(),
                    None => {}
                }
            }
            1..8 => queue.add_after(key(number), Duration::from_secs(3_600)),
            _ => {}
        }
    }
    for number in (0..keys).filter(|number| number % 10 > 7) {
        queue.add(key(number));
    }
    queue
}

/// Answers lists, and opens watches that bring nothing but the initial list, if it is asked for.
async fn serve(listener: TcpListener, keys: usize) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            // It ends with the connection.
            let _ended = answer(stream, keys).await;
        });
    }
}

async fn answer(mut stream: TcpStream, keys: usize) -> std::io::Result<()> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        request.drain(..end + 4);
        let head = head.lines().next().unwrap_or_default();
        let is_watch = head.contains("watch=");
        let body = match (is_watch, head.contains("sendInitialEvents=true")) {
            (false, _) => list(keys),
            (true, true) => events(keys),
            (true, false) => String::new(),
        };
        let length = if is_watch {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", body.len())
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        if !is_watch {
            stream.write_all(body.as_bytes()).await?;
        } else if !body.is_empty() {
            stream.write_all(format!("{:x}\r\n{body}\r\n", body.len()).as_bytes()).await?;
        }
    }
}

fn object(number: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"site-{number:06}","namespace":"bakery","uid":"uid-{number}","resourceVersion":"{}"}},"data":{{"domain":"site-{number}.example.com"}}}}"#,
        number + 1
    )
}

fn list(keys: usize) -> String {
    let objects: Vec<_> = (0..keys).map(object).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#,
        keys + 1,
        objects.join(",")
    )
}

fn events(keys: usize) -> String {
    let mut events = String::new();
    for number in 0..keys {
        // Writing to a string does not fail.
        let _written = writeln!(events, r#"{{"type":"ADDED","object":{}}}"#, object(number));
    }
    let _written = writeln!(
        events,
        r#"{{"type":"BOOKMARK","object":{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"resourceVersion":"{}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#,
        keys + 1
    );
    events
}
