//! Elections on a server that knows one Lease and permits no watch: candidates have to poll.

use std::convert::Infallible;
use std::future::pending;
use std::io::Seek;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::SignedDuration;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::Level;

use super::*;
use crate::clock::Clock;
use crate::record::EventBroadcaster;
use crate::wire::{ApiError, Class};

const SECOND: Duration = Duration::from_secs(1);

/// A server with one Lease.
#[derive(Clone)]
struct Server {
    state: Arc<Mutex<State>>,
    env: Env,
}

#[derive(Default)]
struct State {
    lease: Option<Value>,
    revision: u64,
    /// The requests about the one Lease.
    calls: Vec<&'static str>,
    /// The answers to the next writes, instead of acting.
    refusals: Vec<StatusCode>,
    /// Another candidate writes just before the next update.
    intruder: Option<&'static str>,
    hangs: bool,
    is_forbidden: bool,
}

impl Server {
    fn new() -> Self {
        Self { state: Arc::default(), env: Env::simulated(1) }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                if server.state.lock().hangs {
                    pending::<()>().await;
                }
                let is_forbidden = server.state.lock().is_forbidden;
                let is_list = parts.method == Method::GET && !parts.uri.path().ends_with("/leader");
                let (code, answer) = if is_list || is_forbidden {
                    let refusal = json!({
                        "kind": "Status", "reason": "Forbidden", "code": 403, "message": "leases is forbidden",
                    });
                    (StatusCode::FORBIDDEN, refusal)
                } else {
                    server.state.lock().act(&parts.method, serde_json::from_slice(&body).unwrap_or_default())
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::from_kube(kube_client::Client::new(service, "default"), &self.env)
    }

    fn election(&self, identity: &str) -> LeaderElection {
        LeaderElection::builder(&self.client(), "ns", "leader").identity(identity).build().unwrap()
    }

    fn lock(&self) -> LeaseLock {
        let name = ObjectName::namespaced("ns", "leader");
        LeaseLock::new(self.client().requests().clone(), name, BTreeMap::new())
    }

    fn holder(&self) -> String {
        let lease = self.state.lock().lease.clone();
        lease.map_or_else(String::new, |lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
    }

    fn calls(&self) -> String {
        self.state.lock().calls.join(" ")
    }

    /// Puts a Lease there that another candidate holds.
    fn held_by(&self, holder: &str) {
        let record = LeaderRecord {
            holder: holder.to_owned(),
            lease_seconds: 15,
            acquired: Some(self.env.clock.wall() - SignedDuration::from_hours(1)),
            renewed: Some(self.env.clock.wall() + SignedDuration::from_hours(1)),
            ..LeaderRecord::default()
        };
        self.state
            .lock()
            .store(json!({"metadata": {"name": "leader", "uid": "u"}, "spec": record.to_spec()}));
    }
}

impl State {
    fn store(&mut self, mut lease: Value) -> Value {
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = Some(lease.clone());
        lease
    }

    fn act(&mut self, method: &Method, body: Value) -> (StatusCode, Value) {
        let status = |code: StatusCode, reason: &str| {
            (code, json!({"kind": "Status", "reason": reason, "code": code.as_u16()}))
        };
        self.calls.push(if method == Method::GET {
            "get"
        } else if method == Method::POST {
            "create"
        } else {
            "update"
        });
        if method == Method::GET {
            return match &self.lease {
                Some(lease) => (StatusCode::OK, lease.clone()),
                None => status(StatusCode::NOT_FOUND, "NotFound"),
            };
        }
        if let Some(code) = self.refusals.pop() {
            return status(code, if code == StatusCode::CONFLICT { "Conflict" } else { "InternalError" });
        }
        if let Some(holder) = self.intruder.take() {
            let mut lease = self.lease.clone().unwrap();
            lease["spec"]["holderIdentity"] = holder.into();
            self.store(lease);
        }
        let known = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match (method == Method::POST, known) {
            (true, None) => (StatusCode::CREATED, self.store(body)),
            (true, Some(_)) => status(StatusCode::CONFLICT, "AlreadyExists"),
            (false, Some(version)) if version == body["metadata"]["resourceVersion"] => {
                (StatusCode::OK, self.store(body))
            }
            (false, Some(_)) => status(StatusCode::CONFLICT, "Conflict"),
            (false, None) => status(StatusCode::NOT_FOUND, "NotFound"),
        }
    }
}

fn record(holder: &str) -> LeaderRecord {
    LeaderRecord { holder: holder.to_owned(), lease_seconds: 15, ..LeaderRecord::default() }
}

// client-go: TestGetError, TestCreateError, TestUpdateError
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_missing_is_none_one_that_is_there_cannot_be_created_and_one_not_read_not_updated() {
    let server = Server::new();
    let mut lock = server.lock();
    let error = lock.update(&record("a")).await.unwrap_err();
    assert_eq!((error.class(), server.calls().as_str()), (Class::Invalid, ""), "{error}");
    assert_eq!(lock.get().await.unwrap(), None);
    lock.create(&record("a")).await.unwrap();
    assert_eq!(lock.create(&record("b")).await.unwrap_err().class(), Class::AlreadyExists);
    assert_eq!(lock.update(&record("c")).await.unwrap().version, 2.into());
    assert_eq!(server.lock().get().await.unwrap().unwrap().record.holder, "c");
}

#[tokio::test(start_paused = true)]
async fn events_refer_to_the_lease_as_it_was_last_seen() {
    let server = Server::new();
    let mut lock = server.lock();
    let reference = lock.reference();
    assert_eq!((reference.namespace.as_deref(), reference.name.as_deref()), (Some("ns"), Some("leader")));
    assert_eq!((reference.uid, reference.resource_version), (None, None));
    server.held_by("other");
    lock.get().await.unwrap();
    let reference = lock.reference();
    assert_eq!((reference.uid.as_deref(), reference.resource_version.as_deref()), (Some("u"), Some("1")));
}

/// Runs a candidate that leads until `stop`.
async fn lead(election: LeaderElection, stop: &CancellationToken) -> Result<Option<()>, LeaderElectionLost> {
    election.run(stop.clone(), |_| stop.clone().cancelled_owned()).await
}

// client-go: TestReleaseMethodCallsGet
#[tokio::test(start_paused = true)]
async fn a_leader_creates_the_lease_renews_it_with_one_write_each_and_reads_it_before_the_release() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    let watch = async {
        server.env.clock.sleep(5 * SECOND).await;
        assert_eq!(server.calls(), "get create update update");
        assert_eq!(server.holder(), "a");
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(server.election("a"), &stop), watch);
    assert_eq!(led, Ok(Some(())));
    assert_eq!(server.calls(), "get create update update get update");
    assert_eq!(server.holder(), "");
    let spec = server.state.lock().lease.clone().unwrap()["spec"].clone();
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(1), &json!(0)));
}

// client-go: TestReleaseRetriesOnConflict
#[tokio::test(start_paused = true)]
async fn a_release_that_conflicts_starts_over_and_one_that_fails_otherwise_is_given_up() {
    for (refusals, calls, holder) in [
        (vec![StatusCode::CONFLICT], "get create get update get update", ""),
        (vec![StatusCode::INTERNAL_SERVER_ERROR], "get create get update", "a"),
    ] {
        let (server, stop) = (Server::new(), CancellationToken::new());
        let watch = async {
            server.env.clock.sleep(SECOND).await;
            server.state.lock().refusals = refusals;
            stop.cancel();
        };
        let (led, ()) = tokio::join!(lead(server.election("a"), &stop), watch);
        assert_eq!((led, server.calls().as_str(), server.holder().as_str()), (Ok(Some(())), calls, holder));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_has_taken_meanwhile_is_not_released() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    let watch = async {
        server.env.clock.sleep(SECOND).await;
        server.state.lock().intruder = Some("b");
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(server.election("a"), &stop), watch);
    // The first update conflicts with that of the other, and the second read tells.
    assert_eq!((led, server.calls().as_str()), (Ok(Some(())), "get create get update get"));
    assert_eq!(server.holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_may_not_watch_polls_and_takes_over_when_the_lease_has_expired() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    server.held_by("other");
    let start = server.env.clock.now();
    let election = server.election("a");
    let status = election.status().clone();
    let won = async {
        status.won().await;
        let took = server.env.clock.now() - start;
        assert!(took >= 15 * SECOND && took < 17 * SECOND, "{took:?}");
        assert_eq!((status.leader().as_str(), status.is_leader()), ("a", true));
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(election, &stop), won);
    assert_eq!(led, Ok(Some(())));
    let polls = server.calls().matches("get").count();
    assert!((4..=10).contains(&polls), "{}", server.calls());
    assert!(!status.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_hang_drops_its_work_a_renew_deadline_after_the_last_good_one() {
    let server = Server::new();
    let guarded = Mutex::new(None);
    let election = server.election("a");
    *guarded.lock() = Some(election.guard(&server.client()));
    let work = |_| async {
        server.env.clock.sleep(5 * SECOND).await;
        server.state.lock().hangs = true;
        pending::<()>().await;
    };
    let start = server.env.clock.now();
    let lost = election.run(CancellationToken::new(), work).await.unwrap_err();
    assert_eq!(lost.loss, Loss::NotRenewed);
    assert_eq!(lost.to_string(), "leader election lost: ns/leader: the lease could not be renewed in time");
    // The last good renewal was sent after four seconds.
    assert_eq!((server.env.clock.now() - start).as_secs_f64().round(), 14.0);
    let client: Client = guarded.lock().take().unwrap();
    let error =
        client.api::<k8s_openapi::api::core::v1::ConfigMap>().delete(&ObjectName::namespaced("a", "b")).await;
    assert_eq!(error.map_err(|error: ApiError| error.class()), Err(Class::NotLeader));
    assert_eq!(server.holder(), "a", "it is left to expire");
}

#[tokio::test(start_paused = true)]
async fn an_election_that_is_dropped_leads_no_more() {
    let server = Server::new();
    let election = server.election("a");
    let (status, guarded) = (election.status().clone(), election.guard(&server.client()));
    let run = election.run(CancellationToken::new(), |_| async {
        assert!(status.is_leader());
        pending::<()>().await;
    });
    assert!(server.env.clock.timeout(3 * SECOND, run).await.is_err(), "it led until it was dropped");
    assert!(status.has_led() && !status.is_leader());
    let name = ObjectName::namespaced("a", "b");
    let refused = guarded.api::<k8s_openapi::api::core::v1::ConfigMap>().delete(&name).await;
    assert_eq!(refused.map_err(|error: ApiError| error.class()), Err(Class::NotLeader));
}

#[tokio::test(start_paused = true)]
async fn requests_that_fail_are_warned_of_and_lost_races_are_not() {
    for (refusal, warnings) in [
        (StatusCode::INTERNAL_SERVER_ERROR, vec!["cannot write the lease", "cannot release the lease"]),
        (StatusCode::CONFLICT, vec![]),
    ] {
        let log = Arc::new(tempfile::tempfile().unwrap());
        let lines = tracing_subscriber::fmt().json().with_max_level(Level::WARN).with_writer(log.clone());
        let _guard = tracing::subscriber::set_default(lines.finish());
        let (server, stop) = (Server::new(), CancellationToken::new());
        server.state.lock().refusals = vec![refusal];
        let watch = async {
            server.env.clock.sleep(5 * SECOND).await;
            server.state.lock().refusals = vec![refusal];
            stop.cancel();
        };
        let (led, ()) = tokio::join!(lead(server.election("a"), &stop), watch);
        assert_eq!(led, Ok(Some(())));
        (&*log).rewind().unwrap();
        let lines = serde_json::Deserializer::from_reader(&*log).into_iter::<Value>().map(Result::unwrap);
        let about_leases =
            lines.map(|line| line["fields"].clone()).filter(|fields| !fields["lease"].is_null());
        let messages: Vec<_> =
            about_leases.map(|fields| fields["message"].as_str().unwrap().to_owned()).collect();
        assert_eq!(messages, warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_replaced_learns_it_at_its_next_renewal() {
    let server = Server::new();
    let work = |_| async {
        server.env.clock.sleep(3 * SECOND).await;
        server.state.lock().intruder = Some("b");
        pending::<()>().await;
    };
    let lost = server.election("a").run(CancellationToken::new(), work).await.unwrap_err();
    assert_eq!(lost.loss, Loss::TakenBy("b".to_owned()));
    assert_eq!(server.calls(), "get create update update get");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_is_deleted_creates_it_again_and_goes_on() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    let election = server.election("a");
    let status = election.status().clone();
    let watch = async {
        server.env.clock.sleep(3 * SECOND).await;
        server.state.lock().lease = None;
        server.env.clock.sleep(4 * SECOND).await;
        assert_eq!((server.holder().as_str(), status.slow_paths()), ("a", 1));
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(election, &stop), watch);
    assert_eq!(led, Ok(Some(())));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_may_not_read_the_lease_tells_why_until_it_may() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    server.held_by("other");
    server.state.lock().is_forbidden = true;
    let election = server.election("a");
    let (status, clock) = (election.status().clone(), server.env.clock.clone());
    let watch = async {
        clock.sleep(34 * SECOND).await;
        assert_eq!(status.check_standby(), Ok(()));
        clock.sleep(2 * SECOND).await;
        let problem = status.check_standby().unwrap_err();
        assert_eq!(problem, "cannot read the lease leader: leases is forbidden (403 Forbidden)");
        assert_eq!(status.check(), Ok(()), "a restart would not help");
        server.state.lock().is_forbidden = false;
        clock.sleep(10 * SECOND).await;
        assert_eq!(status.check_standby(), Ok(()));
        // A server that does not answer is not seen either.
        server.state.lock().hangs = true;
        clock.sleep(46 * SECOND).await;
        assert!(status.check_standby().unwrap_err().starts_with("cannot read the lease leader: "));
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(election, &stop), watch);
    assert_eq!(led, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_left_to_expire_if_it_is_not_to_be_released() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    let election = LeaderElection::builder(&server.client(), "ns", "leader").identity("a");
    let election = election.release_on_cancel(false).build().unwrap();
    let watch = async {
        server.env.clock.sleep(SECOND).await;
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(election, &stop), watch);
    assert_eq!((led, server.calls().as_str(), server.holder().as_str()), (Ok(Some(())), "get create", "a"));
}

#[tokio::test(start_paused = true)]
async fn an_election_has_the_name_and_the_tolerance_that_it_is_given() {
    let server = Server::new();
    let election = LeaderElection::builder(&server.client(), "ns", "leader").identity("a").name("shop");
    let election = election.health_tolerance(3 * SECOND).build().unwrap();
    let status = election.status().clone();
    assert_eq!(status.name(), "shop");
    status.renewed(server.env.clock.boot(), 0);
    server.env.clock.sleep(18 * SECOND).await;
    assert_eq!(status.check(), Ok(()));
    server.env.clock.sleep(SECOND / 100).await;
    assert_eq!(status.check(), Err("failed election to renew leadership on lease shop".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_while_it_waits_leaves_the_lease_alone() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    server.held_by("other");
    let watch = async {
        server.env.clock.sleep(SECOND).await;
        stop.cancel();
    };
    let (led, ()) = tokio::join!(lead(server.election("a"), &stop), watch);
    assert_eq!((led, server.calls().as_str()), (Ok(None), "get"));
}

// client-go: TestRecordEventNilRecorder
#[tokio::test(start_paused = true)]
async fn events_tell_when_a_candidate_has_led_if_there_is_a_recorder() {
    let (server, stop) = (Server::new(), CancellationToken::new());
    let events = EventBroadcaster::new(&server.env);
    let mut stream = events.subscribe();
    let election = LeaderElection::builder(&server.client(), "ns", "leader").identity("a");
    let election = election.recorder(&events.recorder("tester")).build().unwrap();
    let watch = async {
        server.env.clock.sleep(SECOND).await;
        stop.cancel();
    };
    let (_, ()) = tokio::join!(lead(election, &stop), watch);
    let (first, second) = (stream.recv().await.unwrap(), stream.recv().await.unwrap());
    assert_eq!(first.to_string(), "Normal LeaderElection a became leader");
    assert_eq!(second.to_string(), "Normal LeaderElection a stopped leading");
    assert_eq!(first.object().name(), "leader");
}

// client-go: TestLeaderElectionConfigValidation, TestDescribe
#[tokio::test(start_paused = true)]
async fn an_election_needs_a_lease_and_an_identity_which_is_unique_by_default() {
    let client = Server::new().client();
    let build = |builder: LeaderElectionBuilder| {
        builder.build().map(|election| election.status().identity().to_owned())
    };
    let builder = || LeaderElection::builder(&client, "ns", "leader");
    assert_eq!(build(builder().identity("")), Err(ElectionError::NoIdentity));
    assert_eq!(build(LeaderElection::builder(&client, "", "leader")), Err(ElectionError::NoLease));
    assert_eq!(build(LeaderElection::builder(&client, "ns", "")), Err(ElectionError::NoLease));
    let times = LeaseTimes { retry_period: Duration::ZERO, ..LeaseTimes::default() };
    assert_eq!(build(builder().times(times)), Err(TimesError::RetryZero.into()));
    let (first, second) = (build(builder()).unwrap(), build(builder()).unwrap());
    assert_ne!(first, second);
    let (host, uuid) = first.rsplit_once('_').unwrap();
    #[cfg(unix)]
    assert_eq!(host.as_bytes(), rustix::system::uname().nodename().to_bytes());
    assert!(!host.is_empty() && uuid.len() == 36, "{first}");
    let election = builder().identity("a").build().unwrap();
    assert_eq!(format!("{:?}", election.leadership), format!("Leadership({:?})", election.status()));
    assert!(format!("{election:?}").contains("ns/leader"));
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_does_not_matter() {
    // The candidate's clock is a year ahead of the one that wrote the Lease.
    let (server, stop) = (Server::new(), CancellationToken::new());
    server.held_by("other");
    let ahead = Clock::virtual_at(server.env.clock.wall() + SignedDuration::from_hours(24 * 365));
    let env = Env::new(ahead, server.env.generator.clone());
    let client = Client::from_kube(server.client().kube().clone(), &env);
    let election = LeaderElection::builder(&client, "ns", "leader").identity("a").build().unwrap();
    let watch = async {
        server.env.clock.sleep(14 * SECOND).await;
        assert_eq!(server.holder(), "other");
        server.env.clock.sleep(4 * SECOND).await;
        assert_eq!(server.holder(), "a");
        stop.cancel();
    };
    tokio::join!(lead(election, &stop), watch).0.unwrap();
}
