//! `bench queue` measures what it reports. It runs in its own process, because peak memory is per process.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

use serde_json::Value;

fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).arg("queue").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_phase_prints_a_line() {
    let lines = lines(&["--rounds", "4000", "--keys", "10", "--pending", "2000"]);
    let phases: Vec<_> = lines.iter().map(|line| line["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["alone", "because", "crowd", "delayed", "limited"]);
    let number = |at: usize, name: &str| lines[at][name].as_f64().unwrap();
    for at in [0, 1] {
        assert_eq!((number(at, "rounds"), number(at, "keys")), (4000.0, 10.0));
        let best = number(at, "best_ns_per_round");
        assert!(number(at, "ns_per_round") >= best && best > 0.0);
    }
    assert!(number(2, "adds") == 4000.0 && (10.0..=4000.0).contains(&number(2, "runs")));
    assert!((3..5).all(|at| number(at, "keys") == 2000.0 && number(at, "rss_mb") <= number(at, "peak_mb")));
}

#[test]
fn one_phase_can_be_chosen() {
    let lines = lines(&["--phase", "limited", "--pending", "100000"]);
    assert_eq!(lines.len(), 1);
    // At least the slots: 88 bytes each.
    assert!(lines[0]["held_mb"].as_f64().unwrap() >= 8.8);
}
