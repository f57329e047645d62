//! Realistic Pods generated from a seed: first workloads, then their replicas.

mod draw;
mod managed;
mod render;
mod small;
mod workload;

use watchkeeper::clock::Generator;

use super::world::NamedPod;
use draw::skewed;
pub(crate) use small::pod as small_pod;
use workload::Workload;

/// As [`pods`], with the fewest fields that a running Pod has.
pub(crate) fn small_pods(count: u32, generator: &Generator) -> Vec<NamedPod> {
    let seed = generator.fork("small pods").next_u64();
    (0..count).map(|index| small_pod(seed, index, count)).collect()
}

/// `count` Pods under unique names, each of which follows from the seed alone.
pub(crate) fn pods(count: u32, generator: &Generator) -> Vec<NamedPod> {
    // Replicas share their workload's labels, images and environment, as they do in a cluster: a dozen to each on average.
    let workloads: Vec<Workload> = (0..count / 12 + 1)
        .map(|index| Workload::draw(index, count / 250 + 4, &generator.fork(&format!("workload {index}"))))
        .collect();
    (0..count)
        .map(|index| {
            let chance = generator.fork(&format!("pod {index}"));
            let workload = &workloads[skewed(&chance, workloads.len() as u64, 1.5) as usize];
            render::pod(workload, index, count, &chance)
        })
        .collect()
}
