//! Replicas that compete for one Lease and write while they lead, in any weather, judged by the server's log.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::{Clock, Generator, Instant, Pauses};
use watchkeeper::leader::LeaderElection;
use watchkeeper::{Client, Env};

use crate::link::{Cluster, Fault, Link, Machine, Write};

/// What may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) replicas: usize,
    /// Rates of the clocks of the first and the last replica; others lie between.
    pub(crate) rates: (f64, f64),
    /// How long faults come, one about every ten seconds.
    pub(crate) faults: Duration,
    /// The longest way of a request or an answer.
    pub(crate) delay: Duration,
}

/// What a run has come to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Writes that were sent or carried out while another held the lease.
    pub(crate) wrong: Vec<String>,
    pub(crate) writes: usize,
    pub(crate) hand_overs: usize,
    /// The longest time between two writes at the end, without faults.
    pub(crate) last_gap: Duration,
}

/// One replica, over all its lives.
struct Replica {
    number: usize,
    rate: f64,
    offset: i64,
    now: Mutex<Option<(Link, Machine)>>,
    stop: Mutex<CancellationToken>,
}

const NEW_YEAR: i64 = 1_767_225_600;

/// How long the end without faults lasts: long enough for a new leader.
const CALM: Duration = Duration::from_secs(60);

/// How long a replica that is stopped waits for its writes.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// How long the first leader has led when all requests were made at which a fault is planned.
const LEADING: Duration = Duration::from_secs(6);

/// Runs one schedule of faults on a runtime of its own.
pub(crate) fn run(seed: u64, weather: Weather, fault: Option<Fault>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(live(seed, weather, fault))
}

async fn live(seed: u64, weather: Weather, fault: Option<Fault>) -> Outcome {
    let env = Env::simulated(seed);
    let cluster = Cluster::new(&env);
    let over = CancellationToken::new();
    let replicas: Vec<_> = (0..weather.replicas)
        .map(|number| {
            let share =
                if weather.replicas < 2 { 0.0 } else { number as f64 / (weather.replicas - 1) as f64 };
            Arc::new(Replica {
                number,
                rate: weather.rates.0 + (weather.rates.1 - weather.rates.0) * share,
                offset: i64::try_from(env.generator.below(7200)).unwrap() - 3600,
                now: Mutex::new(None),
                stop: Mutex::default(),
            })
        })
        .collect();
    let lives =
        join_all(replicas.iter().map(|replica| lives(replica, &cluster, &env, weather, fault, &over)));
    let faults = async {
        if let Some(fault) = fault {
            env.clock.sleep(LEADING + fault.what.lasts()).await;
        }
        let calm_from = inflict(&replicas, &env, weather).await;
        env.clock.sleep(CALM).await;
        over.cancel();
        calm_from
    };
    let calm_from = tokio::select! {
        biased;
        calm_from = faults => calm_from,
        _ = lives => unreachable!("replicas live to the end"),
    };
    judge(&cluster, calm_from, env.clock.now())
}

/// Lets things go wrong for a while; returns when the last fault is over.
async fn inflict(replicas: &[Arc<Replica>], env: &Env, weather: Weather) -> Instant {
    let generator = env.generator.fork("faults");
    let (end, mut calm) = (env.clock.now() + weather.faults, env.clock.now());
    while env.clock.now() < end {
        env.clock.sleep(Duration::from_secs(20).mul_f64(generator.unit())).await;
        let replica = &replicas[generator.below(replicas.len() as u64) as usize];
        let time = Duration::from_secs(40).mul_f64(generator.unit());
        let Some((link, machine)) = replica.now.lock().clone() else { continue };
        match generator.below(6) {
            0 => link.freeze(time, &machine),
            1 => link.stop(time, &machine),
            2 => link.cut(time),
            3 => link.cut_lease(time),
            4 => link.dead.cancel(),
            _ => replica.stop.lock().cancel(),
        }
        calm = calm.max(env.clock.now() + time);
    }
    env.clock.sleep_until(calm).await;
    env.clock.now()
}

/// One life after the other, as a kubelet does.
async fn lives(
    replica: &Replica,
    cluster: &Cluster,
    env: &Env,
    weather: Weather,
    fault: Option<Fault>,
    over: &CancellationToken,
) {
    let mut life = 0;
    // The first leads at first.
    env.clock.sleep(Duration::from_secs(replica.number as u64)).await;
    while !over.is_cancelled() {
        life += 1;
        let generator = env.generator.fork(&format!("replica {} life {life}", replica.number));
        let anchor = jiff::Timestamp::from_second(NEW_YEAR + replica.offset).unwrap();
        let (rate, pauses) = (replica.rate, Pauses::default());
        let clock = Clock::virtual_with_rate(anchor, rate).pausable(&pauses);
        let own = Env::new(clock.clone(), generator.clone());
        let machine = Machine { clock, rate, pauses };
        let link = Link::new(cluster, replica.number, generator.fork("link"), weather.delay);
        if let Some(fault) = fault.filter(|_| replica.number == 0 && life == 1) {
            link.plan(fault, &machine);
        }
        let stop = CancellationToken::new();
        *replica.now.lock() = Some((link.clone(), machine));
        *replica.stop.lock() = stop.clone();
        let (client, identity) =
            (Client::from_kube(link.client(), &own), format!("{}_{life}", replica.number));
        tokio::select! {
            biased;
            () = link.dead.cancelled() => {}
            () = candidate(&client, &own, &identity, stop) => {}
        }
        link.dead.cancel();
        env.clock.sleep(Duration::from_secs(5).mul_f64(generator.unit())).await;
    }
    std::future::pending().await
}

/// Writes ten times a second while it leads, until `stop` or the loss.
async fn candidate(client: &Client, env: &Env, identity: &str, stop: CancellationToken) {
    let election = LeaderElection::builder(client, "default", "leader").identity(identity).build().unwrap();
    let guarded = election.guard(client);
    let stopped = stop.clone();
    let work = |_| async move {
        // One that was lost does not hold up the others.
        let (mut number, mut writes) = (0, JoinSet::new());
        while !stopped.is_cancelled() {
            number += 1;
            let mut map = ConfigMap::default();
            map.metadata.name = Some(format!("{}-{number}", identity.replace('_', "-")));
            map.metadata.namespace = Some("default".to_owned());
            let guarded = guarded.clone();
            writes.spawn(async move {
                let _refused = guarded.api::<ConfigMap>().create(&map).await;
            });
            env.clock.sleep(Duration::from_millis(100)).await;
            while writes.try_join_next().is_some() {}
        }
        // A lost write is not waited for any longer; the lease is then left to expire.
        let drained = async { while writes.join_next().await.is_some() {} };
        let _late = env.clock.timeout(DRAIN, drained).await;
    };
    let _lost = election.run(stop, work).await;
}

fn judge(cluster: &Cluster, calm_from: Instant, end: Instant) -> Outcome {
    let log = cluster.log.lock();
    let mut outcome = Outcome { writes: log.len(), ..Outcome::default() };
    let (mut last, mut leader) = (calm_from, None);
    for write in log.iter() {
        let own = format!("{}_", write.replica);
        if !write.holders.iter().all(|holder| holder.starts_with(&own)) {
            let Write { replica, what, sent, done, holders } = write;
            let took = done.saturating_duration_since(*sent);
            outcome.wrong.push(format!("replica {replica}: {what}, {took:?} on its way, under {holders:?}"));
        }
        outcome.hand_overs += usize::from(leader.replace(write.replica) != Some(write.replica));
        if write.done > calm_from {
            outcome.last_gap = outcome.last_gap.max(write.done.saturating_duration_since(last));
            last = write.done;
        }
    }
    outcome.last_gap = outcome.last_gap.max(end.saturating_duration_since(last));
    outcome
}

/// Returns how many requests a replica makes until it has led for a while.
pub(crate) fn requests_until_leading(seed: u64) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let env = Env::simulated(seed);
        let cluster = Cluster::new(&env);
        let link = Link::new(&cluster, 0, Generator::seeded(seed), Duration::from_millis(20));
        let client = Client::from_kube(link.client(), &env);
        let stop = CancellationToken::new();
        let lead = candidate(&client, &env, "0_1", stop.clone());
        let _still_leads = env.clock.timeout(LEADING, lead).await;
        link.requests()
    })
}
