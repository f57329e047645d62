//! The checks of our controllers through every fault, compiled once for all of them and optimized:
//! `SIM_SEEDS=2000 cargo test --workspace --profile sim --test stories -- --nocapture --test-threads=1 through_every_fault`.
//!
//! A check uses all processors, so one test runs at a time. docs/testing.md has the figures.

#[path = "../crates/watchkeeper-sim/tests/built_in.rs"]
mod built_in;
#[path = "../crates/watchkeeper-sim/tests/cluster.rs"]
mod cluster;
#[path = "../crates/watchkeeper-sim/tests/network.rs"]
mod network;
#[path = "../controllers/pod-controller/tests/faults.rs"]
mod pod_controller_faults;
#[path = "../examples/quotas_story.rs"]
#[allow(dead_code, reason = "its main, too")]
mod quotas_story;
#[path = "../controllers/sample-controller/tests/faults.rs"]
mod sample_controller_faults;
