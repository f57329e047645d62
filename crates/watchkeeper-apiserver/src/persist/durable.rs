//! The writer thread, which makes changes durable: it writes all changes since the previous write as one batch.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::persist::disk::{DataDirError, Disk};
use crate::state::core::{Core, commit_change};

/// The progress of the writer.
#[derive(Clone, Debug)]
enum Progress {
    Safe(u64),
    /// Writing has stopped: memory and disk may differ.
    Failed(Arc<str>),
}

/// A handle to the writer thread. Dropping it ends the thread once everything is written.
#[derive(Debug)]
pub(crate) struct Durable {
    wake: Option<SyncSender<()>>,
    progress: watch::Receiver<Progress>,
    writer: Option<JoinHandle<()>>,
}

impl Durable {
    /// Writes the current state, then starts the thread that writes every change.
    pub(crate) fn start(disk: Disk, core: &Arc<Mutex<Core>>) -> Result<Self, DataDirError> {
        // Capacity 1 suffices: if the slot is taken, the writer is going to look for changes again.
        let (wake, woken) = sync_channel(1);
        let (said, progress) = watch::channel(Progress::Safe(0));
        write_batch(&disk, core)?;
        let _always_heard = said.send(Progress::Safe(core.lock().store.safe_revision()));
        let (core, folder) = (core.clone(), disk.folder().to_owned());
        let run = move || write_on(&disk, &core, &woken, &said);
        let writer = std::thread::Builder::new().name("watchkeeper-disk".to_owned()).spawn(run);
        match writer {
            Ok(writer) => Ok(Self { wake: Some(wake), progress, writer: Some(writer) }),
            Err(source) => Err(DataDirError::Io { folder, source }),
        }
    }

    /// Signals that there are changes to write.
    pub(crate) fn wake(&self) {
        // If the writer has ended, `wait` reports why.
        let _taken = self.wake.as_ref().map(|wake| wake.try_send(()));
    }

    /// Waits until all changes up to `revision` are durable. Cancel-safe. The error text is sent to the client.
    pub(crate) async fn wait(&self, revision: u64) -> Result<(), Arc<str>> {
        let mut progress = self.progress.clone();
        let over = |progress: &Progress| match progress {
            Progress::Safe(safe) => *safe >= revision,
            Progress::Failed(_) => true,
        };
        let reached = progress.wait_for(over).await.map(|progress| progress.clone());
        match reached {
            Ok(Progress::Safe(_)) => Ok(()),
            Ok(Progress::Failed(why)) => Err(why),
            Err(_) => Err("the writer thread of the data directory has ended".into()),
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the thread has been printed already.
            let _ended = writer.join();
        }
    }
}

fn write_on(disk: &Disk, core: &Mutex<Core>, woken: &Receiver<()>, said: &watch::Sender<Progress>) {
    loop {
        let more = woken.recv().is_ok();
        match write_batch(disk, core) {
            Ok(Some(safe)) => said.send_replace(Progress::Safe(safe)),
            Ok(None) if more => continue,
            Ok(None) => return,
            Err(error) => {
                let why = match std::error::Error::source(&error) {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                tracing::error!(error = why, "cannot write to the data directory: refusing all requests");
                said.send_replace(Progress::Failed(why.into()));
                // Otherwise watches would look idle while the state they show is no longer served.
                commit_change(core, |core| core.store.end_watches());
                return;
            }
        };
    }
}

/// Writes all pending changes as one batch, then releases them to watches.
fn write_batch(disk: &Disk, core: &Mutex<Core>) -> Result<Option<u64>, DataDirError> {
    let Some(batch) = core.lock().store.take_batch() else { return Ok(None) };
    disk.write(&batch)?;
    commit_change(core, |core| core.store.settle(&batch));
    Ok(Some(batch.revision))
}
