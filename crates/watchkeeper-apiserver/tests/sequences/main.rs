//! Differential test: random sequences of operations get the same responses from the embedded server and from a real
//! one.
//!
//! With `WATCHKEEPER_TEST_KUBECONFIG` every sequence runs on both, and the responses are compared. Without it each runs
//! on two embedded servers, which must agree. `WATCHKEEPER_TEST_SEQUENCES` is the number of sequences,
//! `WATCHKEEPER_TEST_SEED` the first seed. A sequence that differs is reported with its seed and shrunk to a minimum.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod differ;
mod generate;
mod kinds;
mod normalise;
mod operation;
mod server;

use std::collections::BTreeMap;

use futures::StreamExt as _;
use watchkeeper::Env;

use differ::Difference;
use generate::sequence;
use operation::Operation;
use server::Server;

/// Operations per sequence.
const LENGTH: usize = 30;

/// Sequences that run concurrently.
const ABREAST: usize = 12;

/// How often a differing sequence runs again alone, to rule out a difference of timing.
const ATTEMPTS: usize = 10;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Returns the first difference of a sequence, if there is one.
async fn difference(first: &Server, second: &Server, operations: &[Operation]) -> Option<Difference> {
    let (expected, found) = tokio::join!(first.run(operations), second.run(operations));
    differ::first(&expected, &found)
}

/// Reruns a sequence that differed. A difference counts if both servers processed it within the same seconds, or if it
/// occurs every time.
async fn judged(first: &Server, second: &Server, seed: u64, mut shown: Difference) -> Option<Difference> {
    let operations = sequence(seed, LENGTH);
    for _ in 0..ATTEMPTS {
        first.next_second().await;
        let (expected, found) = tokio::join!(first.run(&operations), second.run(&operations));
        shown = differ::first(&expected, &found)?;
        if differ::same_seconds(&expected, &found) {
            break;
        }
    }
    Some(shown)
}

/// Removes operations that a difference does not need: large parts first, single operations last.
async fn shrink(
    first: &Server,
    second: &Server,
    mut operations: Vec<Operation>,
    mut shown: Difference,
) -> (Vec<Operation>, Difference) {
    let sort = shown.sort();
    let mut size = operations.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < operations.len() {
            let mut fewer = operations.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            match difference(first, second, &fewer).await {
                Some(still) if still.sort() == sort => (operations, shown) = (fewer, still),
                _ => at += size,
            }
        }
        if size == 1 {
            return (operations, shown);
        }
        size = size.div_ceil(2);
    }
}

/// Runs the sequences on both servers, and prints one of each sort of difference.
async fn compare(first: &Server, second: &Server, count: u64) {
    let start = number("WATCHKEEPER_TEST_SEED", 1);
    let runs = futures::stream::iter(start..start + count).map(|seed| async move {
        let differs = difference(first, second, &sequence(seed, LENGTH)).await;
        differs.map(|difference| (seed, difference))
    });
    let found: Vec<Option<(u64, Difference)>> = runs.buffer_unordered(ABREAST).collect().await;
    let mut differing = Vec::new();
    for (seed, shown) in found.into_iter().flatten() {
        match judged(first, second, seed, shown).await {
            Some(difference) => differing.push((seed, difference)),
            None => println!("seed {seed} differed when it ran in other seconds"),
        }
    }
    let total = differing.len();
    let mut sorts: BTreeMap<String, (u64, Difference, usize)> = BTreeMap::new();
    for (seed, difference) in differing {
        sorts.entry(difference.sort()).or_insert((seed, difference, 0)).2 += 1;
    }
    let examples = futures::stream::iter(&sorts).map(|(sort, (seed, ..))| async move {
        let operations = sequence(*seed, LENGTH);
        let again = difference(first, second, &operations).await.filter(|found| found.sort() == *sort);
        match again {
            Some(found) => (seed, Some(shrink(first, second, operations, found).await)),
            None => (seed, None),
        }
    });
    let examples: BTreeMap<_, _> = examples.buffer_unordered(ABREAST).collect().await;
    for (sort, (seed, difference, count)) in &sorts {
        println!("\n{count} of this sort, as seed {seed}: {sort}");
        match &examples[seed] {
            Some((operations, difference)) => {
                operations.iter().for_each(|operation| println!("    {operation}"));
                println!("{difference}");
            }
            None => println!("{difference}  (not when it runs again)"),
        }
    }
    println!("{count} sequences of {LENGTH} operations, {total} differ");
    assert_eq!(total, 0, "sequences differ: see above");
}

#[test]
fn random_sequences_get_the_same_answers() {
    let Some(kubeconfig) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG") else {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        return runtime.enable_all().start_paused(true).build().unwrap().block_on(async {
            let (first, second) = (Env::simulated(1), Env::simulated(2));
            let (first, second) = (Server::embedded(&first).await, Server::embedded(&second).await);
            compare(&first, &second, number("WATCHKEEPER_TEST_SEQUENCES", 100)).await;
        });
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (real, embedded) = (Server::of(kubeconfig).await, Server::embedded(&Env::system()).await);
        compare(&real, &embedded, number("WATCHKEEPER_TEST_SEQUENCES", 2000)).await;
    });
}
