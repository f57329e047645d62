//! Scripts of Pods: how long they take to start, whether they get ready, and how they end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

/// How long the containers take to start.
pub const START_DELAY: &str = "watchkeeper.dev/start-delay";
/// How long the containers take to become ready after their start; `never` for never.
pub const READY_DELAY: &str = "watchkeeper.dev/ready-delay";
/// The code with which the containers exit; without it and [`EXIT_AFTER`], they run until they are deleted.
pub const EXIT_CODE: &str = "watchkeeper.dev/exit-code";
/// How long the containers run before they exit.
pub const EXIT_AFTER: &str = "watchkeeper.dev/exit-after";
/// The error of the image pull, in words: the containers never start.
pub const IMAGE_PULL_ERROR: &str = "watchkeeper.dev/image-pull-error";
/// How long the containers take to stop; at most the grace period.
pub const STOP_DELAY: &str = "watchkeeper.dev/stop-delay";

/// How a Pod behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) start: Duration,
    ready: Ready,
    pub(super) stop: Duration,
    image_pull_error: Option<String>,
    exit: Option<Exit>,
    pub(super) is_job: bool,
}

/// When a container becomes ready, by annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Never,
    After(Duration),
    /// The annotation is absent.
    ByProbe,
}

/// The end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) after: Duration,
    pub(super) code: i32,
}

impl Script {
    /// The script in the annotations of a Pod. What is not understood counts as absent.
    pub(super) fn of(pod: &Pod) -> Self {
        let annotation = |name: &str| pod.metadata.annotations.as_ref()?.get(name).map(String::as_str);
        let duration = |name: &str| annotation(name).and_then(duration);
        let code = annotation(EXIT_CODE).and_then(|code| code.trim().parse().ok());
        let after = duration(EXIT_AFTER);
        let exit = (code.is_some() || after.is_some())
            .then(|| Exit { after: after.unwrap_or_default(), code: code.unwrap_or_default() });
        let owners = pod.metadata.owner_references.iter().flatten();
        Self {
            start: duration(START_DELAY).unwrap_or_default(),
            ready: match annotation(READY_DELAY) {
                Some("never") => Ready::Never,
                _ => duration(READY_DELAY).map_or(Ready::ByProbe, Ready::After),
            },
            stop: duration(STOP_DELAY).unwrap_or_default(),
            image_pull_error: annotation(IMAGE_PULL_ERROR).map(str::to_owned),
            exit,
            is_job: owners.into_iter().any(|owner| owner.kind == "Job" && owner.controller == Some(true)),
        }
    }

    /// When and how a container exits by itself: as the annotations say, else as its command does, else at once in a Pod of a Job,
    /// unless it pauses.
    pub(super) fn exit(&self, container: &Container) -> Option<Exit> {
        let at_once = Exit { after: Duration::ZERO, code: 0 };
        let by_default = (self.is_job && !pauses(container)).then_some(at_once);
        self.exit.or_else(|| command(container)).or(by_default)
    }

    /// Why the image of a container cannot be pulled: as the annotation says, else because no registry has it.
    pub(super) fn pull_error(&self, container: &Container) -> Option<String> {
        let image = container.image.as_deref().unwrap_or_default();
        let missing = || is_missing(image).then(|| format!("{image}: not found"));
        self.image_pull_error.clone().or_else(missing)
    }

    /// How long a container takes to become ready after its start: as the annotation says, else the initial delay of its readiness
    /// probe. None for never.
    pub(super) fn ready(&self, container: &Container) -> Option<Duration> {
        match self.ready {
            Ready::Never => None,
            Ready::After(delay) => Some(delay),
            Ready::ByProbe => {
                let probe = container.readiness_probe.as_ref();
                let seconds = probe.and_then(|probe| probe.initial_delay_seconds).unwrap_or_default();
                Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
            }
        }
    }
}

/// Whether no registry has an image: one with the tag `404`, or of a registry `localhost` or `invalid`.
fn is_missing(image: &str) -> bool {
    let (registry, _) = image.split_once('/').unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let tag = name.split('@').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    tag == Some("404") || registry == "localhost" || registry.split('.').next() == Some("invalid")
}

/// Whether a container waits for ever: its command is `pause`, or it has none and its image is called so.
fn pauses(container: &Container) -> bool {
    let mut words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let is_pause = |path: &str| path.rsplit('/').next() == Some("pause");
    match words.next() {
        Some(word) => is_pause(word),
        None => {
            let image = container.image.as_deref().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or_default();
            name.split(['@', ':']).next() == Some("pause")
        }
    }
}

/// The exit of a command whose end is known: `sleep`, `true`, `false` and `exit`, also in a shell.
fn command(container: &Container) -> Option<Exit> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let text = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    let shells = ["/bin/sh -c ", "sh -c ", "/bin/bash -c ", "bash -c "];
    let script = shells.iter().find_map(|shell| text.strip_prefix(shell)).unwrap_or(&text);
    let mut exit: Option<Exit> = None;
    let mut parts = script.split([';', '\n']).flat_map(|part| part.split("&&")).map(str::trim);
    let is_known = parts.all(|part| {
        let (word, argument) = part.split_once(' ').unwrap_or((part, ""));
        let after = exit.map_or(Duration::ZERO, |exit| exit.after);
        let code = match word.rsplit('/').next().unwrap_or_default() {
            "sleep" => match duration(argument.trim()) {
                Some(more) => {
                    exit = Some(Exit { after: after.saturating_add(more), code: 0 });
                    return true;
                }
                None => return false,
            },
            "true" => 0,
            "false" => 1,
            "exit" => argument.trim().parse().unwrap_or_default(),
            "echo" | "date" if exit.is_some() || script.contains("exit") || script.contains("sleep") => 0,
            _ => return false,
        };
        exit = Some(Exit { after, code });
        true
    });
    exit.filter(|_| is_known)
}

/// A time such as `250ms`, `2s`, `1.5m` or `1h`; a number alone is in seconds.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|sign: char| sign.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(command: &Value) -> Container {
        serde_json::from_value(json!({"name": "a", "command": command})).unwrap()
    }

    fn exit(seconds: u64, code: i32) -> Option<Exit> {
        Some(Exit { after: Duration::from_secs(seconds), code })
    }

    #[test]
    fn annotations_script_a_pod() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": {
            START_DELAY: "250ms", READY_DELAY: "never", EXIT_CODE: "3", EXIT_AFTER: "1.5m"}}}))
        .unwrap();
        let script = Script::of(&pod);
        let main = Container::default();
        assert_eq!((script.start, script.ready(&main)), (Duration::from_millis(250), None));
        assert_eq!(script.exit(&main), exit(90, 3));
        let plain = Script::of(&Pod::default());
        assert_eq!((plain.ready(&main), plain.exit(&main)), (Some(Duration::ZERO), None));
    }

    #[test]
    fn a_probe_delays_what_no_annotation_does() {
        let probed: Container = serde_json::from_value(
            json!({"name": "a", "readinessProbe": {"httpGet": {"port": 80}, "initialDelaySeconds": 5}}),
        )
        .unwrap();
        assert_eq!(Script::of(&Pod::default()).ready(&probed), Some(Duration::from_secs(5)));
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"annotations": {READY_DELAY: "1s"}}})).unwrap();
        assert_eq!(Script::of(&pod).ready(&probed), Some(Duration::from_secs(1)));
    }

    #[test]
    fn images_that_no_registry_has_cannot_be_pulled() {
        let error = |image: &str| {
            let container = json!({"name": "a", "image": image});
            Script::of(&Pod::default()).pull_error(&serde_json::from_value(container).unwrap())
        };
        assert_eq!(error("web:404").as_deref(), Some("web:404: not found"));
        for missing in ["localhost/none", "invalid.example.com/a/b:1", "example.com:5000/web:404"] {
            assert!(error(missing).is_some(), "{missing}");
        }
        for there in ["nginx", "nginx:1.27", "example.com:404/web", "web@sha256:404"] {
            assert_eq!(error(there), None, "{there}");
        }
    }

    #[test]
    fn commands_whose_end_is_known_exit() {
        assert_eq!(command(&container(&json!(["sleep", "300"]))), exit(300, 0));
        assert_eq!(command(&container(&json!(["/bin/sh", "-c", "sleep 2; exit 7"]))), exit(2, 7));
        assert_eq!(command(&container(&json!(["/bin/false"]))), exit(0, 1));
        assert_eq!(command(&container(&json!(["sh", "-c", "echo hi && sleep 1"]))), exit(1, 0));
        assert_eq!(command(&container(&json!(["nginx", "-g", "daemon off;"]))), None);
        assert_eq!(command(&container(&json!(["sh", "-c", "while true; do sleep 1; done"]))), None);
    }

    #[test]
    fn a_pod_of_a_job_completes() {
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": true}]);
        let pod: Pod = serde_json::from_value(json!({"metadata": {"ownerReferences": owner}})).unwrap();
        assert_eq!(Script::of(&pod).exit(&Container::default()), exit(0, 0));
        assert_eq!(Script::of(&pod).exit(&container(&json!(["sleep", "9"]))), exit(9, 0));
        for paused in [
            json!({"name": "a", "image": "registry.k8s.io/pause:3.10"}),
            json!({"name": "a", "image": "pause"}),
            json!({"name": "a", "image": "example.com:5000/tools", "args": ["pause"]}),
        ] {
            let paused: Container = serde_json::from_value(paused).unwrap();
            assert_eq!(Script::of(&pod).exit(&paused), None, "{paused:?}");
        }
        let busy = json!({"name": "a", "image": "pause", "args": ["work"]});
        assert_eq!(Script::of(&pod).exit(&serde_json::from_value(busy).unwrap()), exit(0, 0));
    }
}
