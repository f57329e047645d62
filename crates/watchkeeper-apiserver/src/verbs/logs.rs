//! Logs of pods on fake nodes: nothing runs there, so a log says what the container pretends to do.

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::kinds::cells::{list, or, text};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;

/// The annotation of nodes on which pods pretend to run.
const FAKE_NODE: &str = "watchkeeper.dev/fake-node";
/// The annotation of pods that is their log.
const LOG: &str = "watchkeeper.dev/log";
/// The annotations of pods that say how they behave begin so.
const SCRIPT: &str = "watchkeeper.dev/";

/// The lists of containers, with the lists of their statuses.
const CONTAINERS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// The part of a log that a client asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogOptions<'a> {
    /// Empty for the only container.
    pub(crate) container: &'a str,
    /// The log of the run before this one.
    pub(crate) previous: bool,
    /// Whether each line begins with its time.
    pub(crate) timestamps: bool,
    /// Only the last lines.
    pub(crate) tail: Option<usize>,
    /// Only the first bytes.
    pub(crate) limit: Option<usize>,
    /// Only lines since then.
    pub(crate) since: Option<Timestamp>,
}

/// A container, and its status.
#[derive(Clone, Copy, Debug)]
struct Container<'a> {
    name: &'a str,
    spec: &'a Value,
    status: &'a Value,
}

impl Core {
    /// Returns the log of a container of a pod, which is empty without a node. Other nodes than fake ones cannot be
    /// reached.
    pub(crate) fn log(&self, kind: &Kind, key: &Key, options: LogOptions<'_>) -> Result<String> {
        let pod = self.get(kind, key)?.value();
        let container = container(&pod, &key.name, options.container)?;
        let node = text(&pod["spec"]["nodeName"]);
        if node.is_empty() {
            return Ok(String::new());
        }
        let nodes = self.registry.nodes();
        let found = nodes.and_then(|nodes| self.store.get(&nodes.storage, &Key::new("", node)).cloned());
        let found = found.ok_or_else(|| Failure::not_found(kind, node))?;
        if found.metadata()["annotations"][FAKE_NODE] != "true" {
            return Err(Failure::internal("no preferred addresses found; known addresses: []"));
        }
        let lines = lines(&pod, &container, node, options.previous).map_err(Failure::bad_request)?;
        Ok(shown(lines, &options))
    }
}

/// Finds the container that a client asks for, which need not say so if there is only one.
fn container<'a>(pod: &'a Value, name: &str, asked: &str) -> Result<Container<'a>> {
    let all: Vec<_> = CONTAINERS
        .iter()
        .flat_map(|(specs, statuses)| {
            let statuses = list(&pod["status"][*statuses]);
            list(&pod["spec"][*specs]).iter().map(move |spec| {
                let status = statuses.iter().find(|status| status["name"] == spec["name"]);
                Container { name: text(&spec["name"]), spec, status: status.unwrap_or(&Value::Null) }
            })
        })
        .collect();
    match (asked, &all[..]) {
        ("", [only]) => Ok(*only),
        ("", _) => {
            let names = all.iter().map(|container| container.name).collect::<Vec<_>>().join(" ");
            let why = format!("a container name must be specified for pod {name}, choose one of: [{names}]");
            Err(Failure::bad_request(why))
        }
        (asked, all) => {
            let found = all.iter().find(|container| container.name == asked).copied();
            found
                .ok_or_else(|| Failure::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
    }
}

/// The lines of a run of a container, each with its time; the error says why there is no such run, as a kubelet does.
fn lines(
    pod: &Value,
    container: &Container<'_>,
    node: &str,
    previous: bool,
) -> std::result::Result<Vec<(Timestamp, String)>, String> {
    let Container { name, spec, status } = container;
    let shown = format!("container \"{name}\" in pod \"{}\"", meta::text(pod, "name"));
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let run = match (previous, state) {
        (true, _) if last.is_object() => last,
        (true, _) => {
            return Err(format!("previous terminated {shown} not found"));
        }
        (false, state) if state["running"].is_object() => &state["running"],
        (false, state) if state["terminated"].is_object() => &state["terminated"],
        // Between two runs, the log is that of the last one.
        _ if last.is_object() => last,
        _ => {
            let reason = match text(&state["waiting"]["reason"]) {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                reason => or(reason, "ContainerCreating"),
            };
            return Err(format!("{shown} is waiting to start: {reason}"));
        }
    };
    let time = |field: &str| text(&run[field]).parse::<Timestamp>().ok();
    let started = time("startedAt").unwrap_or_default();
    if let Some(written) = pod["metadata"]["annotations"][LOG].as_str() {
        return Ok(written.lines().map(|line| (started, line.to_owned())).collect());
    }
    let image = text(&spec["image"]);
    let mut lines = vec![(
        started,
        format!("{name}: started from image {image} on {node}, a fake node: no process runs"),
    )];
    let words = |field: &str| list(&spec[field]).iter().map(text).collect::<Vec<_>>();
    let command = [words("command"), words("args")].concat().join(" ");
    if !command.is_empty() {
        lines.push((started, format!("{name}: command: {command}")));
    }
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    for (key, value) in annotations.filter(|(key, _)| key.starts_with(SCRIPT)) {
        lines.push((started, format!("{name}: script: {key}={}", text(value))));
    }
    if let Some(code) = run["exitCode"].as_i64() {
        let reason = text(&run["reason"]);
        let line = format!("{name}: exited with code {code} ({})", or(reason, "Completed"));
        lines.push((time("finishedAt").unwrap_or(started), line));
    }
    Ok(lines)
}

/// The part of the lines that a client asks for.
fn shown(mut lines: Vec<(Timestamp, String)>, options: &LogOptions<'_>) -> String {
    if let Some(since) = options.since {
        lines.retain(|(time, _)| *time >= since);
    }
    let skipped = options.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    let mut log = String::new();
    for (time, line) in &lines[skipped..] {
        if options.timestamps {
            log.push_str(&format!("{time:.9} "));
        }
        log.push_str(line);
        log.push('\n');
    }
    if let Some(limit) = options.limit {
        log.truncate(log.floor_char_boundary(limit));
    }
    log
}
