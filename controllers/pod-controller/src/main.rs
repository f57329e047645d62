//! The Pod controller as a program, on the cluster of a kubeconfig or the one it runs in.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use pod_controller::Output;
use watchkeeper::Env;
use watchkeeper::process::{ClientArgs, LogArgs, signals};
use watchkeeper::report::WithCauses;

/// Prints what happens to the Pods of a namespace
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    options: pod_controller::Options,
    #[command(flatten)]
    log: LogArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = args.log.install("info") {
        Args::command().error(ErrorKind::InvalidValue, error).exit();
    }
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %WithCauses(&*error), "error running the controller");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let client = args.client.connect(&env).await?.program(name, version);
    Ok(pod_controller::run(&client, &args.options, Output::stdout(), stop).await?)
}
