//! Serves the page of an invented program with the given number of keys, for people who work on the page. The charts show ten minutes,
//! which pass on a paused clock before the first request.

#[path = "../crates/watchkeeper/tests/page/invented.rs"]
mod invented;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::process::{AdminAddress, AdminServer, Pages};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let keys = std::env::args().nth(1).map_or(Ok(10), |keys| keys.parse())?;
    let (env, mut pages) = (Env::simulated(1), Pages::default());
    pages.explain = Some(Arc::new(invented::Invented::new(keys, &env)));
    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = AdminServer::bind(AdminAddress::At(address.parse()?), pages, &env).await?;
    let address = server.address();
    let served = tokio::spawn(server.run(CancellationToken::new()));
    env.clock.sleep(Duration::from_secs(601)).await;
    tokio::time::resume();
    if let Some(address) = address {
        println!("http://{address}/");
    }
    Ok(served.await?)
}
