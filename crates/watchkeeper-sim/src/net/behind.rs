//! Reads from a server that is behind: what accepts any version gets an old state.

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::carry::Call;

impl Call {
    /// For a watch that begins with the state of any version, or of one that is not newer than `revision`: the events of the state at
    /// `revision`, and the URL of a watch that goes on from there. `None` for other requests, and if the server has forgotten that state.
    pub(super) async fn initial_events_at(&self, revision: u64) -> Option<(Vec<Bytes>, Uri)> {
        let uri = &self.parts.uri;
        let query = uri.query()?;
        let is = |wanted: &str| query.split('&').any(|part| part == wanted);
        // Without this parameter, only a watch of any version begins with a state.
        let begins_with_state =
            is("sendInitialEvents=true") || (is("resourceVersion=0") && !is("sendInitialEvents=false"));
        if !is("watch=true") || !begins_with_state || !accepts(query, revision) {
            return None;
        }
        let list = self.state_at(revision).await?;
        let (kind, version) = (list["kind"].as_str()?.strip_suffix("List")?, list["apiVersion"].as_str()?);
        let mut events: Vec<Bytes> = Vec::new();
        for item in list["items"].as_array()? {
            let mut object = json!({"kind": kind, "apiVersion": version});
            object.as_object_mut()?.extend(item.as_object()?.clone());
            events.push(line("ADDED", &object));
        }
        if is("sendInitialEvents=true") {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": revision.to_string(), "annotations": annotations});
            events
                .push(line("BOOKMARK", &json!({"kind": kind, "apiVersion": version, "metadata": metadata})));
        }
        Some((events, changed(uri, &format!("resourceVersion={revision}"))?))
    }

    /// The list of what the request watches, at a revision.
    async fn state_at(&self, revision: u64) -> Option<Value> {
        let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
        let uri = changed(&self.parts.uri, &exact)?.to_string();
        let mut request = Request::builder().method(Method::GET).uri(uri.replace("watch=true&", ""));
        if let Some(accept) = self.parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) {
            // Of metadata, a list has another type than an object.
            let of_lists = accept.replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;");
            request = request.header(ACCEPT, HeaderValue::from_str(&of_lists).ok()?);
        }
        let Ok(answer) = self.net.0.service.clone().oneshot(request.body(Body::empty()).ok()?).await;
        if answer.status() != 200 {
            return None;
        }
        let Ok(body) = answer.into_body().collect().await;
        serde_json::from_slice(&body.to_bytes()).ok()
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

/// Whether a read may be answered with the state at `revision`: it accepts any version, or one that is not newer. What asks for the newest
/// state, or for an exact one, is never answered with an old one.
fn accepts(query: &str, revision: u64) -> bool {
    let value = |name: &str| {
        query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let version = value("resourceVersion").parse::<u64>();
    // The version of a page is exact if nothing else is said.
    let is_exact = match value("resourceVersionMatch") {
        "" => !value("limit").is_empty() && version != Ok(0),
        wanted => wanted == "Exact",
    };
    version.is_ok_and(|version| version <= revision) && !is_exact && value("continue").is_empty()
}

/// The URL of a list at `revision`, if the list may be that old.
pub(super) fn list_at(uri: &Uri, revision: u64) -> Option<Uri> {
    let query = uri.query()?;
    if !accepts(query, revision) || query.contains("watch=true") {
        return None;
    }
    changed(uri, &format!("resourceVersion={revision}&resourceVersionMatch=Exact"))
}

/// The URL with `version` instead of what it says about versions. The parameters of the version come last.
fn changed(uri: &Uri, version: &str) -> Option<Uri> {
    let is_of_version =
        |part: &&str| part.starts_with("resourceVersion") || part.starts_with("sendInitialEvents");
    let mut parts: Vec<&str> = uri.query()?.split('&').filter(|part| !is_of_version(part)).collect();
    parts.push(version);
    format!("{}?{}", uri.path(), parts.join("&")).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::TryStreamExt;
    use http::Response;
    use tower::Service;
    use watchkeeper::Env;
    use watchkeeper_apiserver::ApiServer;

    use super::super::windows::Stale;
    use super::super::{AnswerBody, Net};
    use super::*;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    async fn create(server: &ApiServer, name: &str) -> u64 {
        let map = json!({"metadata": {"name": name}}).to_string();
        let request =
            Request::post(MAPS).header("content-type", "application/json").body(Body::from(map.into_bytes()));
        let Ok(answer) = server.service().oneshot(request.unwrap()).await;
        assert_eq!(answer.status(), 201);
        server.revision()
    }

    /// A server with two objects, behind a network whose replica 0 is served the state with one, for a minute.
    async fn behind() -> (Env, Net, u64) {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let revision = create(&server, "a").await;
        create(&server, "b").await;
        let net = Net::scripted(
            &server,
            &env.clock,
            crate::script::Script::planned(&[]),
            &crate::trace::Trace::new(&env.clock),
            2,
        );
        let until = env.clock.now() + Duration::from_secs(60);
        net.0.state.lock().windows.stale =
            Some(Stale { replica: 0, revision, until, planned: "crash-stale(0) @ step 0".parse().unwrap() });
        (env, net, revision)
    }

    async fn get(net: &Net, replica: usize, query: &str, accept: &str) -> Response<AnswerBody> {
        let request = Request::get(format!("{MAPS}?{query}")).header(ACCEPT, accept).body(Body::empty());
        net.service_of(replica).call(request.unwrap()).await.unwrap()
    }

    /// Type and name of the first events, with the time at which they come.
    async fn events(env: &Env, answer: Response<AnswerBody>, count: usize) -> Vec<(String, u64)> {
        let begun = env.clock.now();
        let mut body = answer.into_body().into_data_stream();
        let mut events = Vec::new();
        while events.len() < count {
            let line = body.try_next().await.unwrap().unwrap();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            let kind = event["object"]["kind"].as_str().unwrap_or_default();
            let what = format!("{} {kind} {name}", event["type"].as_str().unwrap());
            events.push((what.trim_end().to_owned(), (env.clock.now() - begun).as_secs()));
        }
        events
    }

    const STREAM: &str =
        "watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

    #[tokio::test(start_paused = true)]
    async fn a_streamed_list_of_any_version_begins_with_the_old_state() {
        let (env, net, revision) = behind().await;
        let answer = get(&net, 0, &format!("{STREAM}&allowWatchBookmarks=true"), "application/json").await;
        let seen = events(&env, answer, 3).await;
        let at = |what: &str, seconds| (what.to_owned(), seconds);
        assert_eq!(
            seen,
            [at("ADDED ConfigMap a", 0), at("BOOKMARK ConfigMap", 0), at("ADDED ConfigMap b", 60)],
            "from {revision}"
        );
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        net.0.state.lock().windows.stale.as_mut().unwrap().until = env.clock.now() + Duration::from_secs(60);
        let seen = events(&env, get(&net, 0, STREAM, metadata).await, 2).await;
        assert_eq!(seen[0], at("ADDED PartialObjectMetadata a", 0));
        assert_eq!(seen[1], at("BOOKMARK PartialObjectMetadata", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn other_reads_and_other_replicas_see_the_newest_state() {
        let (env, net, revision) = behind().await;
        let of_other = get(&net, 1, &format!("{STREAM}&allowWatchBookmarks=true"), "application/json").await;
        let seen = events(&env, of_other, 2).await;
        assert_eq!(seen[1], ("ADDED ConfigMap b".to_owned(), 0));
        let list = get(&net, 0, "resourceVersion=0", "application/json").await;
        let list = list.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "a list of any version is old, too");
        let not_older = |version: u64, rest: &str| {
            format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan{rest}")
        };
        let count = async |query: String| {
            let list = get(&net, 0, &query, "application/json").await;
            let list = list.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<Value>(&list).unwrap()["items"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(count(not_older(revision, "")).await, 1, "what a relist had seen before is no newer");
        assert_eq!(count(not_older(revision, "&limit=5")).await, 1);
        assert_eq!(count(not_older(revision + 1, "")).await, 2, "what it had seen is newer");
        assert_eq!(count("limit=5".to_owned()).await, 2, "the newest state");
        assert!(!accepts(&format!("resourceVersion={revision}&limit=5"), revision), "an exact version");
        let consistent = STREAM.replace("resourceVersion=0&", "");
        let seen = events(&env, get(&net, 0, &consistent, "application/json").await, 2).await;
        assert_eq!(seen[1], ("ADDED ConfigMap b".to_owned(), 60), "when the server has caught up");
    }
}
