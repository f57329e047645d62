//! When does the operator want the program to stop? At the first signal in order, at the second one at once.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::env::Env;

/// Why signals are not listened for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Signals belong to the whole process, and someone in it listens already: share that token.
    #[error("signal handlers are installed already: pass on the token of the first installation")]
    AlreadyInstalled,
    /// The operating system refused.
    #[error("cannot listen for signals")]
    Listen(#[source] io::Error),
}

/// Whether somebody listens.
static INSTALLED: Mutex<bool> = Mutex::new(false);

/// Listens for SIGINT and SIGTERM (on Windows: ctrl-c); returns a token that the first of them cancels.
///
/// The second signal ends the process at once, with code 1: a program that hangs while it stops can still be ended politely. May be called
/// once per process. It listens on a thread of its own until the process ends, whatever becomes of the token, or of the runtime of the program.
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
    // Never dropped: it is there as long as the process, and must not be dropped on a thread of another runtime.
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
        // A line may wait for ever for somebody to read the log: neither the stop nor the exit waits for it.
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
        // The second is asked only when the first has nothing: two signals at once are two.
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
