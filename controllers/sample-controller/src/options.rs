//! How is the controller run as a program, or as a part of one?

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{InformerStopped, NotSynced, QueueKind};
use watchkeeper::{Clients, SharedInformerFactory, record};

use crate::COMPONENT;
use crate::controller::Controller;

/// Settings of the controller, for `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many Foos are synced at once
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub workers: usize,
    /// The queue between watch and cache: changes in their order, or gathered by object
    #[arg(long, default_value_t, value_name = "ordered|delta")]
    pub queue: QueueKind,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 2, queue: QueueKind::default() }
    }
}

/// Why the controller did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The caches of some kinds did not fill.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// A handler could not be added.
    #[error(transparent)]
    Stopped(#[from] InformerStopped),
}

const RESYNC: Duration = Duration::from_secs(30);

/// Runs the controller until `stop`, and returns when all its tasks have ended. Dropping the future ends them too.
pub async fn run(clients: &Clients, options: &Options, stop: &CancellationToken) -> Result<(), RunError> {
    tracing::info!("starting the Foo controller");
    let (recorder, sink) = record::recorder(COMPONENT, clients);
    let factory = SharedInformerFactory::builder(clients).resync(RESYNC).queue(options.queue).build();
    let controller = Controller::new(clients, &factory, recorder)?;
    factory.start(stop);
    // The sink stops after the workers: what they recorded last is written too.
    let worked = CancellationToken::new();
    let work = async {
        let _worked = worked.clone().drop_guard();
        tracing::info!("waiting for informer caches to sync");
        factory.wait_for_sync(stop).await?;
        controller.run(options.workers, stop).await;
        Ok(())
    };
    let (result, ()) = tokio::join!(work, sink.run(worked.clone()));
    factory.shut_down().await;
    result
}
