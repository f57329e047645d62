//! New Pods of a Job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use watchkeeper::clock::Generator;

use super::per_index::{FAILURES, IGNORED};
use super::plan::NewPod;
use super::tally::{INDEX, TRACKING};
use crate::pods::template::new_pod;

/// The variable that tells a container its index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest host name.
const LONGEST: usize = 63;

/// A new Pod of a Job: it keeps a finalizer until it is counted, and knows its index.
pub(super) fn pod_of(job: &Job, new: NewPod, generator: &Generator) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let prefix = new.index.map_or_else(|| format!("{name}-"), |index| format!("{name}-{index}-"));
    let mut pod = new_pod(&template, &prefix, generator);
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    if let Some(failures) = new.failures {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(FAILURES.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(IGNORED.to_owned(), failures.ignored.to_string());
        }
    }
    if let Some(index) = new.index {
        let metadata = &mut pod.metadata;
        for map in [metadata.annotations.get_or_insert_default(), metadata.labels.get_or_insert_default()] {
            map.insert(INDEX.to_owned(), index.to_string());
        }
        let spec = pod.spec.get_or_insert_default();
        let host = format!("{name}-{index}");
        // A name that is too long for a host is left to the node.
        spec.hostname = spec.hostname.take().or_else(|| (host.len() <= LONGEST).then_some(host));
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(tell_index);
    }
    pod
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == VARIABLE) {
        return;
    }
    let field =
        ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..Default::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: VARIABLE.to_owned(), value: None, value_from: Some(source) });
}
