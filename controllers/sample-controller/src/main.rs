//! The sample controller as a program, on the cluster of a kubeconfig or the one it runs in.

use std::error::Error;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use sample_controller::Options;
use watchkeeper::Env;
use watchkeeper::process::{AdminArgs, ClientArgs, LogArgs, signals};
use watchkeeper::report::WithCauses;

/// Keeps a Deployment for each Foo
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    admin: AdminArgs,
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

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let client = args.client.connect(&env).await?.program(name, version);
    Ok(sample_controller::serve(&client, &args.options, &args.admin, stop).await?)
}
