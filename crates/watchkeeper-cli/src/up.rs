//! `watchkeeper up` without kinds of one's own: a control plane, the sample controller, an example, and a view of them.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Config;
use kube_client::config::Kubeconfig;
use sample_controller::api::{self, Foo};
use sample_controller::{Program, RunError};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::InformerPanicked;
use watchkeeper::process::{ClientArgs, ConnectError, Pages};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, Env};

use crate::admin::Admin;
use crate::args::{ServeArgs, UpArgs};
use crate::front::{self, DIM};
use crate::next::Next;
use crate::plane::{Plane, PlaneError};
use crate::screen::Screen;
use crate::view::View;

/// Why `up` failed.
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
    #[error(transparent)]
    View(#[from] InformerPanicked),
    #[error(
        "--crds has no CustomResourceDefinition to show: name kinds with --watch, such as --watch deployments"
    )]
    NothingToShow,
    #[error(
        "--listen, --kubeconfig-out, --data-dir, --crds, --controllers, --nodes, --bare, --authorization, --admission, --tls-cert, --insecure-http and --faults configure the embedded control plane, but an existing cluster was selected: use one or the other"
    )]
    Unused,
}

/// Runs until `stop`, then stops the controller, the view and the control plane, in this order.
pub(crate) async fn run(
    args: &UpArgs,
    screen: &Screen,
    env: &Env,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    if is_meant(&args.client) {
        return on_cluster(args, screen, env, stop).await;
    }
    let plane = Plane::start(&args.serve, &[], env).await?;
    let clients = Client::from_kube(plane.server.client(), env);
    let result = run_parts(args, &clients, screen, &plane.kubectl(), &mut Vec::new(), stop).await;
    plane.stop().await;
    result
}

/// Runs on an existing cluster, and prints what stays there.
async fn on_cluster(
    args: &UpArgs,
    screen: &Screen,
    env: &Env,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    let Cluster { clients, kubectl } = Cluster::connect(args, env).await?;
    front::creates(!args.no_example);
    let mut created = Vec::new();
    let result = run_parts(args, &clients, screen, &kubectl, &mut created, stop).await;
    front::left(&kubectl, &created);
    result
}

/// An existing cluster.
pub(crate) struct Cluster {
    pub(crate) clients: Client,
    /// The kubectl command with the flags that select it.
    pub(crate) kubectl: String,
}

impl Cluster {
    /// Prints which cluster it is.
    pub(crate) async fn connect(args: &UpArgs, env: &Env) -> Result<Self, UpError> {
        if args.serve != ServeArgs::default() {
            return Err(UpError::Unused);
        }
        let config = args.client.config().await?;
        let server = shown(&config);
        let client =
            ClientArgs { master: args.client.master.as_ref().map(|_| server.clone()), ..args.client.clone() };
        let kubectl = front::kubectl(&client, &config.default_namespace);
        front::on_cluster(&server, context(&client).as_deref());
        let clients = Client::from_config(config, env).map_err(ConnectError::from)?;
        Ok(Self { clients, kubectl })
    }
}

/// Returns the URL of the server without its userinfo, which may be a password.
fn shown(config: &Config) -> String {
    let url = &config.cluster_url;
    let host =
        url.authority().and_then(|authority| authority.as_str().rsplit('@').next()).unwrap_or_default();
    format!("{}://{host}{}", url.scheme_str().unwrap_or("https"), url.path().trim_end_matches('/'))
}

/// The name of the context in use.
fn context(client: &ClientArgs) -> Option<String> {
    let of_file = || Kubeconfig::read_from(client.kubeconfig.as_ref()?).ok()?.current_context;
    client.context.clone().or_else(of_file)
}

/// Whether the flags select an existing cluster, or the process runs in one.
pub(crate) fn is_meant(client: &ClientArgs) -> bool {
    let named = client.kubeconfig.is_some() || client.context.is_some() || client.master.is_some();
    named || ClientArgs::is_in_cluster()
}

/// Creates the CRD and the example, and runs the controller and the view; `created` receives what is new, as kubectl arguments.
async fn run_parts(
    args: &UpArgs,
    clients: &Client,
    screen: &Screen,
    kubectl: &str,
    created: &mut Vec<&'static str>,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    create_crd(clients, created).await?;
    let next = Next::new(kubectl.to_owned(), !args.no_example);
    match screen.is_live() {
        // The live view shows one command at a time.
        true => screen.line(&format!("{DIM}press Ctrl-C to stop{DIM:#}\n")),
        false => front::hint(next.all()),
    }
    // Whichever fails first stops the others.
    let stop = &stop.child_token();
    let mut pages = Pages::default();
    let program = Program::new(clients, &args.options, &mut pages)?;
    let admin = Admin::open(&args.serve, pages, clients.env()).await;
    let view = View::start(clients, screen, program.queue(), next, stop);
    let sample = run_sample(program, args, clients, view.has_begun(), created, stop);
    let (sample, view, ()) = tokio::join!(sample, view.run(stop), admin.run(stop));
    // A failed view stops the controller, possibly before it starts.
    view?;
    sample
}

/// Creates the Foo CRD if it is missing.
pub(crate) async fn create_crd(clients: &Client, created: &mut Vec<&'static str>) -> Result<(), UpError> {
    let requests = clients.requests().clone().manager("watchkeeper");
    let crd = requests.api::<CustomResourceDefinition>().create(&api::crd()).await;
    if create(crd, "the Foo CRD")? {
        created.push("crd foos.samplecontroller.k8s.io");
    }
    Ok(())
}

/// Creates the example Foo, and runs the sample controller after `begun`. Cancels `stop` when it ends.
pub(crate) async fn run_sample(
    program: Program,
    args: &UpArgs,
    clients: &Client,
    begun: impl Future<Output = ()>,
    created: &mut Vec<&'static str>,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    let example = async {
        let is_new = match args.no_example {
            true => Ok(false),
            false => create(create_example(clients, stop).await, "the example Foo"),
        };
        if is_new.inspect_err(|_| stop.cancel())? {
            created.push("foo example-foo");
        }
        Ok(())
    };
    let controller = async {
        let _stop = stop.clone().drop_guard();
        stop.run_until_cancelled(begun).await;
        program.run(stop.clone()).await
    };
    let (example, controller) = tokio::join!(example, controller);
    example.and(controller.map_err(UpError::from))
}

/// Creates the example Foo. Retries for a while, because a real API server does not serve a new CRD at once.
async fn create_example(clients: &Client, stop: &CancellationToken) -> Result<Foo, ApiError> {
    let (clock, foos) = (&clients.env().clock, clients.api::<Foo>());
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

/// Whether the object is new; one that exists already is fine.
fn create<T>(answer: Result<T, ApiError>, what: &'static str) -> Result<bool, UpError> {
    match answer {
        Ok(_) => Ok(true),
        Err(source) if source.class() == Class::AlreadyExists => Ok(false),
        Err(source) => Err(UpError::Create { what, source }),
    }
}
