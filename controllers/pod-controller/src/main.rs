//! The pod-controller as a program, against the cluster of a kubeconfig or the one it runs in.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use pod_controller::Output;
use tracing_subscriber::EnvFilter;
use watchkeeper::Env;
use watchkeeper::process::{ClientArgs, signals};

/// Says what happens to the Pods of a namespace
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    options: pod_controller::Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &*error, "error running the controller");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    let clients = args.client.connect(&env).await?;
    Ok(pod_controller::run(&clients, &args.options, Output::stdout(), &stop).await?)
}
