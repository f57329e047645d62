//! Signals: the first stops the program gracefully, the second at once.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::env::Env;

/// The reason why signals are not handled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The signals of the process are already handled: share that token.
    #[error("signal handlers are installed already: pass on the token of the first installation")]
    AlreadyInstalled,
    /// The operating system refused.
    #[error("cannot listen for signals")]
    Listen(#[source] io::Error),
}

/// Whether signals are handled.
static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Handles SIGINT and SIGTERM (on Windows: ctrl-c); returns a token that the first of them cancels.
///
/// The second signal ends the process at once, with code 1, so that a program that hangs while it stops can still be
/// ended. May be called once per process. The handler runs on a thread of its own until the process ends, independently
/// of the token and of the program's runtime.
///
/// ```
/// # use watchkeeper::{Env, process::signals};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), signals::InstallError> {
/// let stop = signals::install(&Env::system())?;
/// assert!(!stop.is_cancelled());
/// assert!(signals::install(&Env::system()).is_err());
/// # Ok(())
/// # }
/// ```
pub fn install(env: &Env) -> Result<CancellationToken, InstallError> {
    let mut installed = INSTALLED.lock();
    if *installed {
        return Err(InstallError::AlreadyInstalled);
    }
    // Never dropped: it lives as long as the process, and must not be dropped on a thread of another runtime.
    let runtime: &Runtime =
        Box::leak(Box::new(Builder::new_current_thread().enable_io().build().map_err(InstallError::Listen)?));
    let signals = {
        let _entered = runtime.enter();
        os_signals().map_err(InstallError::Listen)?
    };
    let (stop, reporter) = (CancellationToken::new(), env.reporter.clone());
    let listener = {
        let stop = stop.clone();
        move || {
            let ended = runtime.block_on(listen(signals, &stop, |code| std::process::exit(code)));
            reporter.error("signals", "listener", &ended);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listener).map_err(InstallError::Listen)?;
    *installed = true;
    Ok(stop)
}

/// The operating system delivers no more signals.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more signals are delivered: the program can no longer be stopped by one")]
struct Ended;

/// The rule itself: the first signal cancels `stop`, the second calls `exit`.
async fn listen(
    signals: impl Stream<Item = &'static str>,
    stop: &CancellationToken,
    exit: impl FnOnce(i32),
) -> Ended {
    let mut signals = pin!(signals);
    if let Some(signal) = signals.next().await {
        // Logging may block forever if the log is not read, so neither the stop nor the exit waits for it.
        let _if_it_can = thread::Builder::new()
            .spawn(move || tracing::info!(signal, "stopping; a second signal exits at once"));
        stop.cancel();
        if signals.next().await.is_some() {
            exit(1);
        }
    }
    Ended
}

#[cfg(unix)]
fn os_signals() -> io::Result<impl Stream<Item = &'static str> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(stream::poll_fn(move |context: &mut Context<'_>| {
        // The second is polled only if the first has none: two signals at once count as two.
        match interrupt.poll_recv(context) {
            Poll::Ready(Some(())) => Poll::Ready(Some("SIGINT")),
            Poll::Ready(None) | Poll::Pending => {
                terminate.poll_recv(context).map(|got| got.map(|()| "SIGTERM"))
            }
        }
    }))
}

#[cfg(windows)]
fn os_signals() -> io::Result<impl Stream<Item = &'static str> + Send + 'static> {
    let mut ctrl_c = tokio::signal::windows::ctrl_c()?;
    Ok(stream::poll_fn(move |context: &mut Context<'_>| {
        ctrl_c.poll_recv(context).map(|got| got.map(|()| "ctrl-c"))
    }))
}

#[cfg(test)]
mod tests;
