//! Search for the large request that delays small requests longest.

mod collections;
mod families;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use tokio::runtime::Runtime;
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper_apiserver::{ApiServer, ReplyBody};

use crate::informer::Failure;
use crate::measure::{megabytes, memory, print, reset_peak, rounded};
use families::{Case, FAMILIES, Sent};

const PROBED: &str = "/api/v1/namespaces/kube-system/configmaps/probed";

/// Bytes to read of an answer, which for a watch never ends.
const READ: usize = 16 << 20;

/// Send large requests to a server in this process, and time concurrent small requests.
#[derive(Debug, Args)]
pub struct WorstArgs {
    /// Maximum request size, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 3 << 20, value_parser = clap::value_parser!(u32).range(1_000..=(3 << 20)))]
    size: u32,
    /// Requests per family
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// Repetitions, each on a new server; the shortest delay counts, to exclude other load on the machine
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seed of the search
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Delay that a request may cause; families that exceed it are named in the summary
    #[arg(long, value_name = "MS", default_value_t = 100)]
    goal_ms: u32,
    /// Only families whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    family: String,
}

#[derive(Debug, Serialize)]
struct Line {
    phase: &'static str,
    family: &'static str,
    attempt: u32,
    /// The size of the largest request.
    bytes: usize,
    /// The status of the last answer.
    code: u16,
    /// Duration of the requests.
    took_ms: f64,
    /// The longest concurrent small request.
    waited_ms: f64,
    /// The same without a large request.
    idle_ms: f64,
    peak_mb: f64,
    /// Whether others waited for longer than the goal allows.
    exceeds: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    phase: &'static str,
    seed: u64,
    requests: u32,
    worst: &'static str,
    waited_ms: f64,
    goal_ms: u32,
    /// The families of which a request held others up for longer than the goal.
    exceeding: BTreeSet<&'static str>,
}

/// Runs the search and prints its lines.
pub fn run(args: &WorstArgs) -> Result<(), Failure> {
    let generator = Generator::seeded(args.seed);
    let mut summary = Summary {
        phase: "worst",
        seed: args.seed,
        requests: 0,
        worst: "",
        waited_ms: 0.0,
        goal_ms: args.goal_ms,
        exceeding: BTreeSet::new(),
    };
    for (family, make) in FAMILIES.iter().filter(|(name, _)| name.contains(&args.family)) {
        for attempt in 0..args.tries {
            let mut best: Option<Line> = None;
            // Leaves room for what is around the contents.
            let mut size = args.size as usize / 32 * 31;
            for _ in 0..args.runs {
                let line = loop {
                    let case = make(&generator.fork(&format!("{family} {attempt}")), size);
                    match measure(family, attempt, &case)? {
                        Some(line) => break line,
                        None if size > 1_000 => size /= 2,
                        None => return Err(format!("{family}: the server stores nothing").into()),
                    }
                };
                best = Some(best.filter(|best| best.waited_ms <= line.waited_ms).unwrap_or(line));
            }
            let Some(mut line) = best else { continue };
            summary.requests += 1;
            line.exceeds = line.waited_ms > f64::from(args.goal_ms);
            if line.exceeds {
                summary.exceeding.insert(line.family);
            }
            if line.waited_ms > summary.waited_ms {
                (summary.worst, summary.waited_ms) = (line.family, line.waited_ms);
            }
            print(&line)?;
        }
    }
    print(&summary)?;
    Ok(())
}

/// Sends the requests of a case; `None` if the server refuses the objects they build on, which must then be smaller.
fn measure(family: &'static str, attempt: u32, case: &Case) -> Result<Option<Line>, Failure> {
    let clock = Clock::system();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = ApiServer::new(&Env::system());
    let client = Client { server: server.clone(), runtime: &runtime };
    let maps = PROBED.rsplit_once('/').map_or("", |(maps, _)| maps);
    client.send(&Sent::post(maps, r#"{"metadata":{"name":"probed"}}"#))?;
    for request in &case.before {
        let code = client.send(request)?;
        // With the names of its managers an object may be much larger than what was sent.
        if code == 500 {
            return Ok(None);
        }
        if code >= 400 {
            return Err(format!("{family}: {} {} gave {code}", request.method, request.path).into());
        }
    }
    let idle = probing(&server, || runtime.block_on(clock.sleep(Duration::from_millis(20))))?.1;
    reset_peak()?;
    let began = clock.now();
    let (code, waited) = probing(&server, || {
        let mut last = Ok(0);
        for request in &case.requests {
            last = client.send(request);
        }
        last
    })?;
    if matches!(code, Ok(413)) {
        return Err(format!("{family}: the request is larger than the server takes").into());
    }
    let ms = |time: Duration| rounded(time.as_secs_f64() * 1e3, 2);
    Ok(Some(Line {
        phase: "request",
        family,
        attempt,
        bytes: case.requests.iter().map(|request| request.body.len()).max().unwrap_or(0),
        code: code?,
        took_ms: ms(clock.now() - began),
        waited_ms: ms(waited),
        idle_ms: ms(idle),
        peak_mb: megabytes(memory()?.peak),
        exceeds: false,
    }))
}

/// Runs `work` while another thread reads and writes a small object; returns the longest such request.
fn probing<T>(server: &ApiServer, work: impl FnOnce() -> T) -> Result<(T, Duration), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let prober = {
        let (server, over) = (server.clone(), over.clone());
        thread::spawn(move || probe(server, &over).map_err(|failure| failure.to_string()))
    };
    let result = work();
    over.store(true, Ordering::Relaxed);
    let longest = prober.join().map_err(|_| "the prober panicked")??;
    Ok((result, longest))
}

fn probe(server: ApiServer, over: &AtomicBool) -> Result<Duration, Failure> {
    let clock = Clock::system();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client { server, runtime: &runtime };
    let get = Sent::new("GET", PROBED, "", Bytes::new());
    let mut longest = Duration::ZERO;
    for n in 0_u32.. {
        let change = format!(r#"{{"data":{{"n":"{n}"}}}}"#);
        let patch = Sent::new("PATCH", PROBED, "application/merge-patch+json", change.into());
        for request in [&get, &patch] {
            let began = clock.now();
            let code = client.send(request)?;
            if code != 200 {
                return Err(format!("the probe was answered with {code}").into());
            }
            longest = longest.max(clock.now() - began);
        }
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(longest)
}

struct Client<'a> {
    server: ApiServer,
    runtime: &'a Runtime,
}

impl Client<'_> {
    /// Sends a request and reads the answer, or the beginning of a watch.
    fn send(&self, sent: &Sent) -> Result<u16, Failure> {
        let request = http::Request::builder()
            .method(sent.method)
            .uri(&sent.path)
            .header("content-type", sent.form)
            .header("accept", if sent.table { TABLE } else { "application/json" })
            .body(Full::new(sent.body.clone()))?;
        let mut service = self.server.service();
        self.runtime.block_on(async {
            let response = tower::Service::call(&mut service, request).await?;
            let code = response.status().as_u16();
            let mut body: ReplyBody = response.into_body();
            let mut left = READ;
            while let (Some(frame), true) = (body.frame().await, left > 0) {
                left = left.saturating_sub(frame?.data_ref().map_or(0, Bytes::len));
                if sent.path.contains("watch=1") {
                    break;
                }
            }
            Ok(code)
        })
    }
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
