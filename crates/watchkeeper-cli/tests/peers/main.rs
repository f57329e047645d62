//! Do Go's own programs take our server for Kubernetes? They run unchanged, from the folder that `WATCHKEEPER_TEST_PEERS` names.
#![allow(clippy::unwrap_used, reason = "a test may")]

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
struct World {
    env: Env,
    peers: PathBuf,
    folder: TempDir,
}

impl World {
    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// `watchkeeper serve`, ready.
    async fn serve(&self) -> Program {
        let kubeconfig = self.kubeconfig();
        let program = Path::new(env!("CARGO_BIN_EXE_watchkeeper"));
        let mut server =
            Program::start(&self.env, program, &["serve", "--kubeconfig-out", kubeconfig.to_str().unwrap()]);
        server.until(&["ready"]).await;
        server
    }

    /// One of the Go programs, with the kubeconfig of this test's server.
    fn peer(&self, name: &str, arguments: &[&str]) -> Program {
        let kubeconfig = self.kubeconfig();
        let mut all = vec!["-kubeconfig", kubeconfig.to_str().unwrap()];
        all.extend(arguments);
        Program::start(&self.env, &self.peers.join(name), &all)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(peers) = std::env::var_os("WATCHKEEPER_TEST_PEERS").map(PathBuf::from) else {
        println!(
            "skipped: WATCHKEEPER_TEST_PEERS names no folder with Go programs (docs/reference.md says how to have them)"
        );
        return ExitCode::SUCCESS;
    };
    let env = Env::system();
    let (mut passed, mut failed) = (0, 0);
    macro_rules! check {
        ($($room:ident::$name:ident)*) => {$({
            let world = World { env: env.clone(), peers: peers.clone(), folder: tempfile::tempdir().unwrap() };
            let started = env.clock.now();
            let well = tokio::spawn(async move { $room::$name(&world).await }).await.is_ok();
            if well { passed += 1 } else { failed += 1 }
            let (took, word) = (env.clock.now() - started, if well { "ok" } else { "FAILED" });
            println!("test {} ... {word} ({:.1} s)", stringify!($name), took.as_secs_f64());
        })*};
    }
    check! {
        foos::the_sample_controller_of_go_serves_foos
        changes::caches_of_client_go_equal_a_list_after_2000_changes_and_restarts
        election::a_candidate_takes_over_from_one_that_was_killed_or_stopped
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
