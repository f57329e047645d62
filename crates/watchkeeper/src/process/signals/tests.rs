use std::cell::Cell;

use futures::FutureExt;
use tokio::sync::mpsc;

use super::*;

/// Signals that a test sends.
fn scripted() -> (mpsc::UnboundedSender<&'static str>, impl Stream<Item = &'static str>) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, stream::poll_fn(move |context| receive.poll_recv(context)))
}

#[test]
fn the_first_signal_cancels_and_the_second_exits_with_code_1() {
    let (stop, code, (send, signals)) = (CancellationToken::new(), Cell::new(None), scripted());
    let mut listening = Box::pin(listen(signals, &stop, |exit| code.set(Some(exit))));
    assert!(listening.as_mut().now_or_never().is_none());
    assert_eq!((stop.is_cancelled(), code.get()), (false, None));
    send.send("SIGTERM").unwrap();
    assert!(listening.as_mut().now_or_never().is_none());
    assert_eq!((stop.is_cancelled(), code.get()), (true, None));
    send.send("SIGINT").unwrap();
    assert!(listening.as_mut().now_or_never().is_some());
    assert_eq!(code.get(), Some(1));
}

#[test]
fn without_signals_nothing_is_cancelled() {
    let stop = CancellationToken::new();
    let ended = listen(stream::empty(), &stop, |_| panic!("exit")).now_or_never();
    assert_eq!((ended, stop.is_cancelled()), (Some(Ended), false));
}

/// The operating system's part, in processes of their own: a test binary that ends by a signal takes no other test with it.
#[cfg(unix)]
mod processes {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

    use super::*;

    struct Program {
        child: Child,
        lines: std::io::Lines<BufReader<ChildStdout>>,
    }

    impl Program {
        /// Runs the ignored test below in a process of its own.
        fn start() -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--ignored",
                    "--exact",
                    "--nocapture",
                    "process::signals::tests::processes::a_program_that_hangs",
                ])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut program = Self { child, lines };
            program.wait_for("listening");
            program
        }

        fn wait_for(&mut self, word: &str) {
            assert!(
                self.lines.any(|line| line.unwrap().ends_with(word)),
                "the program ended before {word:?}"
            );
        }

        fn kill(&self, signal: &str) {
            assert!(
                Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
            );
        }

        fn exit(mut self) -> ExitStatus {
            self.child.wait().unwrap()
        }
    }

    #[tokio::test]
    #[ignore = "run by the test below, in a process of its own"]
    async fn a_program_that_hangs() {
        let stop = install(&Env::system()).unwrap();
        assert!(matches!(install(&Env::system()), Err(InstallError::AlreadyInstalled)));
        println!("listening");
        stop.cancelled().await;
        println!("stopping");
        std::future::pending::<()>().await;
    }

    #[test]
    fn two_signals_end_a_program_that_hangs_and_one_only_asks() {
        for (first, second) in [("-TERM", "-TERM"), ("-INT", "-TERM"), ("-TERM", "-INT")] {
            let mut program = Program::start();
            program.kill(first);
            program.wait_for("stopping");
            program.kill(second);
            assert_eq!(program.exit().code(), Some(1));
        }
    }
}
