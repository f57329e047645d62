//! Time until all of many watchers have received a change, and the number of its encodings.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Instant};
use watchkeeper_apiserver::{ApiServer, ListenOptions};

use super::http::{Connection, request};
use super::{MAPS, config_map};
use crate::informer::Failure;
use crate::latency::percentile;
use crate::measure::{print, rounded};

#[derive(Debug, Serialize)]
struct Line {
    phase: &'static str,
    watchers: usize,
    changes: usize,
    /// For each change.
    encodings: f64,
    /// From the request of the change until the last watcher has it.
    p50_ms: f64,
    max_ms: f64,
}

/// How long a watcher may take to receive a change before the run fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Changes an object with many watchers, and prints the result.
pub(crate) fn run(watchers: usize, changes: usize) -> Result<(), Failure> {
    let env = Env::system();
    let (stop, (started, listening)) = (CancellationToken::new(), channel());
    let server = {
        let (env, stop) = (env.clone(), stop.clone());
        thread::spawn(move || serve(&env, &stop, &started))
    };
    let address = listening.recv()??;
    let mut connection = Connection::open(address)?;
    connection.send(&request("POST", MAPS, "application/json", &config_map("watched", 1024)))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (sender, told) = channel();
    for _ in 0..watchers {
        runtime.spawn(watch(address, env.clock.clone(), sender.clone()));
    }
    drop(sender);
    // Each receives the existing object first.
    all(&told, watchers)?;
    let before = encodings(&mut connection)?;
    let mut taken = Vec::new();
    for change in 0..changes {
        let body = format!(r#"{{"data":{{"change":"{change}"}}}}"#);
        let patch = request("PATCH", &format!("{MAPS}/watched"), "application/merge-patch+json", &body);
        let began = env.clock.now();
        connection.send(&patch)?;
        taken.push(all(&told, watchers)? - began);
    }
    let encoded = (encodings(&mut connection)? - before) as f64 / changes.max(1) as f64;
    taken.sort();
    let ms = |percent| rounded(percentile(&taken, percent).as_secs_f64() * 1e3, 2);
    let (p50_ms, max_ms) = (ms(50), ms(100));
    print(&Line { phase: "fanout", watchers, changes, encodings: rounded(encoded, 3), p50_ms, max_ms })?;
    runtime.shutdown_background();
    stop.cancel();
    server.join().map_err(|_| "the server panicked")?;
    Ok(())
}

/// Returns the number of objects that the server has encoded.
fn encodings(connection: &mut Connection) -> Result<u64, Failure> {
    let text = connection.text(&request("GET", "/metrics", "text/plain", ""))?;
    let line = text.lines().find_map(|line| line.strip_prefix("watchkeeper_encoded_objects_total "));
    Ok(line.ok_or("no count of encoded objects in /metrics")?.parse()?)
}

/// Serves on this thread alone.
fn serve(env: &Env, stop: &CancellationToken, started: &Sender<Result<SocketAddr, String>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error.to_string()))),
    };
    runtime.block_on(async {
        let server = ApiServer::new(env);
        let options = ListenOptions { insecure_http: true, ..ListenOptions::default() };
        match server.listen(options).await {
            Ok(listening) => {
                let _heard = started.send(Ok(listening.address()));
                stop.cancelled().await;
                listening.stop().await;
            }
            Err(error) => drop(started.send(Err(error.to_string()))),
        }
    });
}

/// The time at which the last watcher received the change.
fn all(told: &Receiver<Instant>, watchers: usize) -> Result<Instant, Failure> {
    let mut last = None;
    for _ in 0..watchers {
        let time = told.recv_timeout(PATIENCE).map_err(|_| "a watcher has lost its connection")?;
        last = last.max(Some(time));
    }
    last.ok_or_else(|| "no watchers".into())
}

/// Sends the time of every event, until the connection ends.
async fn watch(address: SocketAddr, clock: Clock, told: Sender<Instant>) -> Result<(), Failure> {
    let stream = TcpStream::connect(address).await?;
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dwatched");
    let question = request("GET", &path, "application/json", "");
    stream.writable().await?;
    if stream.try_write(question.as_bytes())? < question.len() {
        return Err("a request of some bytes was not taken at once".into());
    }
    let (mut buffer, mut last) = (vec![0; 16 * 1024], 0);
    loop {
        stream.readable().await?;
        let read = match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        for byte in &buffer[..read] {
            // Only an event ends like this: lines of HTTP have a carriage return.
            if (last, *byte) == (b'}', b'\n') {
                told.send(clock.now())?;
            }
            last = *byte;
        }
    }
}
