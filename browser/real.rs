//! A program with a real work queue of many keys, to measure what the page costs.

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::explain::{Explain, Explained, ProgramPhase};
use watchkeeper::kube_client::{Client as KubeClient, Config};
use watchkeeper::workqueue::{Priority, Reason, Trigger, limiter};
use watchkeeper::{Client, Env, ObjectName, RateLimitingQueue, SharedInformerFactory};

/// Returns what a program explains whose queue has that many keys: some idle, most of them delayed, the others waiting.
pub(super) async fn program(keys: usize, env: &Env) -> Result<Explain, Box<dyn Error + Send + Sync>> {
    let kube = KubeClient::try_from(Config::new("http://127.0.0.1:1".parse()?))?;
    let factory = SharedInformerFactory::builder(&Client::from_kube(kube, env)).build();
    let queue = RateLimitingQueue::<ObjectName>::new("websites", limiter::default_controller(), env);
    for number in 0..keys {
        let key = ObjectName::namespaced("bakery", &format!("site-{number:06}"));
        match number % 10 {
            0 => {
                queue.add_because(key, Priority::Normal, Trigger::itself(Reason::Changed, &"7".into()));
                if let Some(item) = queue.get().await {
                    item.forget();
                }
            }
            1..8 => queue.add_after(key, Duration::from_secs(3_600)),
            _ => {}
        }
    }
    for number in (0..keys).filter(|number| number % 10 > 7) {
        queue.add(ObjectName::namespaced("bakery", &format!("site-{number:06}")));
    }
    let explain = Explain::new("website-operator", env);
    explain.informers(&factory);
    explain.add(Explained::new("websites", &queue, &factory.informer::<ConfigMap>()));
    explain.set_phase(ProgramPhase::Running);
    Ok(explain)
}
