//! Serves a fresh API server until Ctrl-C: `serve [ADDRESS] [KUBECONFIG]`. With `--insecure` it speaks plain HTTP.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, ListenOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let address = words.first().map_or("127.0.0.1:0", String::as_str).parse()?;
    let path = words.get(1).map_or("watchkeeper.kubeconfig", String::as_str);
    let insecure_http = flags.iter().any(|flag| flag == "--insecure");
    let server = ApiServer::builder(&Env::system())
        .streaming_lists(!flags.iter().any(|f| f == "--no-streaming"))
        .build();
    let listening = server.listen(ListenOptions { address, credentials: None, insecure_http }).await?;
    // The file holds a token, so it must never be readable by others, not even briefly.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(listening.kubeconfig().as_bytes())?;
    println!("serving {} (KUBECONFIG={path})", listening.url());
    tokio::signal::ctrl_c().await?;
    listening.stop().await;
    Ok(())
}
