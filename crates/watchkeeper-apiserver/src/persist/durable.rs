//! When is a write safe? Once a thread has written it down, together with all that came while it wrote what was before.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::persist::disk::{DataDirError, Disk};
use crate::state::core::{Core, commit_change};

/// How far the writing is.
#[derive(Clone, Debug)]
enum Progress {
    Safe(u64),
    /// Nothing is written any more: what is in memory and what is on the disk may differ.
    Failed(Arc<str>),
}

/// The thread that writes changes down. Dropping this ends it, when everything is written.
#[derive(Debug)]
pub(crate) struct Durable {
    wake: Option<SyncSender<()>>,
    progress: watch::Receiver<Progress>,
    writer: Option<JoinHandle<()>>,
}

impl Durable {
    /// Writes down what there is so far, and then everything that changes.
    pub(crate) fn start(disk: Disk, core: &Arc<Mutex<Core>>) -> Result<Self, DataDirError> {
        // One place: whoever finds it taken knows that the writer will look again.
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

    /// There is something to write.
    pub(crate) fn wake(&self) {
        // When the writer has ended, `wait` says why.
        let _taken = self.wake.as_ref().map(|wake| wake.try_send(()));
    }

    /// Waits until everything up to `revision` is safe. Cancel-safe. The error is for the client.
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
            Err(_) => Err("the thread that writes to the data directory has ended".into()),
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(writer) = self.writer.take() {
            // Its panic, if any, has been printed already.
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
                tracing::error!(error = why, "nothing is written down any more: every request is refused");
                said.send_replace(Progress::Failed(why.into()));
                // Whoever watched would take a world that stands still for one in which nothing happens.
                commit_change(core, |core| core.store.end_watches());
                return;
            }
        };
    }
}

/// Writes everything that waits, in one go; then it may be told.
fn write_batch(disk: &Disk, core: &Mutex<Core>) -> Result<Option<u64>, DataDirError> {
    let Some(batch) = core.lock().store.take_batch() else { return Ok(None) };
    disk.write(&batch)?;
    commit_change(core, |core| core.store.settle(&batch));
    Ok(Some(batch.revision))
}
