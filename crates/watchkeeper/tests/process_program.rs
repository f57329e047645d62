//! Signals and logs of a program. This test starts itself as a program with workers, and sends signals to it.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use serde_json::Value;
use watchkeeper::process::signals::{self, InstallError};
use watchkeeper::process::{AdminArgs, LogArgs, LogError, Pages, Workers};
use watchkeeper::{Client, Env};

/// A program with one worker, which panics once.
#[derive(Parser)]
struct Program {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    admin: AdminArgs,
    /// Does not end at a stop.
    #[arg(long)]
    hang: Option<Hang>,
}

/// The way in which a program hangs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Hang {
    /// A future that is never ready.
    Future,
    /// Its only thread, in a write to a log that is not read.
    Thread,
    /// A blocking task, for which the runtime waits before it is gone.
    Task,
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn program(args: Program) -> ExitCode {
    args.log.install("info").unwrap();
    assert!(matches!(args.log.install("info"), Err(LogError::AlreadyInstalled)));
    let env = Env::system();
    let stop = signals::install(&env).unwrap();
    assert!(matches!(signals::install(&env), Err(InstallError::AlreadyInstalled)));
    let config = kube_client::Config::new("http://127.0.0.1".parse().unwrap());
    let client = Client::from_config(config, &env).unwrap();
    let admin = args.admin.bind(Pages::default(), &client).await.unwrap();
    assert_eq!(admin.address(), None);
    let first = std::sync::atomic::AtomicBool::new(true);
    let workers = Workers::new(1).run(stop.clone(), &env, || {
        let (is_first, stop) = (first.swap(false, std::sync::atomic::Ordering::Relaxed), stop.clone());
        async move {
            assert!(!is_first, "as planned");
            tracing::info!("working");
            if args.hang == Some(Hang::Thread) {
                let _writing = std::io::stderr().lock();
                hang();
            }
            stop.cancelled().await;
        }
    });
    tokio::join!(workers, admin.run(stop.clone()));
    match args.hang {
        Some(Hang::Future) => std::future::pending().await,
        Some(Hang::Task) => {
            let (task, ended) = std::sync::mpsc::channel::<()>();
            tokio::spawn(async move {
                let _task = task;
                std::future::pending::<()>().await;
            });
            tokio::task::spawn_blocking(move || {
                assert!(ended.recv().is_err());
                tracing::info!("the runtime is being torn down");
                hang();
            });
        }
        Some(Hang::Thread) | None => {}
    }
    ExitCode::SUCCESS
}

/// The program, running.
struct Running(Child, BufReader<std::process::ChildStderr>);

impl Running {
    fn start(flags: &[&str], level: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("program").args(["--admin-address", "off"]).args(flags).stderr(Stdio::piped());
        command
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .envs(level.map(|level| ("RUST_LOG", level)));
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self(child, log)
    }

    /// The lines until one that has `text`, and that one.
    fn until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "no {text:?} in {lines:#?}");
            lines.push(line.clone());
            if line.contains(text) {
                return lines;
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", self.0.id())]).status();
        assert!(sent.unwrap().success());
    }

    /// The exit code, and the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).unwrap();
        (self.0.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
    }
}

fn the_first_signal_stops_the_program_in_order() {
    for signal in ["TERM", "INT"] {
        let mut running = Running::start(&[], None);
        running.until("working");
        running.signal(signal);
        assert_eq!(running.end().0, Some(0));
    }
}

fn the_second_signal_ends_a_program_that_hangs_with_code_1() {
    let mut running = Running::start(&["--hang", "future"], None);
    running.until("working");
    running.signal("INT");
    running.until("stopping; a second signal exits at once");
    running.signal("TERM");
    assert_eq!(running.end().0, Some(1));
}

fn the_second_signal_ends_a_program_whose_only_thread_cannot_even_log() {
    let mut running = Running::start(&["--hang", "thread"], None);
    running.until("working");
    running.signal("INT");
    running.signal("TERM");
    assert_eq!(running.end().0, Some(1));
}

fn the_second_signal_ends_a_program_whose_runtime_is_being_torn_down() {
    let mut running = Running::start(&["--hang", "task"], None);
    running.until("working");
    running.signal("INT");
    running.until("the runtime is being torn down");
    running.signal("TERM");
    assert_eq!(running.end().0, Some(1));
}

fn every_line_is_json_when_that_is_asked_for_even_of_a_panic() {
    let mut running = Running::start(&["--log-format", "json"], None);
    let lines = running.until("working");
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["panicked: as planned", "panicked: as planned", "working"]);
    assert!(lines[0]["place"].as_str().unwrap().contains("process_program.rs:"), "{lines:?}");
    assert_eq!((&lines[1]["part"], &lines[1]["subject"]), (&"worker".into(), &"worker 0".into()));
}

fn a_panic_is_logged_though_nothing_else_is() {
    for level in ["off", "my_program=info"] {
        let mut running = Running::start(&["--log-format", "json"], Some(level));
        let line: Value = serde_json::from_str(&running.until("panicked")[0]).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"ERROR".into(), &"panicked: as planned".into()));
    }
}

fn the_environment_says_how_much_is_logged_and_a_flag_says_it_louder() {
    let mut quiet = Running::start(&[], Some("error"));
    quiet.until("subject=\"worker 0\"");
    quiet.signal("TERM");
    let (code, rest) = quiet.end();
    assert_eq!((code, &*rest), (Some(0), ""));
    let mut loud = Running::start(&["--log-level", "info"], Some("error"));
    loud.until("working");
}

fn main() -> ExitCode {
    let mut args = std::env::args();
    if args.nth(1).as_deref() == Some("program") {
        return program(Program::parse_from(["program".to_owned()].into_iter().chain(args)));
    }
    let tests: [(&str, fn()); 7] = [
        ("the_first_signal_stops_the_program_in_order", the_first_signal_stops_the_program_in_order),
        (
            "the_second_signal_ends_a_program_that_hangs_with_code_1",
            the_second_signal_ends_a_program_that_hangs_with_code_1,
        ),
        (
            "the_second_signal_ends_a_program_whose_only_thread_cannot_even_log",
            the_second_signal_ends_a_program_whose_only_thread_cannot_even_log,
        ),
        (
            "the_second_signal_ends_a_program_whose_runtime_is_being_torn_down",
            the_second_signal_ends_a_program_whose_runtime_is_being_torn_down,
        ),
        (
            "every_line_is_json_when_that_is_asked_for_even_of_a_panic",
            every_line_is_json_when_that_is_asked_for_even_of_a_panic,
        ),
        ("a_panic_is_logged_though_nothing_else_is", a_panic_is_logged_though_nothing_else_is),
        (
            "the_environment_says_how_much_is_logged_and_a_flag_says_it_louder",
            the_environment_says_how_much_is_logged_and_a_flag_says_it_louder,
        ),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
