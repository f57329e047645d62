//! A TCP proxy that can stop passing bytes on, as a network does that loses every packet: nothing is closed or refused.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy to one address; dropping it closes its connections.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    stalled: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback interface.
    pub(super) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stalled, is_stalled) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    biased;
                    Some(_ended) = connections.join_next() => {}
                    accepted = listener.accept() => {
                        if let Ok((client, _)) = accepted {
                            connections.spawn(pass(client, server, is_stalled.clone()));
                        }
                    }
                }
            }
        });
        Ok(Self { address, stalled, _task: task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes nothing on from now on, or goes on where it stopped.
    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }
}

/// Passes bytes on in both directions until one of them ends.
async fn pass(mut client: TcpStream, server: SocketAddr, stalled: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        biased;
        _ = copy(from_client, to_server, stalled.clone()) => {}
        _ = copy(from_server, to_client, stalled) => {}
    }
}

async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut stalled: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        // An end of the connection is not noticed during a stall, either.
        if stalled.wait_for(|stalled| !stalled).await.is_err() || length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use watchkeeper::Env;

    use super::*;

    #[tokio::test]
    async fn bytes_wait_while_the_network_is_stalled_and_pass_after_it() {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(echo.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut server, _) = echo.accept().await.unwrap();
        let mut byte = [0];
        client.write_all(b"a").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();

        proxy.stall(true);
        client.write_all(b"b").await.unwrap();
        let clock = Env::system().clock;
        let passed = clock.timeout(Duration::from_millis(50), server.read_exact(&mut byte)).await;
        assert!(passed.is_err(), "{passed:?}");
        proxy.stall(false);
        server.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"b");
    }
}
