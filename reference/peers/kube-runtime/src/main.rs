//! A client of our server that is written on kube-rs' runtime: each story prints a line for every step that worked.

mod mirror;
mod mirrors;
mod operator;
mod waits;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kube-runtime-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flag, kubeconfig, story] = &arguments[..] else { return Err(usage()) };
    if flag != "-kubeconfig" {
        return Err(usage());
    }
    let kubeconfig = Kubeconfig::read_from(Path::new(kubeconfig))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    match story.as_str() {
        "operator" => operator::run(client).await,
        "mirrors" => mirrors::run(client).await,
        "waits" => waits::run(client).await,
        _ => Err(usage()),
    }
}

fn usage() -> Box<dyn Error + Send + Sync> {
    "usage: kube-runtime-peer -kubeconfig FILE operator|mirrors|waits".into()
}
