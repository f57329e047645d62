//! Conformance: scripts of requests with the recorded responses of kube-apiserver 1.36.3, compared except for values
//! that a server chooses itself.
//!
//! With `WATCHKEEPER_TEST_KUBECONFIG` the scripts run on that server, which must be new. `WATCHKEEPER_TEST_RECORD=1`
//! then records its responses in the scripts. docs/apiserver-conformance.md lists the deviations of the embedded
//! server.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod compare;
mod deviations;
mod mask;
mod server;
mod step;

use std::fmt::Write as _;
use std::path::PathBuf;

use compare::Bindings;
use deviations::Deviations;
use mask::masked;
use server::Server;
use step::{Answers, scripts};

/// Runs every script; reports unexplained differences and stale explanations.
async fn replay(server: &Server, mut deviations: Deviations) -> Result<String, String> {
    let (mut answers, mut bindings) = (Answers::default(), Bindings::default());
    let (mut identical, mut explained, mut unasked) = (0, 0, 0);
    let mut report = String::new();
    for step in scripts().iter().flat_map(|script| &script.steps) {
        let Some(answer) = server.perform(step, &answers).await else {
            unasked += 1;
            continue;
        };
        if let Some(expected) = &step.answer {
            let differences = bindings.compare(expected, &masked(step, &answer));
            if differences.is_empty() {
                identical += 1;
            } else {
                let left = deviations.unexplained(&step.name, differences);
                explained += usize::from(left.is_empty());
                if !left.is_empty() {
                    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
                    write!(report, "\n{}\n    {}", step.name, left.join("\n    ")).unwrap();
                }
            }
        }
        answers.keep(&step.name, answer["body"].clone());
    }
    for row in deviations.stale() {
        write!(report, "\nno longer a deviation: {row}").unwrap();
    }
    if report.is_empty() {
        Ok(format!(
            "{identical} identical, {explained} with known deviations, {unasked} not asked in process"
        ))
    } else {
        Err(format!("{identical} identical, {explained} with known deviations, and:{report}"))
    }
}

async fn record(server: &Server) {
    let (mut answers, mut bindings) = (Answers::default(), Bindings::default());
    for mut script in scripts() {
        for step in &mut script.steps {
            let Some(answer) = server.perform(step, &answers).await else { continue };
            let mut shown = masked(step, &answer);
            bindings.number(&mut shown);
            step.answer = step.until.is_none().then_some(shown);
            answers.keep(&step.name, answer["body"].clone());
        }
        script.save();
    }
}

#[test]
fn the_answers_are_those_of_a_real_server() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let kubeconfig = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG").map(PathBuf::from);
    let runtime = runtime.enable_all().start_paused(kubeconfig.is_none()).build().unwrap();
    let result = runtime.block_on(async {
        let Some(kubeconfig) = kubeconfig else {
            return replay(&Server::embedded(), Deviations::read()).await;
        };
        let server = Server::of(&kubeconfig).await;
        if std::env::var_os("WATCHKEEPER_TEST_RECORD").is_some() {
            record(&server).await;
            return Ok("recorded".to_owned());
        }
        replay(&server, Deviations::none()).await
    });
    println!("{}", result.unwrap_or_else(|report| panic!("{report}")));
}
