//! Client of other people on our server: Go's own programs, unchanged, from the folder that `WATCHKEEPER_TEST_PEERS` names, and one on
//! kube-rs' runtime, which `WATCHKEEPER_TEST_KUBE_RUNTIME` names.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod boats;
mod candidate;
mod changes;
mod election;
mod foos;
mod observer;
mod program;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;
use watchkeeper::Env;

use program::Program;

/// Where the programs are, and what is handed in.
struct PeerPrograms {
    env: Env,
    peers: PathBuf,
    kube_runtime: PathBuf,
    folder: TempDir,
}

impl PeerPrograms {
    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// `watchkeeper serve`, ready.
    async fn serve(&self) -> Program {
        let kubeconfig = self.kubeconfig();
        let program = Path::new(env!("CARGO_BIN_EXE_watchkeeper"));
        let mut server = Program::start(
            &self.env,
            program,
            &["serve", "--nodes", "0", "--kubeconfig-out", kubeconfig.to_str().unwrap()],
        );
        server.until(&["ready"]).await;
        server
    }

    /// As [`serve`](Self::serve), unless `WATCHKEEPER_TEST_PEERS_ON` names the kubeconfig of a real server to use.
    async fn serve_or_real(&self) -> Option<Program> {
        match std::env::var_os("WATCHKEEPER_TEST_PEERS_ON") {
            Some(real) => {
                std::fs::copy(real, self.kubeconfig()).unwrap();
                None
            }
            None => Some(self.serve().await),
        }
    }

    /// One of the Go programs, with the kubeconfig of this test's server.
    fn peer(&self, name: &str, arguments: &[&str]) -> Program {
        self.start(&self.peers.join(name), arguments)
    }

    /// A candidate of ours, with the same kubeconfig.
    fn candidate(&self, identity: &str) -> Program {
        let (program, kubeconfig) = (std::env::current_exe().unwrap(), self.kubeconfig());
        Program::start(&self.env, &program, &[candidate::NAME, kubeconfig.to_str().unwrap(), identity])
    }

    /// A story of the program on kube-rs' runtime, with the same kubeconfig.
    fn kube_runtime(&self, story: &str) -> Program {
        self.start(&self.kube_runtime, &[story])
    }

    fn start(&self, program: &Path, arguments: &[&str]) -> Program {
        let kubeconfig = self.kubeconfig();
        let mut all = vec!["-kubeconfig", kubeconfig.to_str().unwrap()];
        all.extend(arguments);
        Program::start(&self.env, program, &all)
    }
}

/// What a variable names, or nothing and a word about it.
fn named(variable: &str, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {variable} names no {what} (docs/testing.md says how to have one)");
    }
    path
}

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(candidate::NAME) {
        return candidate::run().await;
    }
    let peers = named("WATCHKEEPER_TEST_PEERS", "folder with Go programs");
    let kube_runtime = named("WATCHKEEPER_TEST_KUBE_RUNTIME", "program on kube-rs' runtime");
    let env = Env::system();
    let (mut passed, mut failed) = (0, 0);
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    macro_rules! check {
        ($($room:ident::$name:ident)*) => {$(if stringify!($name).contains(&wanted) {
            let (peers, kube_runtime) = (peers.clone().unwrap_or_default(), kube_runtime.clone().unwrap_or_default());
            let programs = PeerPrograms { env: env.clone(), peers, kube_runtime, folder: tempfile::tempdir().unwrap() };
            let started = env.clock.now();
            let well = tokio::spawn(async move { $room::$name(&programs).await }).await.is_ok();
            if well { passed += 1 } else { failed += 1 }
            let (took, word) = (env.clock.now() - started, if well { "ok" } else { "FAILED" });
            println!("test {} ... {word} ({:.1} s)", stringify!($name), took.as_secs_f64());
        })*};
    }
    check! { election::a_write_of_who_does_not_hold_the_lease_is_found }
    if peers.is_some() {
        check! {
            foos::the_sample_controller_of_go_serves_foos
            changes::caches_of_client_go_equal_a_list_after_2000_changes_and_restarts
            election::a_candidate_takes_over_from_one_that_was_killed_or_stopped
            election::candidates_of_ours_and_of_go_hand_the_lease_over_and_never_write_at_once
        }
    }
    if kube_runtime.is_some() {
        check! {
            boats::what_kube_rs_waits_for_comes_and_its_events_are_counted
            boats::an_operator_of_kube_rs_serves_boats_through_a_restart
            changes::stores_of_kube_rs_equal_a_list_after_2000_changes_and_restarts
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
