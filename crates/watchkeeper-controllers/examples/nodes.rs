//! A fake node, a scheduler and a kubelet for a cluster that has other controllers already, such as that of `reference/up DIR --controllers`.
//!
//! `KUBECONFIG=... cargo run -p watchkeeper-controllers --example nodes`, until it is interrupted.
#![forbid(unsafe_code)]

use std::error::Error;

use watchkeeper::Env;
use watchkeeper::process::{ClientArgs, signals};
use watchkeeper_controllers::cluster::{self, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let env = Env::system();
    let stop = signals::install(&env)?;
    let client = ClientArgs::default().connect(&env).await?;
    let mut options = Options::none();
    options.nodes = 1;
    for controller in ["kubelet", "scheduler"] {
        assert!(options.select(controller, true), "there is no controller {controller}");
    }
    cluster::run(&client, &options, stop).await;
    Ok(())
}
