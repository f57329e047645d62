//! What can be said on the command line?

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use watchkeeper::process::{AdminArgs, ClientArgs, LogArgs};

/// Said by every help that offers a control plane.
const PURPOSE: &str = "The control plane is for development and tests, not for production: whoever has the token may do everything, \
    and nothing is replicated.";

/// A Kubernetes control plane in the box, with the sample controller on it
///
/// Without a command it starts a control plane, teaches it the kind Foo, runs the controller that keeps a Deployment for each Foo, creates an example,
/// and shows what happens and what to type next. Nothing needs to be installed, and nothing is left behind. On a cluster of yours (--kubeconfig) the kind
/// and the example stay, and it says how to remove them.
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
  watchkeeper                                      a controller at work
  watchkeeper demo                                 its story, step by step
  watchkeeper serve --listen 127.0.0.1:6443        the control plane alone
  watchkeeper --kubeconfig ~/.kube/config          on your own cluster
  watchkeeper crd --example | kubectl apply -f -   the kind, and an example
  watchkeeper sample-controller --kubeconfig FILE  with log and metrics";

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
    /// Start the control plane, the sample controller and an example Foo, and show what happens (the default)
    #[command(after_help = PURPOSE)]
    Up(Logged<UpArgs>),
    /// Start the control plane alone
    ///
    /// It answers as a Kubernetes API server does: kubectl and every client library can use it. There are no nodes, and nothing runs in its Pods.
    #[command(after_help = PURPOSE)]
    Serve(Logged<ServeArgs>),
    /// Play the story of a Foo step by step, and say which step was not seen, if any
    ///
    /// A Foo is created, scaled, its Deployment edited and deleted by hand, its name stolen, and at last it is deleted. Exits with 0 if the controller
    /// answered to each step as it should. Listens nowhere and writes no file.
    Demo(Logged<DemoArgs>),
    /// Run the sample controller alone, on the cluster of a kubeconfig or the one around it
    ///
    /// Looks for its cluster in this order: --kubeconfig, the files in KUBECONFIG, the service account of the pod it runs in, ~/.kube/config. The kind Foo
    /// must be there: `watchkeeper crd | kubectl apply -f -`.
    SampleController(Logged<ControllerArgs>),
    /// Print the CustomResourceDefinition of Foos, for `kubectl apply -f -`
    Crd(CrdArgs),
    /// Print the completions of this command for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) options: sample_controller::Options,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CrdArgs {
    /// The variant without the status subresource, for controllers that write the status with an ordinary update; the sample controller needs the
    /// subresource
    #[arg(long)]
    pub(crate) without_status: bool,
    /// Print an example Foo behind it
    #[arg(long)]
    pub(crate) example: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    #[command(flatten, next_help_heading = "Control plane")]
    pub(crate) serve: ServeArgs,
    #[command(flatten, next_help_heading = "Controller")]
    pub(crate) options: sample_controller::Options,
    /// Do not create the example Foo
    #[arg(long)]
    pub(crate) no_example: bool,
    #[command(flatten, next_help_heading = "A cluster to work on, instead of the control plane in the box")]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Default, PartialEq, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where the control plane listens; port 0 takes a free one. Beyond loopback only with TLS and the token [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Where the kubeconfig for kubectl and other clients is written; removed at the end, unless there is a --data-dir [default: watchkeeper.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
    /// Serve plain HTTP without a token, on a loopback address only
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// Keep everything in this folder, across restarts and crashes; without it, everything is in memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Show a certificate of your own, with its chain in PEM form, instead of one that is made on the spot
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "insecure_http")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
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
    fn flags_of_up_need_no_command() {
        let args = Args::try_parse_from(["watchkeeper", "--queue", "delta", "--no-example"]).unwrap();
        assert!(args.command.is_none() && args.up.args.no_example);
        assert!(Args::try_parse_from(["watchkeeper", "--queue", "other"]).is_err());
        assert!(Args::try_parse_from(["watchkeeper", "--listen", "nowhere"]).is_err());
    }
}
