//! A controller that reports how many keys each ConfigMap has.
#![forbid(unsafe_code)]

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let env = Env::system();
    LogArgs::default().install("info")?;
    let client = ClientArgs::default().connect(&env).await?;
    run(&client, &signals::install(&env)?).await
}

/// Runs the controller until `stop`.
async fn run(client: &Client, stop: &CancellationToken) -> Result<(), Failure> {
    let factory = SharedInformerFactory::builder(client).build();
    let queue = RateLimitingQueue::new("config", limiter::default_controller(), client.env());
    let config = factory.informer::<ConfigMap>();
    config.add_handler(enqueue(queue.clone()))?;
    factory.start(stop);
    factory.wait_for_sync(stop).await?;
    let lister = config.lister();
    run_workers(2, &queue, stop.clone(), client.env(), move |item: WorkItem<ObjectName>| {
        let lister = lister.clone();
        async move {
            match report(&lister, item.key()) {
                Ok(()) => item.forget(),
                Err(error) => item.retry(error),
            }
        }
    })
    .await;
    Ok(factory.join().await?)
}

fn report(lister: &Lister<ConfigMap>, key: &ObjectName) -> Result<(), Failure> {
    let found = match lister.get(key) {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    let keys = found.data.as_ref().map_or(0, |data| data.len());
    watchkeeper::tracing::info!(%key, keys, "ConfigMap");
    Ok(())
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::ApiServer;
    use watchkeeper_sim::Scenario;

    use super::*;

    #[tokio::test]
    async fn the_controller_stops_on_an_embedded_server() {
        let env = Env::system();
        let client = Client::from_kube(ApiServer::builder(&env).build().client(), &env);
        let stop = CancellationToken::new();
        stop.cancel();
        let _not_synced = run(&client, &stop).await;
    }

    #[test]
    fn the_controller_runs_in_a_simulation() {
        Scenario::new(7).run(
            async |client, stop| drop(run(&client, &stop).await),
            async |cluster| assert!(cluster.converged(async || true).await),
        );
    }
}
