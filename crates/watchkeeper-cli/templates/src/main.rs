use std::process::ExitCode;

use watchkeeper::clap::{self, Parser};
use watchkeeper::prelude::*;

/// Keeps a ConfigMap with the text of each {{Kind}}
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    manager: ManagerArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    Args::parse().manager.run("{{name}}", {{crate}}::register).await
}
