//! The controller with its informers, event sink and metrics, started and stopped in order.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{InformerPanicked, InformerStopped, NotSynced};
use watchkeeper::process::metrics::{InformerCollector, QueueCollector, register_events, register_reports};
use watchkeeper::process::{AdminArgs, AdminError, Pages};
use watchkeeper::record::EventSink;
use watchkeeper::{Client, ObjectName, RateLimitingQueue, SharedInformerFactory, record};

use crate::COMPONENT;
use crate::controller::Controller;
use crate::options::Options;

/// Why the controller did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Some caches did not sync.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// An informer panicked.
    #[error(transparent)]
    Panicked(#[from] InformerPanicked),
    /// A handler could not be added.
    #[error(transparent)]
    Stopped(#[from] InformerStopped),
    /// The admin pages could not be served.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

const RESYNC: Duration = Duration::from_secs(30);

/// The controller with its dependencies, ready to run.
#[derive(Debug)]
pub struct Program {
    factory: SharedInformerFactory,
    controller: Arc<Controller>,
    sink: EventSink,
    workers: usize,
}

impl Program {
    /// Assembles the program; registers its metrics and readiness checks with `pages`.
    pub fn new(client: &Client, options: &Options, pages: &mut Pages) -> Result<Self, InformerStopped> {
        let (recorder, sink) = record::recorder(COMPONENT, client);
        register_reports(&mut pages.metrics, &client.env().reporter);
        register_events(&mut pages.metrics, &recorder);
        let informers = InformerCollector::register(&mut pages.metrics);
        let factory = SharedInformerFactory::builder(client)
            .resync(RESYNC)
            .queue(options.queue)
            .name(COMPONENT)
            .metrics(Arc::new(informers))
            .build();
        let controller = Controller::new(client, &factory, recorder)?;
        QueueCollector::register(&mut pages.metrics).add(controller.queue());
        pages.ready.caches(&factory);
        Ok(Self { factory, controller, sink, workers: options.workers.get() })
    }

    /// The queue of Foos to reconcile.
    pub fn queue(&self) -> &RateLimitingQueue<ObjectName> {
        self.controller.queue()
    }

    /// Runs until `stop`, or until a part panics, which the error names. Returns when all tasks have ended; dropping the future ends them
    /// too.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let Self { factory, controller, sink, workers } = self;
        tracing::info!("starting the Foo controller");
        // Whichever part ends first stops the others.
        let stop = &stop.child_token();
        factory.start(stop);
        // The sink stops after the workers, so that their last events are written.
        let worked = CancellationToken::new();
        let work = async {
            let (_worked, _stop) = (worked.clone().drop_guard(), stop.clone().drop_guard());
            tracing::info!("waiting for informer caches to sync");
            factory.wait_for_sync(stop).await?;
            controller.run(workers, stop.clone()).await;
            Ok(())
        };
        let (result, ()) = tokio::join!(work, sink.run(worked.clone()));
        // If an informer panicked, that is the root cause.
        factory.join().await?;
        result
    }
}

/// Runs the controller until `stop`, without metrics; see [`Program::run`].
pub async fn run(client: &Client, options: &Options, stop: CancellationToken) -> Result<(), RunError> {
    Program::new(client, options, &mut Pages::default())?.run(stop).await
}

/// Runs the controller until `stop`, and serves its metrics and health checks.
pub async fn serve(
    client: &Client,
    options: &Options,
    admin: &AdminArgs,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let mut pages = Pages::default();
    let program = Program::new(client, options, &mut pages)?;
    let admin = admin.bind(pages, client.env()).await?;
    // Whichever ends first stops the other.
    let stop = stop.child_token();
    let controller = async {
        let _stop = stop.clone().drop_guard();
        program.run(stop.clone()).await
    };
    let (controller, ()) = tokio::join!(controller, admin.run(stop.clone()));
    controller
}
