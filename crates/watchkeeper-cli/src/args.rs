//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use watchkeeper::Client;
use watchkeeper::process::{AdminArgs, ClientArgs, LogArgs};
use watchkeeper_apiserver::{Admission, Authorization};

use crate::controllers::{Running, Selected};
use crate::faults::FaultArgs;

/// Shown by the help of every command that starts a control plane.
const PURPOSE: &str = "The control plane is for development and tests, not for production: nothing is replicated, and the token of \
    its kubeconfig grants everything.";

/// An embedded Kubernetes control plane, with a sample controller
///
/// Without a command, starts a control plane, installs the Foo CRD, runs the sample controller (which keeps a Deployment for each Foo), creates an
/// example Foo, and shows what happens and what to try next. It needs nothing installed and leaves nothing behind. With --kubeconfig it uses your
/// cluster instead: the CRD and the example stay there, and it prints how to remove them.
///
/// With --crds or --watch it shows your own kinds instead: start your operator in another terminal, with the KUBECONFIG that it prints.
#[derive(Debug, Parser)]
#[command(name = "watchkeeper", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) up: Logged<UpArgs>,
}

const EXAMPLES: &str = "\
The control plane is for development and tests, not for production.

Examples:
  watchkeeper                                      control plane, controller and live view
  watchkeeper demo                                 a scripted scenario, step by step
  watchkeeper serve --listen 127.0.0.1:6443        only the control plane
  watchkeeper serve --faults 7                     the same, with a network that loses, breaks and delays
  watchkeeper up --crds deploy/                    your CRDs, with a live view of their objects
  watchkeeper up --watch deployments,pods          a live view of any kinds
  watchkeeper explain foo example-foo              why an object is or is not reconciled
  watchkeeper status                               controllers, keys, informers and leader
  watchkeeper new website-operator                 a project with an operator and its tests
  watchkeeper --kubeconfig ~/.kube/config          on your own cluster
  watchkeeper crd --example | kubectl apply -f -   install the CRD and an example
  watchkeeper sample-controller --kubeconfig FILE  the controller, with log and metrics";

/// The arguments of a command that logs.
#[derive(Debug, clap::Args)]
pub(crate) struct Logged<T: clap::Args> {
    #[command(flatten)]
    pub(crate) args: T,
    #[command(flatten, next_help_heading = "Log")]
    pub(crate) log: LogArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the control plane, the sample controller and an example Foo, and show what happens (default)
    #[command(after_help = PURPOSE)]
    Up(Logged<UpArgs>),
    /// Start only the control plane
    ///
    /// It answers like a Kubernetes API server, so kubectl and any client library can use it. Workloads get Pods, which pretend to run on a fake node.
    #[command(after_help = PURPOSE)]
    Serve(Logged<ServeArgs>),
    /// Run a scripted scenario and check each step
    ///
    /// Creates and scales a Foo, edits and deletes its Deployment, provokes a name conflict, and deletes the Foo. Exits with 0 if the controller
    /// responded correctly to every step. Opens no socket and writes no file.
    Demo(Logged<DemoArgs>),
    /// Run only the sample controller, on an existing cluster
    ///
    /// Finds the cluster in this order: --kubeconfig, the files in KUBECONFIG, the service account of the pod it runs in, ~/.kube/config. The cluster
    /// must have the Foo CRD: `watchkeeper crd | kubectl apply -f -`.
    SampleController(Logged<ControllerArgs>),
    /// Say why a running program does or does not reconcile an object
    ///
    /// Asks the admin server of the program: that of --address, else that of a `watchkeeper` that runs in this folder or that KUBECONFIG leads to,
    /// else 127.0.0.1:8080. If none answers, names the pods of your cluster that could be asked, and how.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Show the controllers, keys, informers and leader of a running program
    ///
    /// Finds the program as `watchkeeper explain` does.
    Status(StatusArgs),
    /// Create a project with an operator that compiles, passes its tests and runs
    ///
    /// The project has a CRD with its Rust type, a controller, tests on an embedded API server, manifests for a cluster and a Containerfile. The
    /// tests also check that the CRD and the role in its manifests match the code.
    New(NewArgs),
    /// Print the Foo CRD, for `kubectl apply -f -`
    Crd(CrdArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: Shell,
    },
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  watchkeeper explain foo example-foo              the sample controller of a `watchkeeper` in this folder
  watchkeeper explain website prod/shop --address 127.0.0.1:8080
  watchkeeper explain deployments.apps web -o json";

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Kind of the object: Kind or plural, with its group if several have it, such as deployments.apps
    pub(crate) kind: String,
    /// Name of the object, with its namespace; without one, the namespace is default
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Which program is asked, and how the answer is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// Address of the admin server, such as 127.0.0.1:8080; with https:// if it is protected, which uses the token of your kubeconfig
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) address: Option<String>,
    /// Form of the answer
    #[arg(long, short, value_name = "text|json", value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) client: ClientArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people: aligned, and in colours on a terminal
    #[default]
    Text,
    /// For programs: as the admin server answers
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) options: sample_controller::Options,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// Name of the project and of its folder: lower-case letters, digits and hyphens
    pub(crate) name: String,
    /// Kind of the objects that it looks after [default: derived from NAME: Website for website-operator]
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// API group of the kind: a domain name
    #[arg(long, default_value = "example.dev")]
    pub(crate) group: String,
    /// Use the crates of this checkout of watchkeeper instead of the published ones
    #[arg(long, value_name = "WORKSPACE", hide = true)]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CrdArgs {
    /// Omit the status subresource, for controllers that write the status with an ordinary update; the sample controller needs the subresource
    #[arg(long)]
    pub(crate) without_status: bool,
    /// Also print an example Foo
    #[arg(long)]
    pub(crate) example: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Show these kinds instead of Foos: a plural, singular, short name or Kind as for kubectl, with its group if several have it, such as
    /// websites.example.dev. With --crds alone, the kinds that it defines are shown
    #[arg(long, value_name = "KIND", num_args = 1.., value_delimiter = ',')]
    pub(crate) watch: Vec<String>,
    #[command(flatten, next_help_heading = "Control plane")]
    pub(crate) serve: ServeArgs,
    #[command(flatten, next_help_heading = "Controller")]
    pub(crate) options: sample_controller::Options,
    /// Do not create the example Foo
    #[arg(long)]
    pub(crate) no_example: bool,
    /// With --crds or --watch: install the Foo CRD, run the sample controller and create the example Foo all the same
    #[arg(long)]
    pub(crate) sample: bool,
    #[command(flatten, next_help_heading = "Cluster to use instead of the embedded control plane")]
    pub(crate) client: ClientArgs,
}

impl UpArgs {
    /// Whether the user has an operator, so that Foos are of no interest.
    pub(crate) fn has_own_kinds(&self) -> bool {
        !self.watch.is_empty() || !self.serve.crds.is_empty()
    }
}

#[derive(Debug, Default, PartialEq, clap::Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 selects a free port. Addresses other than loopback require TLS and the token [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Where to write the kubeconfig for kubectl and other clients; removed on exit, unless --data-dir is set [default: watchkeeper.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
    /// Serve plain HTTP without a token, on a loopback address only
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// Persist all state in this directory, across restarts and crashes; without it, all state is in memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Install the objects of this file or folder (*.yaml, *.yml, *.json) before the server is ready: CustomResourceDefinitions first, then the
    /// others; objects that exist already are updated. May be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) crds: Vec<PathBuf>,
    /// Built-in controllers to run: `*` for all, NAME for one, -NAME to leave one out; there are clusterrole-aggregation,
    /// garbage-collector and namespace, and unless --nodes is 0 cronjob, daemonset, deployment, disruption, endpoints, endpointslice,
    /// endpointslicemirroring, job, kubelet, node-lifecycle, persistentvolume-protection, persistentvolumeclaim-protection,
    /// pod-garbage-collector, replicaset, replicationcontroller, resourcequota, root-ca-certificate-publisher, scheduler, serviceaccount and
    /// statefulset
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Selected,
    /// Number of fake nodes, on which Pods pretend to run; with 0 nothing makes Pods [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) nodes: Option<usize>,
    /// How requests are authorized. The kubeconfig that is written may do everything in any case; others are a matter of impersonation (kubectl
    /// --as) and of service account tokens (kubectl create token)
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub(crate) authorization: Mode,
    /// Admission plugins: `*` for all, NAME for one, -NAME to leave one out; there are LimitRanger, ServiceAccount,
    /// Priority, StorageObjectInUseProtection, RuntimeClass, DefaultIngressClass, MutatingAdmissionPolicy,
    /// MutatingAdmissionWebhook, ValidatingAdmissionPolicy, ValidatingAdmissionWebhook and ResourceQuota [default: *]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) admission: Option<Admission>,
    /// Only the API server: no built-in controllers and no nodes
    #[arg(long, conflicts_with_all = ["controllers", "nodes"])]
    pub(crate) bare: bool,
    /// Serve this certificate (PEM, with its chain) instead of a generated one
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "insecure_http")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) faults: FaultArgs,
}

impl ServeArgs {
    /// Starts the built-in controllers and the fake nodes that were asked for.
    pub(crate) fn start_controllers(&self, clients: &Client, authority: &str) -> Running {
        match self.bare {
            true => Selected::none().start(0, clients, authority),
            false => self.controllers.start(self.nodes(), clients, authority),
        }
    }

    /// The admission plugins, without those that need a controller which does not run: claims and volumes would not be let go,
    /// and Pods would have no service account.
    pub(crate) fn admission(&self) -> Admission {
        let protectors = ["persistentvolume-protection", "persistentvolumeclaim-protection"];
        let runs = |name: &str| self.nodes() > 0 && self.controllers.runs(name);
        let mut admission = self.admission.clone().unwrap_or_else(Admission::all);
        if !protectors.iter().all(|name| runs(name)) {
            admission = admission.without("StorageObjectInUseProtection");
        }
        if !runs("serviceaccount") {
            admission = admission.without("ServiceAccount");
        }
        admission
    }

    fn nodes(&self) -> usize {
        if self.bare { 0 } else { self.nodes.unwrap_or(1) }
    }
}

/// How requests are authorized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// By roles and role bindings, with the default ones of a real cluster
    #[default]
    Rbac,
    /// Every user may do everything, and there are no default roles
    AlwaysAllow,
}

impl From<Mode> for Authorization {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Rbac => Self::Rbac,
            Mode::AlwaysAllow => Self::AlwaysAllow,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8443")
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) client: ClientArgs,
    #[command(flatten, next_help_heading = "Controller")]
    pub(crate) options: sample_controller::Options,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn kinds_to_watch_are_given_in_any_manner() {
        for arguments in [&["--watch", "a", "b"][..], &["--watch", "a,b"], &["--watch", "a", "--watch", "b"]]
        {
            let args = Args::try_parse_from(["watchkeeper", "up"].iter().chain(arguments)).unwrap();
            let Some(Command::Up(up)) = args.command else { panic!("{args:?}") };
            assert_eq!(up.args.watch, ["a", "b"]);
            assert!(up.args.has_own_kinds());
        }
    }

    #[test]
    fn faults_need_a_seed_and_settings_that_make_sense() {
        let parse = |arguments: &[&str]| {
            Args::try_parse_from(["watchkeeper", "serve"].iter().chain(arguments))
                .map_err(|it| it.to_string())
        };
        let faults =
            ["--faults", "7", "--fault-rate", "0.2", "--fault-kinds", "cut,stall", "--fault-delay", "0.5"];
        let Some(Command::Serve(serve)) = parse(&faults).unwrap().command else { panic!("not serve") };
        let summary = serve.args.faults.summary().unwrap();
        assert_eq!(summary, "of seed 7 at 20 % of requests and events: cut, stall");
        for (arguments, words) in [
            (&["--fault-rate", "0.5"][..], "--faults <SEED>"),
            (&["--faults", "x"], "--faults <SEED>"),
            (&["--faults", "1", "--fault-rate", "1.5"], "a number from 0 to 1"),
            (&["--faults", "1", "--fault-rate", "-1"], "a number from 0 to 1"),
            (&["--faults", "1", "--fault-rate", "NaN"], "a number from 0 to 1"),
            (&["--faults", "1", "--fault-kinds", "cut,cuts"], "there are lose-request, lose-answer, "),
            (&["--faults", "1", "--fault-kinds", "kill"], "between a server and its clients"),
            (&["--faults", "1", "--fault-delay", "0"], "a number of seconds above 0"),
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn flags_of_up_need_no_command() {
        let args = Args::try_parse_from(["watchkeeper", "--queue", "delta", "--no-example"]).unwrap();
        assert!(args.command.is_none() && args.up.args.no_example);
        assert!(Args::try_parse_from(["watchkeeper", "--queue", "other"]).is_err());
        assert!(Args::try_parse_from(["watchkeeper", "--listen", "nowhere"]).is_err());
    }
}
