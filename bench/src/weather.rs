//! The sample controller in hard weather: a real control plane, two replicas, and an hour of outages, kills, stalls, rotations and lost
//! permissions, while users change thousands of Foos.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::{Clock, Generator, Instant};
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env};

use crate::informer::Failure;
use crate::measure::{self, megabytes, print, rounded};

mod access;
mod faults;
mod memory;
mod plane;
mod proxy;
mod replica;
mod world;

use access::{Access, USER};
use faults::{Fault, Happened, plan};
use memory::Memory;
use plane::Plane;
use proxy::Proxy;
use replica::{Diary, Program, Replica};
use world::World;

/// Run two replicas of the sample controller on a real control plane where something fails every few seconds.
#[derive(Debug, Args)]
pub struct WeatherArgs {
    /// Duration of the weather; in 3 minutes every kind of fault happens
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Number of Foos
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    foos: u64,
    /// Changes per second
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rate: u64,
    /// Seed of the changes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Faults to leave out; without leader-killed and network-stalled, one process leads all the time
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    without: Vec<Fault>,
    /// Folder with the scripts of the control plane
    #[arg(long, value_name = "DIR", default_value = "reference")]
    reference: PathBuf,
    /// The sample controller; the one beside this program by default
    #[arg(long, value_name = "FILE")]
    controller: Option<PathBuf>,
    /// Folder for logs; a new one for temporary files by default
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Draw the memory of the replicas into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// How often memory is read.
const SAMPLE: Duration = Duration::from_secs(5);
/// How often it is looked whether a replica has ended, and how long a kubelet would wait before it starts it again.
const LOOK: Duration = Duration::from_secs(1);
/// How long it may take until everything is as wished.
const PATIENCE: Duration = Duration::from_secs(300);
/// By how much memory may grow from the first third to the last.
const GROWTH: f64 = 1.25;

/// A fault, and the line that explains it.
#[derive(Debug, Serialize)]
struct FaultLine {
    phase: &'static str,
    minute: f64,
    fault: Fault,
    /// The first line of a log that explains it.
    explained_by: Option<String>,
    /// The number of replicas that explain it.
    replicas: usize,
}

/// The result of a run.
#[derive(Debug, Serialize)]
struct Summary {
    phase: &'static str,
    minutes: u64,
    foos: u64,
    /// Changes that users and others tried, and how many of those failed because the server was away or another was faster.
    changes: u64,
    failed_changes: u64,
    faults: BTreeMap<Fault, usize>,
    /// Faults that clients notice, and how many of those a log explains.
    noticed: usize,
    explained: usize,
    /// How replicas ended before the stop, by how often.
    exits: BTreeMap<String, u64>,
    /// Lines of level ERROR, which say why a replica has ended.
    error_lines: usize,
    /// How long it took after the last fault until every Foo was as wished.
    settled_after_s: f64,
    /// Deployments that were created, and creates that found one of that name: each of those is of a controller that did not know what
    /// it, or the one before it, had created.
    created: u64,
    already_existed: u64,
    /// The most resident memory of a replica in the first and the last third, in megabytes.
    first_third_mb: f64,
    last_third_mb: f64,
    logs: PathBuf,
}

/// Runs the benchmark, prints its lines, and fails if the controller did not weather it.
pub fn run(args: &WeatherArgs) -> Result<(), Failure> {
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => tempfile::Builder::new().prefix("weather-").tempdir()?.keep(),
    };
    fs::create_dir_all(&folder)?;
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(weather(args, &folder.canonicalize()?))
}

/// Everything that runs.
struct Stage {
    env: Env,
    plane: Plane,
    world: World,
    access: Access,
    replicas: Vec<(Replica, Proxy)>,
    diary: Diary,
    exits: Mutex<BTreeMap<String, u64>>,
}

async fn weather(args: &WeatherArgs, folder: &Path) -> Result<(), Failure> {
    let env = Env::new(Clock::system(), Generator::seeded(args.seed));
    let stage = Stage::set(args, folder, env).await?;
    let (stop, memory) = (CancellationToken::new(), Mutex::<Memory>::default());
    let observer = stage.world.observe(&stop)?;
    let (outcome, supervised, ()) = tokio::join!(
        async {
            let _stop = stop.clone().drop_guard();
            stage.act(args).await
        },
        stage.supervise(&stop),
        stage.sample(&memory, &stop),
    );
    let (happened, settled) = outcome?;
    supervised?;
    observer.join().await?;
    for (replica, _) in &stage.replicas {
        replica.stop(&stage.env.clock).await?;
    }
    let memory = memory.into_inner();
    if let Some(file) = &args.svg {
        fs::write(file, memory.draw())?;
    }
    stage.judge(args, &happened, settled, &memory, folder)
}

impl Stage {
    /// Starts the control plane and the replicas, each behind a proxy of its own.
    async fn set(args: &WeatherArgs, folder: &Path, env: Env) -> Result<Self, Failure> {
        let plane = Plane::up(&args.reference, folder)?;
        let kubeconfig = ClientArgs { kubeconfig: Some(plane.kubeconfig.clone()), ..ClientArgs::default() };
        let config = kubeconfig.config().await?;
        let port = config.cluster_url.port_u16().ok_or("the address of the server has no port")?;
        let client = Client::from_config(config, &env)?;
        let world = World::new(&client, &env, args.foos).await?;
        let access = Access::new(&client, &env, folder);
        access.rotate().await?;
        let path = match &args.controller {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("sample-controller"),
        };
        let diary = Diary::default();
        let program = Program { path, folder: folder.to_owned(), diary: diary.clone() };
        let mut replicas = Vec::new();
        for number in 1..=2 {
            let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
            let kubeconfig = access.kubeconfig(&plane.kubeconfig, proxy.address(), number)?;
            replicas.push((Replica::start(number, &program, &kubeconfig)?, proxy));
        }
        Ok(Self { env, plane, world, access, replicas, diary, exits: Mutex::default() })
    }

    /// The whole story: calm, weather, calm. Returns the faults, and how long everything took to be as wished after the last.
    async fn act(&self, args: &WeatherArgs) -> Result<(Vec<Happened>, Duration), Failure> {
        self.world.create().await?;
        self.world.settle(PATIENCE).await?;
        let calm = CancellationToken::new();
        let pause = Duration::from_secs(1) / u32::try_from(args.rate)?;
        let ((), happened) = tokio::join!(self.world.change_until(&calm, pause), async {
            let _calm = calm.clone().drop_guard();
            self.storm(args).await
        });
        let happened = happened?;
        Ok((happened, self.world.settle(PATIENCE).await?))
    }

    /// Lets everything go wrong that is planned, and mends all of it.
    async fn storm(&self, args: &WeatherArgs) -> Result<Vec<Happened>, Failure> {
        let (start, mut happened) = (self.env.clock.now(), Vec::new());
        let planned = plan(args.minutes).into_iter().filter(|(_, fault)| !args.without.contains(fault));
        for (at, fault) in planned {
            self.sleep_until(start + at).await;
            let from = self.env.clock.wall();
            let victim = self.inflict(fault).await?;
            happened.push(Happened { fault, from, until: self.env.clock.wall(), victim });
        }
        self.sleep_until(start + Duration::from_secs(args.minutes * 60)).await;
        Ok(happened)
    }

    async fn sleep_until(&self, at: Instant) {
        self.env.clock.sleep(at.saturating_duration_since(self.env.clock.now())).await;
    }

    /// Lets a fault happen, and returns when it is over; with the replica that alone may notice it, if it is one.
    async fn inflict(&self, fault: Fault) -> Result<Option<usize>, Failure> {
        match fault {
            Fault::ApiServerKilled => self.plane.kill_api_server().await?,
            Fault::LeaderKilled => self.kill_leader().await?,
            Fault::NetworkStalled => {
                let victim = self.env.generator.below(self.replicas.len() as u64) as usize;
                self.replicas[victim].1.stall(true);
                self.env.clock.sleep(fault.lasts()).await;
                self.replicas[victim].1.stall(false);
                return Ok(Some(self.replicas[victim].0.number));
            }
            Fault::PermissionTaken => {
                self.access.take().await?;
                self.env.clock.sleep(fault.lasts()).await;
                self.access.give_back().await?;
            }
            Fault::CredentialsRotated => self.access.rotate().await?,
            Fault::EtcdCompacted => self.plane.compact().await?,
        }
        Ok(None)
    }

    /// Kills the replica that leads, as soon as one does.
    async fn kill_leader(&self) -> Result<(), Failure> {
        for _ in 0..120 {
            if let Some((leader, _)) = self.replicas.iter().find(|(replica, _)| replica.leads()) {
                return leader.kill();
            }
            self.env.clock.sleep(Duration::from_millis(500)).await;
        }
        Err("no replica has led for a minute".into())
    }

    /// Starts replicas again that have ended, until `stop`.
    async fn supervise(&self, stop: &CancellationToken) -> Result<(), Failure> {
        while stop.run_until_cancelled(self.env.clock.sleep(LOOK)).await.is_some() {
            for (replica, _) in &self.replicas {
                if let Some(status) = replica.revive()? {
                    *self.exits.lock().entry(status).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Reads the memory of the replicas, and of this process, until `stop`.
    async fn sample(&self, into: &Mutex<Memory>, stop: &CancellationToken) {
        let start = self.env.clock.now();
        while stop.run_until_cancelled(self.env.clock.sleep(SAMPLE)).await.is_some() {
            let minute = (self.env.clock.now() - start).as_secs_f64() / 60.0;
            let mut memory = into.lock();
            for (replica, _) in &self.replicas {
                let resident = replica.resident().map(|resident| (minute, resident));
                memory.replicas[replica.number - 1].extend(resident);
            }
            memory.observer.extend(measure::memory().ok().map(|memory| (minute, megabytes(memory.resident))));
        }
    }

    /// Prints what has happened, and fails if it was not weathered.
    fn judge(
        &self,
        args: &WeatherArgs,
        happened: &[Happened],
        settled: Duration,
        memory: &Memory,
        folder: &Path,
    ) -> Result<(), Failure> {
        let (lines, creates) = (self.diary.lock().clone(), self.plane.creates(USER)?);
        let begin = happened.first().map(|first| first.from);
        let mut explained = 0;
        for one in happened {
            let found = one.explanations(&lines);
            explained += usize::from(!found.is_empty());
            let seconds = begin.map_or(0.0, |begin| one.from.duration_since(begin).as_secs_f64());
            print(&FaultLine {
                phase: "fault",
                minute: rounded(seconds / 60.0, 2),
                fault: one.fault,
                explained_by: found.first().map(|line| format!("replica {}: {}", line.replica, line.text)),
                replicas: found.iter().map(|line| line.replica).collect::<BTreeSet<_>>().len(),
            })?;
        }
        let count = |fault: Fault| happened.iter().filter(|one| one.fault == fault).count();
        let (first_third_mb, last_third_mb) = memory.thirds();
        let summary = Summary {
            phase: "weather",
            minutes: args.minutes,
            foos: args.foos,
            changes: self.world.changes.load(Relaxed),
            failed_changes: self.world.refused.load(Relaxed),
            faults: Fault::ALL.into_iter().map(|fault| (fault, count(fault))).collect(),
            noticed: happened.iter().filter(|one| one.is_noticed()).count(),
            explained,
            exits: self.exits.lock().clone(),
            error_lines: lines.iter().filter(|line| line.level == "ERROR").count(),
            settled_after_s: rounded(settled.as_secs_f64(), 1),
            created: self.world.created(&creates.uids),
            already_existed: creates.already_exist,
            first_third_mb,
            last_third_mb,
            logs: folder.to_owned(),
        };
        print(&summary)?;
        // The answer to a create may be lost when the API server is killed. Nothing else may hide what was created.
        let excused = count(Fault::ApiServerKilled) as u64;
        if summary.already_existed > excused {
            let found = summary.already_existed;
            return Err(
                format!("{found} creates found a Deployment of that name; {excused} are excused").into()
            );
        }
        if summary.explained < summary.noticed {
            return Err("not every fault is explained by a log".into());
        }
        if last_third_mb > first_third_mb * GROWTH {
            return Err(format!("memory has grown from {first_third_mb} to {last_third_mb} MB").into());
        }
        Ok(())
    }
}
