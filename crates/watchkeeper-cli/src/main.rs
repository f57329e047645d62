//! What does the `watchkeeper` command do? It reads the command line and hands over.
#![forbid(unsafe_code)]

mod args;
mod front;
mod plane;
mod up;
mod view;

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use watchkeeper::Env;
use watchkeeper::process::signals;

use crate::args::{Args, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // `up` tells its story itself; the others have only their log.
    let level = if matches!(args.command, Some(Command::SampleController(_))) { "info" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            front::fail(&*error);
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    match args.command {
        None => up::run(&args.up, &env, &stop).await?,
        Some(Command::Up(up)) => up::run(&up, &env, &stop).await?,
        Some(Command::Serve(serve)) => plane::serve(&serve, &env, &stop).await?,
        Some(Command::SampleController(controller)) => {
            let clients = controller.client.connect(&env).await?;
            sample_controller::run(&clients, &controller.options, &stop).await?;
        }
    }
    Ok(())
}
