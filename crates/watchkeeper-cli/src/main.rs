//! What does the `watchkeeper` command do? It reads the command line and hands over.
#![forbid(unsafe_code)]

mod args;
mod demo;
mod front;
mod plane;
mod print;
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
    // Some tell their story themselves, and in a demonstration trouble is part of it; the others have only their log.
    let level = match args.command {
        Some(Command::SampleController(_)) => "info",
        Some(Command::Demo(_)) => "error",
        _ => "warn",
    };
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
    match args.command {
        Some(Command::Crd(crd)) => return Ok(print::crd(&crd)?),
        Some(Command::Completions { shell }) => return Ok(print::completions(shell)?),
        _ => {}
    }
    let env = Env::system();
    let stop = signals::install(&env)?;
    match args.command {
        None => up::run(&args.up, &env, &stop).await?,
        Some(Command::Up(up)) => up::run(&up, &env, &stop).await?,
        Some(Command::Serve(serve)) => plane::serve(&serve, &env, &stop).await?,
        Some(Command::Demo(demo)) => demo::run(&demo, &env, &stop).await?,
        Some(Command::Crd(_) | Command::Completions { .. }) => {}
        Some(Command::SampleController(controller)) => {
            let clients = controller.client.connect(&env).await?;
            sample_controller::run(&clients, &controller.options, &stop).await?;
        }
    }
    Ok(())
}
