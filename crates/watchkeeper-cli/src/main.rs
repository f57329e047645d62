//! The `watchkeeper` command: parses the command line and runs the subcommand.
#![forbid(unsafe_code)]

mod admin;
mod advice;
mod args;
mod ask;
mod columns;
mod controllers;
mod demo;
mod discovery;
mod explain;
mod faults;
mod front;
#[cfg(target_os = "linux")]
mod hangup;
mod holder;
mod install;
mod manifests;
mod new;
mod next;
mod own;
mod pen;
mod picture;
mod plane;
mod print;
mod screen;
mod up;
mod view;
mod watch;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::process::{LogArgs, signals};

use crate::args::{Args, Command, ControllerArgs};
use crate::screen::Screen;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            front::fail(&*error);
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    // The live view and the demo show failures themselves, so they log less.
    match args.command.unwrap_or(Command::Up(args.up)) {
        Command::Up(up) => {
            let screen = Screen::stdout();
            let is_quiet = screen.is_live() && up.args.serve.faults.faults.is_none();
            let (writer, level) = (screen.clone(), if is_quiet { "error" } else { "warn" });
            up.log.install_to(level, move || writer.log())?;
            let (env, stop) = environment()?;
            match up.args.has_own_kinds() {
                true => own::run(&up.args, &screen, &env, &stop).await?,
                false => up::run(&up.args, &screen, &env, &stop).await?,
            }
        }
        Command::Serve(serve) => {
            let (env, stop) = begin(&serve.log, "warn")?;
            plane::serve(&serve.args, &env, &stop).await?;
        }
        Command::Demo(demo) => {
            let (env, stop) = begin(&demo.log, "error")?;
            demo::run(&demo.args, &env, &stop).await?;
        }
        Command::SampleController(controller) => {
            let (env, stop) = begin(&controller.log, "info")?;
            let ControllerArgs { client, options, admin } = &controller.args;
            let client = client.connect(&env).await?.program("sample-controller", env!("CARGO_PKG_VERSION"));
            sample_controller::serve(&client, options, admin, stop).await?;
        }
        Command::Explain(args) => explain::explain(&args, &Env::system()).await?,
        Command::Status(args) => explain::status(&args, &Env::system()).await?,
        Command::New(new) => new::run(&new)?,
        Command::Crd(crd) => print::crd(&crd)?,
        Command::Completions { shell } => print::completions(shell)?,
    }
    Ok(())
}

/// Sets up the log; returns the environment, and the token that signals cancel.
fn begin(log: &LogArgs, level: &str) -> Result<(Env, CancellationToken), Box<dyn Error>> {
    log.install(level)?;
    environment()
}

fn environment() -> Result<(Env, CancellationToken), Box<dyn Error>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    #[cfg(target_os = "linux")]
    hangup::stops(&stop)?;
    Ok((env, stop))
}
