//! A replica of the sample controller as a process, started again whenever it ends, and its log.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use watchkeeper::clock::Clock;

use crate::informer::Failure;
use crate::measure::{megabytes, memory_of};

/// Messages of every reconcile, which explain nothing.
const ROUTINE: [&str; 2] = ["successfully synced", "event occurred"];
/// How long a replica may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A line of a log that is not routine.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    pub(super) replica: usize,
    pub(super) level: String,
    /// The message and the fields.
    pub(super) text: String,
}

/// The lines of all replicas, in the order in which they were read.
pub(super) type Diary = Arc<Mutex<Vec<Line>>>;

/// What the replicas are started with.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) diary: Diary,
}

/// One replica; dropping it kills the process.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) number: usize,
    program: Program,
    kubeconfig: PathBuf,
    running: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    leads: Arc<AtomicBool>,
}

impl Replica {
    pub(super) fn start(number: usize, program: &Program, kubeconfig: &Path) -> Result<Self, Failure> {
        let running = Running::start(number, program, kubeconfig)?;
        let (program, kubeconfig) = (program.clone(), kubeconfig.to_owned());
        Ok(Self { number, program, kubeconfig, running: Mutex::new(running) })
    }

    /// Whether it leads, by its log.
    pub(super) fn leads(&self) -> bool {
        self.running.lock().leads.load(SeqCst)
    }

    /// Resident memory in megabytes, if the process runs.
    pub(super) fn resident(&self) -> Option<f64> {
        let process = self.running.lock().child.id();
        memory_of(process).ok().map(|memory| megabytes(memory.resident))
    }

    /// Kills the process, as a node that fails does.
    pub(super) fn kill(&self) -> Result<(), Failure> {
        Ok(self.running.lock().child.kill()?)
    }

    /// Starts it again if it has ended, as a kubelet does; returns how it ended.
    pub(super) fn revive(&self) -> Result<Option<String>, Failure> {
        let mut running = self.running.lock();
        let Some(status) = running.child.try_wait()? else { return Ok(None) };
        *running = Running::start(self.number, &self.program, &self.kubeconfig)?;
        Ok(Some(status.to_string()))
    }

    /// Stops it gracefully.
    pub(super) async fn stop(&self, clock: &Clock) -> Result<(), Failure> {
        kill_process(Pid::from_child(&self.running.lock().child), Signal::TERM)?;
        let ended = async {
            loop {
                if let Some(status) = self.running.lock().child.try_wait()? {
                    return Ok::<_, Failure>(status);
                }
                clock.sleep(Duration::from_millis(50)).await;
            }
        };
        let status = clock.timeout(PATIENCE, ended).await;
        let status = status.map_err(|_| format!("replica {} does not stop", self.number))??;
        if status.success() { Ok(()) } else { Err(format!("replica {}: {status}", self.number).into()) }
    }
}

impl Running {
    fn start(number: usize, program: &Program, kubeconfig: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(&program.path);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--leader-elect", "--leader-election-namespace", "sample-controller"]);
        command.args(["--admin-address", "off", "--log-format", "json"]);
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("cannot run {}: {error}", program.path.display()))?;
        let errors = child.stderr.take().ok_or("the controller has no log")?;
        let leads = Arc::<AtomicBool>::default();
        let file = program.folder.join(format!("replica-{number}.log"));
        let mut file = fs::OpenOptions::new().create(true).append(true).open(file)?;
        let (diary, is_leader) = (program.diary.clone(), leads.clone());
        // Ends with the process.
        std::thread::spawn(move || {
            for text in BufReader::new(errors).lines().map_while(Result::ok) {
                let Some(line) = read(number, &text) else { continue };
                match line.text.as_str() {
                    text if text.starts_with("became leader") => is_leader.store(true, SeqCst),
                    text if text.starts_with("stopped leading") => is_leader.store(false, SeqCst),
                    _ => {}
                }
                diary.lock().push(line);
                // The diary has it, too.
                let _ = writeln!(file, "{text}");
            }
            is_leader.store(false, SeqCst);
        });
        Ok(Self { child, leads })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either may fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the log; none if it is routine.
fn read(replica: usize, text: &str) -> Option<Line> {
    let value: Value = serde_json::from_str(text).ok()?;
    let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let message = field("message");
    if ROUTINE.contains(&message.as_str()) {
        return None;
    }
    let mut words = vec![message];
    words.extend(["subject", "lease", "error", "problem", "signal"].map(field));
    words.retain(|word| !word.is_empty());
    Some(Line { at: field("timestamp").parse().ok()?, replica, level: field("level"), text: words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_message_and_fields_unless_it_is_routine() {
        let line = |message: &str| {
            format!(
                r#"{{"timestamp":"2026-11-18T07:10:56.617652Z","level":"WARN","message":"{message}","lease":"a/b","error":"cannot connect"}}"#
            )
        };
        let found = read(2, &line("cannot write the lease")).unwrap();
        assert_eq!((found.replica, found.level.as_str()), (2, "WARN"));
        assert_eq!(found.text, "cannot write the lease a/b cannot connect");
        assert_eq!(found.at.to_string(), "2026-11-18T07:10:56.617652Z");
        assert!(read(2, &line("successfully synced")).is_none() && read(2, "not JSON").is_none());
    }
}
