//! The quota controller at work, on an API server in the same process, as seen by an informer.
//!
//! `cargo run -p examples --example quotas_story`. The controller is quotas.rs.

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_core::params::Patch;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Clock;
use watchkeeper::informer::{InformerStopped, on_apply};
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

#[path = "quotas.rs"]
#[expect(dead_code, reason = "it is run by the story, not by its own main")]
mod quotas;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let env = Env::system();
    let client = examples::client(&env);
    play(&client, tell).await
}

/// Runs the controller, and tells `story` meanwhile.
async fn play<'a, S>(
    client: &'a Client,
    story: impl FnOnce(&'a Client, Seen) -> S,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    S: Future<Output = Result<(), Box<dyn Error + Send + Sync>>>,
{
    let stop = CancellationToken::new();
    let seen = Seen::of(client, &stop)?;
    let story = async {
        let _stop = stop.clone().drop_guard();
        story(client, seen).await
    };
    let (story, program) = tokio::join!(story, quotas::run(client, &stop));
    story.and(program)
}

/// The story: a namespace comes, grows, and is given a size that does not exist.
async fn tell(client: &Client, mut seen: Seen) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (namespaces, quotas) = (client.api::<Namespace>(), client.api::<ResourceQuota>());
    let (key, quota) = (ObjectName::cluster("team-a"), ObjectName::namespaced("team-a", "size"));

    println!("a small namespace is created");
    let small = json!({"metadata": {"name": "team-a", "labels": {"size": "small"}}});
    namespaces.create(&serde_json::from_value(small)?).await?;
    seen.until("quota team-a/size allows 10 Pods").await?;
    seen.until("Normal QuotaSet: 10 Pods allowed").await?;

    println!("it becomes a large one");
    namespaces.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"size": "large"}}}))).await?;
    seen.until("quota team-a/size allows 100 Pods").await?;
    seen.until("Normal QuotaSet: 100 Pods allowed").await?;

    println!("somebody edits the quota");
    quotas.patch(&quota, &Patch::Merge(json!({"spec": {"hard": {"pods": "500"}}}))).await?;
    seen.until("quota team-a/size allows 500 Pods").await?;
    seen.until("quota team-a/size allows 100 Pods").await?;
    seen.until("Normal QuotaSet: 100 Pods allowed").await?;

    println!("somebody asks for a size that does not exist");
    namespaces.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"size": "huge"}}}))).await?;
    seen.until("Warning UnknownSize: size \"huge\" is not known: say small or large").await?;
    Ok(())
}

/// What quotas and events an informer of the story's own sees.
struct Seen {
    lines: mpsc::UnboundedReceiver<String>,
    /// What was seen and not waited for yet: of two informers, no one knows which is first.
    early: Vec<String>,
    clock: Clock,
    _factory: SharedInformerFactory,
}

impl Seen {
    fn of(client: &Client, stop: &CancellationToken) -> Result<Self, InformerStopped> {
        let factory = SharedInformerFactory::builder(client).build();
        let (sender, lines) = mpsc::unbounded_channel();
        let (quotas, events) = (sender.clone(), sender);
        factory.informer().add_handler(on_apply(move |object: &Object<ResourceQuota>| {
            let pods = || object.get().ok()?.spec.as_ref()?.hard.as_ref()?.get("pods").cloned();
            let Some(Quantity(pods)) = pods() else { return };
            let _closed = quotas.send(format!("quota {} allows {pods} Pods", object.key()));
        }))?;
        factory.informer().add_handler(on_apply(move |object: &Object<Event>| {
            let Ok(event) = object.get() else { return };
            let [kind, reason, message] =
                [&event.type_, &event.reason, &event.message].map(|part| part.as_deref().unwrap_or_default());
            let _closed = events.send(format!("{kind} {reason}: {message}"));
        }))?;
        factory.start(stop);
        Ok(Self { lines, early: Vec::new(), clock: client.env().clock.clone(), _factory: factory })
    }

    /// Waits until `wanted` is seen, and prints it.
    async fn until(&mut self, wanted: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        loop {
            if let Some(at) = self.early.iter().position(|line| line == wanted) {
                println!("  {}", self.early.remove(at));
                return Ok(());
            }
            let next = self.clock.timeout(Duration::from_secs(60), self.lines.recv()).await;
            self.early.push(next.ok().flatten().ok_or_else(|| format!("not seen: {wanted}"))?);
        }
    }
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube_client::Api;
    use kube_client::client::Body;
    use kube_core::params::ListParams;
    use tower::{ServiceExt, service_fn};
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    const SIZE_OF_TEAM_B: &str = "quota team-b/size allows 10 Pods";

    /// A namespace `team-b` without a size.
    async fn team_b(client: &Client) -> Result<(), Box<dyn Error + Send + Sync>> {
        let team = json!({"metadata": {"name": "team-b"}});
        client.api::<Namespace>().create(&serde_json::from_value(team)?).await?;
        Ok(())
    }

    async fn make_small(client: &Client) -> Result<(), Box<dyn Error + Send + Sync>> {
        let small = Patch::Merge(json!({"metadata": {"labels": {"size": "small"}}}));
        client.api::<Namespace>().patch(&ObjectName::cluster("team-b"), &small).await?;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_quota_of_somebody_else_is_left_alone_and_told() {
        for pods in ["77", "10"] {
            let client = examples::client(&Env::simulated(1));
            let story = play(&client, async |client, mut seen| {
                let (quotas, key) = (client.api::<ResourceQuota>(), ObjectName::namespaced("team-b", "size"));
                team_b(client).await?;
                let theirs = json!({
                    "metadata": {"name": "size", "namespace": "team-b", "labels": {"team": "infra"}},
                    "spec": {"hard": {"pods": pods, "configmaps": "5"}},
                });
                let theirs = quotas.create(&serde_json::from_value(theirs)?).await?;
                make_small(client).await?;
                seen.until(
                    "Warning QuotaExists: there is a quota \"size\" already, of somebody else: remove it",
                )
                .await?;
                assert_eq!(quotas.get(&key).await?, theirs);
                // Who follows the advice gets the quota.
                quotas.delete(&key).await?;
                seen.until("Normal QuotaSet: 10 Pods allowed").await
            });
            story.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_put_on_the_quota_stays_when_it_is_set_back() {
        let client = examples::client(&Env::simulated(1));
        let story = play(&client, async |client, mut seen| {
            team_b(client).await?;
            make_small(client).await?;
            seen.until(SIZE_OF_TEAM_B).await?;
            let (quotas, key) = (client.api::<ResourceQuota>(), ObjectName::namespaced("team-b", "size"));
            let edit = json!({"metadata": {"labels": {"team": "infra"}}, "spec": {"hard": {"pods": "500"}}});
            quotas.patch(&key, &Patch::Merge(edit)).await?;
            seen.until(SIZE_OF_TEAM_B).await?;
            let labels = quotas.get(&key).await?.metadata.labels.unwrap_or_default();
            assert_eq!(labels.get("team").map(String::as_str), Some("infra"));
            Ok(())
        });
        story.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_worker_records_after_the_stop_is_written_too() {
        let (env, stop) = (Env::simulated(1), CancellationToken::new());
        let server = ApiServer::new(&env);
        let (service, end, clock) = (server.service(), stop.clone(), env.clock.clone());
        // The stop comes while the quota is on its way, and the answer a good while after it.
        let slow = service_fn(move |request: Request<Body>| {
            let is_quota = request.method() == "POST" && request.uri().path().ends_with("/resourcequotas");
            let (service, end, clock) = (service.clone(), end.clone(), clock.clone());
            async move {
                if is_quota {
                    end.cancel();
                    clock.sleep(Duration::from_secs(1)).await;
                }
                service.oneshot(request).await
            }
        });
        let client = Client::from_kube(kube_client::Client::new(slow, "default"), &env);
        team_b(&client).await.unwrap();
        make_small(&client).await.unwrap();
        // As a task of a larger program, which takes a future that is Send.
        let program = tokio::spawn(async move { quotas::run(&client, &stop).await });
        program.await.unwrap().unwrap();
        let events = Api::<Event>::all(server.client()).list(&ListParams::default()).await.unwrap();
        let told: Vec<_> = events.iter().filter_map(|event| event.message.as_deref()).collect();
        assert_eq!(told, ["10 Pods allowed"]);
    }
}
