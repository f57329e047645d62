//! `watchkeeper up`: a control plane, the controller, an example, and a view of what happens.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Config;
use sample_controller::api::{self, Foo};
use sample_controller::{Program, RunError};
use tokio_util::sync::CancellationToken;
use watchkeeper::process::{ClientArgs, ConnectError, Pages};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Clients, Env};

use crate::args::{ServeArgs, UpArgs};
use crate::front::{self, DIM};
use crate::next::Next;
use crate::plane::{Plane, PlaneError};
use crate::screen::Screen;
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
    #[error(
        "--listen, --kubeconfig-out, --data-dir, --tls-cert and --insecure-http are for the control plane in the box, but a cluster was named: leave out the one or the other"
    )]
    Unused,
}

/// Runs until `stop`, and ends in order: the controller, the view, the control plane.
pub(crate) async fn run(
    args: &UpArgs,
    screen: &Screen,
    env: &Env,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    if is_meant(&args.client) {
        if args.serve != ServeArgs::default() {
            return Err(UpError::Unused);
        }
        let clients = args.client.connect(env).await?;
        let kubectl = front::kubectl(args.client.kubeconfig.as_deref(), args.client.context.as_deref());
        return story(args, &clients, screen, Next::new(kubectl, !args.no_example), stop).await;
    }
    let plane = Plane::start(&args.serve, env).await?;
    let clients = Clients::from_client(plane.server.client(), env);
    let next = Next::new(front::kubectl(Some(plane.kubeconfig()), None), !args.no_example);
    match screen.is_live() {
        // The picture shows one command after the other.
        true => screen.line(&format!("{DIM}Ctrl-C stops{DIM:#}\n")),
        false => front::hint(next.all()),
    }
    let result = story(args, &clients, screen, next, stop).await;
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
    screen: &Screen,
    next: Next,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    let requests = clients.requests().clone().manager("watchkeeper");
    create(requests.of::<CustomResourceDefinition>().create(&api::crd()).await, "the CRD of Foos")?;
    // Whichever fails first ends the others too.
    let stop = &stop.child_token();
    let program = Program::new(clients, &args.options, &mut Pages::default()).map_err(RunError::from)?;
    let view = View::start(clients, screen, program.queue(), next, stop);
    let example = async {
        let created = match args.no_example {
            true => Ok(()),
            false => create(create_example(clients, stop).await, "the example Foo"),
        };
        created.inspect_err(|_| stop.cancel())
    };
    let controller = async {
        let _stop = stop.clone().drop_guard();
        program.run(stop).await
    };
    let (example, controller, ()) = tokio::join!(example, controller, view.run(stop));
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
