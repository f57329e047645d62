//! `watchkeeper up`: a control plane, the controller, an example, and a view of what happens.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Config;
use sample_controller::RunError;
use sample_controller::api::{self, Foo};
use tokio_util::sync::CancellationToken;
use watchkeeper::process::{ClientArgs, ConnectError};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Clients, Env};

use crate::args::UpArgs;
use crate::front;
use crate::plane::{Plane, PlaneError};
use crate::view::View;

/// Why it did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    #[error(transparent)]
    Plane(#[from] PlaneError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot create {what}")]
    Create {
        what: &'static str,
        #[source]
        source: ApiError,
    },
    #[error(transparent)]
    Controller(#[from] RunError),
}

/// Runs until `stop`, and ends in order: the controller, the view, the control plane.
pub(crate) async fn run(args: &UpArgs, env: &Env, stop: &CancellationToken) -> Result<(), UpError> {
    if is_meant(&args.client) {
        let clients = args.client.connect(env).await?;
        return story(args, &clients, None, stop).await;
    }
    let plane = Plane::start(&args.serve, env).await?;
    let clients = Clients::from_client(plane.server.client(), env);
    let result = story(args, &clients, Some(plane.kubeconfig()), stop).await;
    plane.stop().await;
    result
}

/// Whether a cluster was named, or is around this process.
fn is_meant(client: &ClientArgs) -> bool {
    let named = client.kubeconfig.is_some() || client.context.is_some() || client.master.is_some();
    named || Config::incluster().is_ok()
}

async fn story(
    args: &UpArgs,
    clients: &Clients,
    kubeconfig: Option<&Path>,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    let requests = clients.requests().clone().manager("watchkeeper");
    create(requests.of::<CustomResourceDefinition>().create(&api::crd()).await, "the CRD of Foos")?;
    if let Some(kubeconfig) = kubeconfig {
        let scale = r#"patch foo example-foo --type merge -p '{"spec":{"replicas":3}}'"#;
        let delete = "delete deployment example-foo";
        front::hint(&["get foos,deployments,events -A", scale, delete], kubeconfig);
    }
    // Whichever fails first ends the others too.
    let stop = &stop.child_token();
    let view = View::start(clients, stop);
    let example = async {
        let created = match args.no_example {
            true => Ok(()),
            false => create(create_example(clients, stop).await, "the example Foo"),
        };
        created.inspect_err(|_| stop.cancel())
    };
    let controller = async {
        let _stop = stop.clone().drop_guard();
        sample_controller::run(clients, &args.options, stop).await
    };
    let (example, controller) = tokio::join!(example, controller);
    view.end().await;
    example.and(controller.map_err(UpError::from))
}

/// The example Foo; a real API server serves a new kind only after a while.
async fn create_example(clients: &Clients, stop: &CancellationToken) -> Result<Foo, ApiError> {
    let (clock, foos) = (&clients.env().clock, clients.requests().of::<Foo>());
    let deadline = clock.now() + Duration::from_secs(30);
    loop {
        match foos.create(&sample_controller::example()).await {
            Err(error) if error.is_not_found() && clock.now() < deadline && !stop.is_cancelled() => {
                clock.sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}

/// What is there already needs no creation.
fn create<T>(answer: Result<T, ApiError>, what: &'static str) -> Result<(), UpError> {
    match answer {
        Err(source) if source.class() != Class::AlreadyExists => Err(UpError::Create { what, source }),
        _ => Ok(()),
    }
}
