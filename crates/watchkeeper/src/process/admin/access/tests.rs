use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde_json::Value;

use super::*;

/// An API server that knows whose tokens are whose, and who may get which path.
#[derive(Default)]
struct Judge {
    /// Answered with this code instead.
    failure: Mutex<Option<u16>>,
    /// The token that is valid, and the path that its user may get.
    token: Mutex<&'static str>,
    path: Mutex<&'static str>,
    /// The reviews so far.
    asked: Mutex<Vec<Value>>,
}

impl Judge {
    fn answer(&self, mut review: Value) -> (u16, Value) {
        if let Some(code) = *self.failure.lock() {
            return (code, json!({"kind": "Status", "code": code, "message": "scripted"}));
        }
        let spec = &review["spec"];
        review["status"] = match spec["token"].as_str() {
            Some(token) if token == *self.token.lock() => json!({"authenticated": true, "user": {
                "username": "scraper", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}}),
            Some(_) => json!({"user": {}, "error": "invalid bearer token"}),
            None => json!({"allowed": spec["nonResourceAttributes"]["path"] == *self.path.lock()}),
        };
        (201, review)
    }

    /// Returns how many reviews of each kind there were.
    fn counts(&self) -> (usize, usize) {
        let asked = self.asked.lock();
        let tokens = asked.iter().filter(|review| review["spec"]["token"].is_string()).count();
        (tokens, asked.len() - tokens)
    }
}

/// A server for which the token `good` is valid, and whose user may get /metrics.
fn judged() -> (Access, Arc<Judge>, Env) {
    let (judge, env) = (Arc::new(Judge::default()), Env::simulated(1));
    (*judge.token.lock(), *judge.path.lock()) = ("good", "/metrics");
    let answering = judge.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let judge = answering.clone();
        async move {
            let is_known = [
                "/apis/authentication.k8s.io/v1/tokenreviews",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            ];
            assert!(is_known.contains(&request.uri().path()), "{request:?}");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            judge.asked.lock().push(review.clone());
            let (code, answer) = judge.answer(review);
            let answer = Response::builder().status(code).body(Full::from(answer.to_string()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let client = Client::from_kube(kube_client::Client::new(service, "default"), &env);
    (Access::new(&client), judge, env)
}

async fn check(access: &Access, authorization: &str, path: &str) -> Result<(), Refusal> {
    let headers = [(AUTHORIZATION, authorization.parse().unwrap())].into_iter().collect();
    access.check(&headers, "get", path).await.map(|_| ())
}

const GOOD: &str = "Bearer good";

#[tokio::test(start_paused = true)]
async fn a_page_is_for_those_with_a_valid_token_who_may_get_it() {
    let (access, judge, _) = judged();
    assert_eq!(access.check(&HeaderMap::new(), "get", "/metrics").await, Err(Refusal::Unauthorized));
    for none in ["", "good", "Basic good", "Bearer", "Bearer  "] {
        assert_eq!(check(&access, none, "/metrics").await, Err(Refusal::Unauthorized), "{none:?}");
    }
    assert_eq!(judge.counts(), (0, 0), "without a token, nobody is asked");
    assert_eq!(check(&access, "Bearer bad", "/metrics").await, Err(Refusal::Unauthorized));
    assert_eq!(judge.counts(), (1, 0));
    assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()));
    assert_eq!(check(&access, "bearer good", "/").await, Err(Refusal::Forbidden));
    let asked = judge.asked.lock().last().unwrap()["spec"].clone();
    let expected = json!({
        "user": "scraper", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/", "verb": "get"},
    });
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn who_may_get_a_page_may_not_therefore_post_to_it() {
    let (access, judge, _) = judged();
    let headers: HeaderMap = [(AUTHORIZATION, GOOD.parse().unwrap())].into_iter().collect();
    assert_eq!(access.check(&headers, "get", "/metrics").await.as_deref(), Ok("scraper"));
    assert_eq!(access.check(&headers, "post", "/metrics").await.as_deref(), Ok("scraper"));
    let asked = judge.asked.lock();
    let verbs = asked.iter().filter_map(|review| {
        let verb = review["spec"]["nonResourceAttributes"]["verb"].as_str()?;
        Some(verb.to_owned())
    });
    assert_eq!(verbs.collect::<Vec<_>>(), ["get", "post"], "each verb is asked for");
}

#[tokio::test(start_paused = true)]
async fn answers_are_remembered_for_a_while() {
    let (access, judge, env) = judged();
    let wait = async |seconds: u64| env.clock.sleep(Duration::from_secs(seconds)).await;
    for _ in 0..3 {
        assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()));
        assert_eq!(check(&access, GOOD, "/").await, Err(Refusal::Forbidden));
        assert_eq!(check(&access, "Bearer bad", "/").await, Err(Refusal::Unauthorized));
    }
    assert_eq!(judge.counts(), (2, 2));
    (*judge.token.lock(), *judge.path.lock()) = ("other", "/");
    wait(29).await;
    assert_eq!(check(&access, GOOD, "/").await, Err(Refusal::Forbidden), "a refusal lasts 30 s");
    wait(1).await;
    assert_eq!(check(&access, GOOD, "/").await, Ok(()));
    wait(29).await;
    assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()), "a token lasts 60 s");
    assert_eq!(judge.counts(), (2, 3));
    wait(1).await;
    assert_eq!(check(&access, GOOD, "/metrics").await, Err(Refusal::Unauthorized));
    *judge.token.lock() = "good";
    wait(60).await;
    assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()), "a permission lasts 5 min");
    wait(179).await;
    assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()));
    wait(1).await;
    assert_eq!(check(&access, GOOD, "/metrics").await, Err(Refusal::Forbidden));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_answer_is_not_remembered() {
    let (access, judge, env) = judged();
    for code in [403, 404, 500, 503] {
        *judge.failure.lock() = Some(code);
        assert_eq!(check(&access, GOOD, "/metrics").await, Err(Refusal::Unknown), "{code}");
    }
    *judge.failure.lock() = None;
    assert_eq!(check(&access, GOOD, "/metrics").await, Ok(()));
    *judge.failure.lock() = Some(500);
    assert_eq!(
        check(&access, GOOD, "/healthz/x").await,
        Err(Refusal::Unknown),
        "whether it may is not known"
    );
    assert_eq!(env.reporter.errors(), 5);
}

#[tokio::test(start_paused = true)]
async fn one_question_is_asked_for_many_that_come_together() {
    let (access, judge, _) = judged();
    let many = (0..50).map(|_| check(&access, GOOD, "/metrics"));
    assert!(futures::future::join_all(many).await.iter().all(Result::is_ok));
    let (tokens, grants) = judge.counts();
    assert!(tokens <= AT_ONCE && grants <= AT_ONCE, "{tokens} {grants}");
}

#[test]
fn the_digest_of_parts_is_not_that_of_their_concatenation() {
    let (access, ..) = tokio::runtime::Runtime::new().unwrap().block_on(async { judged() });
    assert_ne!(access.digest(&[b"ab", b"c"]), access.digest(&[b"a", b"bc"]));
    assert_eq!(access.digest(&[b"ab", b"c"]), access.digest(&[b"ab", b"c"]));
}
