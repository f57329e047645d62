//! Permissions that are missing at the start: all of them are named at once, and only if the server answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use watchkeeper::controller::{AccessCheck, Action, Controller, Manager, ManagerError, Watch};
use watchkeeper::leader::LeaderElection;
use watchkeeper::process::AdminAddress;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_test::TestCluster;

use crate::website::Website;

/// How the server answers a question.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Yes,
    No,
    Refused(u16),
    Never,
}

/// The questions that were asked, as `verb resource.group place`, or `verb resource.group name place`.
type Questions = Arc<Mutex<Vec<String>>>;

/// A client whose reviews are answered by `judge`; a server does everything else.
fn judged(env: &Env, judge: impl Fn(&str) -> Verdict + Send + Sync + 'static) -> (Client, Questions) {
    let (server, questions, judge) = (ApiServer::new(env), Questions::default(), Arc::new(judge));
    let asked = questions.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, asked, judge) = (server.service(), asked.clone(), judge.clone());
        async move {
            if request.uri().path() != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
                return Ok::<_, Infallible>(service.oneshot(request).await?.map(Either::Left));
            }
            assert_eq!(request.method(), Method::POST);
            let mut review: Value =
                serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
            let question = question(&review["spec"]["resourceAttributes"]);
            let verdict = judge(&question);
            asked.lock().push(question);
            let (code, answer) = match verdict {
                Verdict::Never => std::future::pending().await,
                Verdict::Refused(code) => (code, json!({"kind": "Status", "code": code})),
                verdict => {
                    review["status"] = json!({"allowed": verdict == Verdict::Yes});
                    (201, review)
                }
            };
            let answer = Either::Right(Full::new(Bytes::from(answer.to_string())));
            let code = StatusCode::from_u16(code).unwrap();
            Ok(Response::builder().status(code).body(answer).unwrap())
        }
    });
    (Client::from_kube(kube_client::Client::new(service, "default"), env), questions)
}

fn question(attributes: &Value) -> String {
    let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
    let subresource = attributes["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    let place = attributes["namespace"].as_str().unwrap_or("everywhere");
    let name = attributes["name"].as_str().map(|name| format!(" {name}")).unwrap_or_default();
    format!("{} {}{subresource}.{}{name} {place}", text("verb"), text("resource"), text("group"))
}

/// Registers a controller of ConfigMaps that own Secrets, and tells when it has reconciled one.
fn register(manager: &mut Manager) -> Arc<AtomicBool> {
    let has_run = Arc::new(AtomicBool::new(false));
    let run = has_run.clone();
    Controller::<ConfigMap>::new(manager)
        .owns(Watch::<Secret>::new())
        .reconcile(move |_, _| {
            run.store(true, SeqCst);
            async { Ok(Action::done()) }
        })
        .unwrap();
    has_run
}

/// The reports about access.
fn reports(env: &Env) -> Arc<Mutex<Vec<String>>> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let into = reports.clone();
    env.reporter.add_hook(move |report| {
        if report.part == "access" {
            into.lock().push(report.incident.to_string());
        }
    });
    reports
}

fn is_about_secrets(question: &str) -> bool {
    ["list secrets. ", "watch secrets. "].iter().any(|denied| question.starts_with(denied))
}

#[tokio::test(start_paused = true)]
async fn all_that_is_missing_is_reported_at_once_and_the_program_goes_on() {
    let env = Env::simulated(1);
    let reports = reports(&env);
    let (client, _) = judged(&env, |question| match question {
        "patch events. everywhere" => Verdict::No,
        question if is_about_secrets(question) => Verdict::No,
        _ => Verdict::Yes,
    });
    let mut manager = Manager::builder("tester", &client).preflight(AccessCheck::Warn).build();
    register(&mut manager);
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    env.clock.sleep(Duration::from_secs(1)).await;
    let expected = r#"permissions are missing cluster-wide: patch events, list secrets, watch secrets
bind this to the program's account:
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tester-missing
rules:
- apiGroups: [""]
  resources: ["events"]
  verbs: ["patch"]
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["list", "watch"]
"#;
    assert_eq!(*reports.lock(), [expected]);
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_program_that_must_have_its_permissions_ends_before_it_reconciles() {
    let env = Env::simulated(1);
    let (client, _) =
        judged(&env, |question| if is_about_secrets(question) { Verdict::No } else { Verdict::Yes });
    let map = serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "default"}})).unwrap();
    client.api::<ConfigMap>().create(&map).await.unwrap();
    let mut manager = Manager::builder("tester", &client).preflight(AccessCheck::Fail).build();
    let has_run = register(&mut manager);
    let error = manager.run(CancellationToken::new()).await.unwrap_err();
    let ManagerError::Access(missing) = error else { panic!("{error}") };
    let roles: Vec<_> = missing.roles().map(|(_, role)| role.rules()).collect();
    assert!(roles.len() == 1 && roles[0].len() == 1 && roles[0][0].verbs == ["list", "watch"], "{roles:?}");
    assert!(!has_run.load(SeqCst));

    let (client, _) = judged(&env, |_| Verdict::Yes);
    client.api::<ConfigMap>().create(&map).await.unwrap();
    let mut manager = Manager::builder("tester", &client).preflight(AccessCheck::Fail).build();
    let has_run = register(&mut manager);
    let stop = CancellationToken::new();
    let run = tokio::spawn(manager.run(stop.clone()));
    env.clock.sleep(Duration::from_secs(1)).await;
    assert!(has_run.load(SeqCst), "with all permissions it works");
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_permission_is_asked_for_where_it_is_needed() {
    let env = Env::simulated(1);
    let (client, questions) = judged(&env, |_| Verdict::Yes);
    let election = LeaderElection::builder(&client, "operators", "tester").build().unwrap();
    let mut manager = Manager::builder("tester", &client)
        .namespaces(["shop", "web"])
        .leader_election(election)
        .preflight(AccessCheck::Warn)
        .build();
    manager.crd::<Website>();
    manager.role_mut().add("apps", "deployments/scale", "patch");
    Controller::<Website>::new(&mut manager)
        .owns(Watch::<Secret>::new().namespaces(["vault"]))
        .watches(Watch::<Node>::new(), |_, _| Vec::new())
        .reconcile(|_, _| async { Ok(Action::done()) })
        .unwrap();
    let stop = CancellationToken::new();
    let run = tokio::spawn(manager.run(stop.clone()));
    env.clock.sleep(Duration::from_secs(1)).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    let mut expected = Vec::new();
    let mut add = |place: &str, resource: &str, verbs: &[&str]| {
        expected.extend(verbs.iter().map(|verb| format!("{verb} {resource} {place}")));
    };
    for place in ["shop", "web"] {
        add(place, "websites.example.dev", &["get", "list", "watch"]);
        add(place, "websites/status.example.dev", &["patch"]);
        add(place, "deployments/scale.apps", &["patch"]);
    }
    for place in ["shop", "web", "operators"] {
        add(place, "events.", &["create", "patch"]);
    }
    add("vault", "secrets.", &["get", "list", "watch", "create", "patch"]);
    add("operators", "leases.coordination.k8s.io", &["create"]);
    add("operators", "leases.coordination.k8s.io tester", &["get", "list", "watch", "update"]);
    add("everywhere", "nodes.", &["list", "watch"]);
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    add("everywhere", definitions, &["get", "create", "update"]);
    let mut asked = questions.lock().clone();
    asked.sort();
    expected.sort();
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_not_in_the_way() {
    for verdict in [403, 404, 429, 500, 503].map(Verdict::Refused).into_iter().chain([Verdict::Never]) {
        for (check, patience) in [(AccessCheck::Warn, 1), (AccessCheck::Fail, 11)] {
            let env = Env::simulated(1);
            let reports = reports(&env);
            let (client, questions) = judged(&env, move |_| verdict);
            let mut manager = Manager::builder("tester", &client).preflight(check).build();
            register(&mut manager);
            let (handle, stop) = (manager.handle(), CancellationToken::new());
            let run = tokio::spawn(manager.run(stop.clone()));
            let running = env.clock.timeout(Duration::from_secs(patience), handle.wait_until_running());
            assert!(running.await.is_ok(), "{check:?}");
            env.clock.sleep(Duration::from_secs(60)).await;
            assert!(reports.lock().is_empty() && !questions.lock().is_empty());
            stop.cancel();
            run.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_answers_and_no_question_is_asked_unless_wanted() {
    let env = Env::simulated(1);
    for check in [AccessCheck::Warn, AccessCheck::Fail, AccessCheck::Off] {
        let (client, questions) = judged(&env, |_| Verdict::Never);
        let mut manager = Manager::builder("tester", &client).preflight(check).build();
        register(&mut manager);
        let stop = CancellationToken::new();
        let run = tokio::spawn(manager.run(stop.clone()));
        env.clock.sleep(Duration::from_secs(1)).await;
        let before = env.clock.now();
        stop.cancel();
        run.await.unwrap().unwrap();
        assert!(env.clock.now() - before < Duration::from_secs(1), "{check:?}");
        assert_eq!(questions.lock().is_empty(), check == AccessCheck::Off);
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_with_protected_metrics_needs_reviews() {
    let env = Env::simulated(1);
    let (client, _) = judged(&env, |_| Verdict::Yes);
    let needs_reviews = |address: &str| {
        let manager = Manager::builder("tester", &client).admin(address.parse().unwrap(), AdminAddress::Off);
        let role = manager.build().role();
        let reviews =
            [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")];
        reviews.map(|(group, resource)| role.allows(group, resource, "create"))
    };
    assert_eq!(needs_reviews("0.0.0.0:8443"), [true, true]);
    assert_eq!(needs_reviews("127.0.0.1:8080"), [false, false]);
}

/// A role for an operator that keeps a Secret for each ConfigMap, with these verbs on Secrets.
fn own_role(verbs: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: operator}}\nrules:\n\
         - {{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}}\n\
         - {{apiGroups: [''], resources: [secrets], verbs: [{verbs}]}}\n\
         - {{apiGroups: [''], resources: [events], verbs: [create, patch]}}\n---\n\
         apiVersion: example.dev/v1\nkind: Unknown\nmetadata: {{name: ignored}}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn an_operator_runs_under_its_own_role_and_is_refused_anything_else() {
    for (verbs, expected) in [
        ("get, list, watch, create, patch", Ok(())),
        (
            "get, list, watch, create",
            Err(r#"cannot patch resource \"secrets\" in API group \"\" in the namespace \"default\""#),
        ),
    ] {
        let (sender, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        let builder = TestCluster::builder().env(&Env::simulated(1)).role(&own_role(verbs));
        let cluster = builder
            .start(|manager| {
                Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(
                    move |map, cx| {
                        let sender = sender.clone();
                        async move {
                            let mut secret = Secret::default();
                            secret.metadata.name = map.metadata.name.clone();
                            let applied = cx.apply(&secret).await;
                            let _nobody = sender.send(applied.as_ref().map(drop).map_err(|error| {
                                format!("{:?}", watchkeeper::report::WithCauses(error).to_string())
                            }));
                            applied?;
                            Ok(Action::done())
                        }
                    },
                )
            })
            .await;
        cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}").await;
        let outcome = outcomes.recv().await.unwrap();
        match expected {
            Ok(()) => assert_eq!(outcome, Ok(())),
            Err(words) => assert!(outcome.clone().is_err_and(|error| error.contains(words)), "{outcome:?}"),
        }
        cluster.stop().await;
    }
}
