//! The IO of a reflector: sends the requests of its plan, one after the other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::health::{Phase, SharedHealth};
use super::options::Options;
use super::plan::{Ask, Plan};
use super::verify::Verifier;
use crate::env::Env;
use crate::object::{Kind, Maker};
use crate::queue::DeltaQueue;
use crate::source::ListerWatcher;
use crate::wire::{ApiError, Class};

/// Mirrors one kind from a source into a queue.
pub(crate) struct Reflector<K: Kind, S> {
    pub(super) source: Arc<S>,
    pub(super) queue: Arc<DeltaQueue<K>>,
    pub(super) maker: Maker<K>,
    pub(super) plan: Plan,
    pub(super) env: Env,
    pub(super) name: String,
    pub(super) health: Arc<SharedHealth>,
    pub(super) options: Options,
    pub(super) verifier: Verifier,
    /// The number of the current or the last list among the questions to the server.
    pub(super) question: u64,
}

/// The maximum wait for the first byte of an answer, and for each further chunk of a list.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl<K: Kind, S: ListerWatcher> Reflector<K, S> {
    /// Returns a reflector called `name` in reports. `maker` makes objects of bytes, and `health` is kept up to date.
    pub(crate) fn new(
        name: String,
        source: S,
        queue: Arc<DeltaQueue<K>>,
        maker: Maker<K>,
        env: &Env,
        health: Arc<SharedHealth>,
        options: Options,
    ) -> Self {
        let env = env.fork(&format!("reflector {name}"));
        let plan = Plan::new(&options, source.streams_lists(), env.generator.clone());
        let source = Arc::new(source);
        let verifier = Verifier::new(options.verify_every, options.verify_requests.clone(), &env.generator);
        Self { source, queue, maker, plan, env, name, health, options, verifier, question: 0 }
    }

    /// Lists and watches until `stop`. Dropping the future stops it as well.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            loop {
                let ask = self.plan.ask();
                if ask.brings_whole_state() {
                    // While the consumer is stuck, another whole state would only be queued behind the last one.
                    self.queue.room().await;
                    self.verifier.list_begins();
                    self.question = self.queue.asking();
                }
                let wait = match ask {
                    Ask::List(options) => self.list(options).await,
                    Ask::Watch(options) => self.watch(options).await,
                    Ask::Discovery => self.look().await,
                };
                self.wait(wait).await;
            }
        })
        .await;
        self.health.lock().phase = Phase::Stopped;
    }

    pub(super) async fn wait(&self, wait: Duration) {
        if !wait.is_zero() {
            {
                let mut health = self.health.lock();
                health.phase = if health.phase == Phase::Parked { Phase::Parked } else { Phase::Waiting };
            }
            self.env.clock.sleep(wait).await;
        }
    }
}

pub(super) fn silent() -> ApiError {
    ApiError::new(Class::Timeout, "the API server is silent")
}

impl<K: Kind, S> fmt::Debug for Reflector<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("name", &self.name).field("health", &*self.health.lock()).finish()
    }
}
