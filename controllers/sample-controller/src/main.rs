//! The sample-controller as a program of its own, against the cluster of a kubeconfig or the one it runs in.

use std::process::ExitCode;

use clap::Parser;
use watchkeeper::Env;
use watchkeeper::process::{ClientArgs, LogArgs, signals};
use watchkeeper::report::What;

/// Keeps a Deployment for each Foo
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    options: sample_controller::Options,
    #[command(flatten)]
    log: LogArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = args.log.install("info") {
        // Before there is a log: as clap tells of any other flag.
        clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n")).exit();
    }
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("error running the controller: {}", What::Error(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    let clients = args.client.connect(&env).await?;
    Ok(sample_controller::run(&clients, &args.options, &stop).await?)
}
