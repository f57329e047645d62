//! What happens to a Pod on a fake node: a pure function of the Pod, its script and the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use watchkeeper::record::EventType;

use super::conditions;
use super::script::{Exit, Script};
use crate::pods::has_ended;

/// The delays before a container that keeps exiting is started again.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LAST_BACKOFF: Duration = Duration::from_secs(300);

/// What the kubelet does with a Pod.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// The new status, if it differs.
    pub(super) status: Option<PodStatus>,
    /// Whether the Pod is removed.
    pub(super) remove: bool,
    pub(super) events: Vec<(EventType, &'static str, String)>,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

/// The addresses of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) host: String,
    pub(super) pod: String,
}

/// Decides what happens next to a Pod that is bound to a fake node. `addresses` is called when the Pod starts.
pub(super) fn decide(pod: &Pod, addresses: impl FnOnce() -> Addresses, now: Timestamp) -> Decision {
    let Some(spec) = &pod.spec else { return Decision::default() };
    let status = pod.status.clone().unwrap_or_default();
    let at = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut turn =
        Turn { pod, spec, script: Script::of(pod), status, now, at, events: Vec::new(), wake: None };
    if pod.metadata.deletion_timestamp.is_some() {
        return turn.stop();
    }
    if has_ended(pod) {
        return Decision::default();
    }
    if turn.status.start_time.is_none() {
        turn.accept(addresses());
    }
    turn.run();
    turn.finish()
}

struct Turn<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    script: Script,
    status: PodStatus,
    now: Timestamp,
    /// The time as a status holds it.
    at: Time,
    events: Vec<(EventType, &'static str, String)>,
    wake: Option<Duration>,
}

impl Turn<'_> {
    /// The kubelet has seen the Pod: it has addresses, and its containers wait.
    fn accept(&mut self, addresses: Addresses) {
        let Addresses { host, pod } = addresses;
        let pod = if self.spec.host_network == Some(true) { host.clone() } else { pod };
        self.status.phase = Some("Pending".to_owned());
        self.status.start_time = Some(self.at.clone());
        self.status.host_ip = Some(host.clone());
        self.status.host_ips = Some(vec![HostIP { ip: host }]);
        self.status.pod_ip = Some(pod.clone());
        self.status.pod_ips = Some(vec![PodIP { ip: pod }]);
        let waiting = |container: &Container| ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            started: Some(false),
            state: Some(waiting("ContainerCreating", None)),
            ..ContainerStatus::default()
        };
        self.status.container_statuses = Some(self.spec.containers.iter().map(waiting).collect());
        let init = self.spec.init_containers.iter().flatten().map(waiting).collect::<Vec<_>>();
        self.status.init_container_statuses = (!init.is_empty()).then_some(init);
    }

    /// Moves containers on, and the phase and the conditions with them.
    fn run(&mut self) {
        if self.has_passed_deadline() {
            return;
        }
        let mut containers = self.status.container_statuses.take().unwrap_or_default();
        let mut init = self.status.init_container_statuses.take().unwrap_or_default();
        for status in &mut init {
            self.initialize(status);
        }
        for status in &mut containers {
            let container = self.spec.containers.iter().find(|container| container.name == status.name);
            if let Some(container) = container {
                self.advance(container, status);
            }
        }
        let is = |test: fn(&ContainerState) -> bool| {
            containers.iter().all(|status| status.state.as_ref().is_some_and(test))
        };
        let phase = match () {
            () if is(|state| state.terminated.is_some()) && !containers.is_empty() => {
                let codes = containers.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref());
                let succeeded = codes.into_iter().all(|end| end.exit_code == 0);
                if succeeded { "Succeeded" } else { "Failed" }
            }
            () if containers
                .iter()
                .all(|status| status.started != Some(true) && status.restart_count == 0) =>
            {
                "Pending"
            }
            () => "Running",
        };
        self.status.phase = Some(phase.to_owned());
        self.status.container_statuses = Some(containers);
        self.status.init_container_statuses = (!init.is_empty()).then_some(init);
        conditions::update(&mut self.status, self.spec, &self.at);
    }

    /// Fails a Pod that has been active for longer than it may.
    fn has_passed_deadline(&mut self) -> bool {
        let Some(seconds) = self.spec.active_deadline_seconds else { return false };
        let limit = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let began = self.status.start_time.clone();
        if !began.is_some_and(|began| self.is_due(&began, limit)) {
            return false;
        }
        self.status.phase = Some("Failed".to_owned());
        self.status.reason = Some("DeadlineExceeded".to_owned());
        self.status.message =
            Some("Pod was active on the node longer than the specified deadline".to_owned());
        self.end_all(137);
        conditions::update(&mut self.status, self.spec, &self.at);
        true
    }

    /// Init containers end at once; sidecars run.
    fn initialize(&mut self, status: &mut ContainerStatus) {
        let is_new = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
        let containers = self.spec.init_containers.iter().flatten();
        let Some(container) = containers.into_iter().find(|container| container.name == status.name) else {
            return;
        };
        if !is_new || self.script.pull_error(container).is_some() {
            return;
        }
        self.begin(container, status);
        if container.restart_policy.as_deref() != Some("Always") {
            self.end(status, 0);
        }
        status.ready = true;
    }

    fn advance(&mut self, container: &Container, status: &mut ContainerStatus) {
        let state = status.state.clone().unwrap_or_default();
        if let Some(running) = state.running {
            return self.run_on(container, status, running.started_at.unwrap_or(self.at.clone()));
        }
        let Some(reason) = state.waiting.map(|waiting| waiting.reason.unwrap_or_default()) else { return };
        if reason == "CrashLoopBackOff" {
            let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            let ended = last.and_then(|last| last.finished_at.clone()).unwrap_or(self.at.clone());
            if self.is_due(&ended, backoff(status.restart_count)) {
                status.restart_count += 1;
                self.begin(container, status);
            }
            return;
        }
        // The image of a Pod can change.
        status.image = container.image.clone().unwrap_or_default();
        if let Some(error) = self.script.pull_error(container) {
            return self.fail_pull(status, &reason, &error);
        }
        let seen = self.status.start_time.clone().unwrap_or(self.at.clone());
        if self.is_due(&seen, self.script.start) {
            let message = format!("Container image \"{}\" already present on machine", status.image);
            self.events.push((EventType::Normal, "Pulled", message));
            self.begin(container, status);
        }
    }

    fn fail_pull(&mut self, status: &mut ContainerStatus, before: &str, error: &str) {
        let image = status.image.clone();
        if before == "ContainerCreating" {
            let message = format!("Failed to pull image \"{image}\": {error}");
            self.events.push((EventType::Warning, "Failed", message));
            status.state = Some(waiting("ErrImagePull", Some(error.to_owned())));
        } else if before == "ErrImagePull" {
            let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {error}");
            self.events.push((EventType::Normal, "BackOff", format!("Back-off pulling image \"{image}\"")));
            status.state = Some(waiting("ImagePullBackOff", Some(message)));
        }
    }

    /// A container that runs becomes ready, and exits, when it is time.
    fn run_on(&mut self, container: &Container, status: &mut ContainerStatus, since: Time) {
        if let Some(Exit { after, code }) = self.script.exit(container)
            && self.is_due(&since, after)
        {
            return self.exit(container, status, code);
        }
        let ready = self.script.ready(container);
        status.ready = status.ready || ready.is_some_and(|delay| self.is_due(&since, delay));
    }

    /// A container has exited: it ends, or is started again, at first at once and then after a delay.
    fn exit(&mut self, container: &Container, status: &mut ContainerStatus, code: i32) {
        self.end(status, code);
        let restarts = match self.spec.restart_policy.as_deref() {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        };
        if !restarts {
            return;
        }
        status.last_state = status.state.take();
        if status.restart_count == 0 {
            status.restart_count = 1;
            return self.begin(container, status);
        }
        let delay = backoff(status.restart_count).as_secs();
        let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let name = &status.name;
        let message =
            format!("back-off {delay}s restarting failed container={name} pod={pod}_{namespace}({uid})");
        status.state = Some(waiting("CrashLoopBackOff", Some(message)));
        let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
        self.events.push((EventType::Warning, "BackOff", message));
        self.is_due(&self.at.clone(), backoff(status.restart_count));
    }

    fn begin(&mut self, container: &Container, status: &mut ContainerStatus) {
        self.events.push((EventType::Normal, "Created", "Container created".to_owned()));
        self.events.push((EventType::Normal, "Started", "Container started".to_owned()));
        let running = ContainerStateRunning { started_at: Some(self.at.clone()) };
        status.state = Some(ContainerState { running: Some(running), ..ContainerState::default() });
        status.started = Some(true);
        status.image_id = status.image.clone();
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        status.container_id = Some(format!("fake://{uid}/{}/{}", status.name, status.restart_count));
        let ready = self.script.ready(container);
        status.ready = ready.is_some_and(|delay| self.is_due(&self.at.clone(), delay));
    }

    fn end(&mut self, status: &mut ContainerStatus, code: i32) {
        let state = status.state.take().unwrap_or_default();
        let started_at = state.running.and_then(|running| running.started_at);
        let terminated = ContainerStateTerminated {
            container_id: status.container_id.clone(),
            exit_code: code,
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at,
            finished_at: Some(self.at.clone()),
            ..ContainerStateTerminated::default()
        };
        status.state = Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() });
        (status.ready, status.started) = (false, Some(false));
    }

    fn end_all(&mut self, code: i32) {
        let mut containers = self.status.container_statuses.take().unwrap_or_default();
        for status in &mut containers {
            if status.state.as_ref().is_none_or(|state| state.terminated.is_none()) {
                self.end(status, code);
            }
        }
        self.status.container_statuses = Some(containers);
    }

    /// The Pod is being deleted: its containers stop within the grace period, and then it is removed.
    fn stop(mut self) -> Decision {
        let metadata = &self.pod.metadata;
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let end = metadata.deletion_timestamp.as_ref().map_or(self.now, |end| end.0);
        let asked = Time(end.checked_sub(grace).unwrap_or(end));
        let delay = self.script.stop.min(grace);
        if !has_ended(self.pod) && !self.is_due(&asked, delay) {
            return Decision { wake: self.wake, ..Decision::default() };
        }
        let is_held = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if !has_ended(self.pod) {
            for container in &self.spec.containers {
                let message = format!("Stopping container {}", container.name);
                self.events.push((EventType::Normal, "Killing", message));
            }
            if is_held {
                // Work that is interrupted is not done; a server that is stopped has served.
                let (code, phase) = if self.script.is_job { (143, "Failed") } else { (0, "Succeeded") };
                self.end_all(code);
                self.status.phase = Some(phase.to_owned());
                conditions::update(&mut self.status, self.spec, &self.at);
            }
        }
        // A Pod that is held by finalizers is marked as stopped by a grace period of zero.
        let remove = !is_held || !grace.is_zero();
        self.wake = None;
        Decision { remove, ..self.finish() }
    }

    /// Whether `delay` after `then` is over; notes when it will be. Statuses have whole seconds, so that it may take up to one more.
    fn is_due(&mut self, then: &Time, delay: Duration) -> bool {
        let margin = if delay.is_zero() { Duration::ZERO } else { Duration::from_secs(1) };
        let due = then.0.checked_add(delay + margin).unwrap_or(Timestamp::MAX);
        if due <= self.now || delay.is_zero() {
            return true;
        }
        let rest = Duration::try_from(due.duration_since(self.now)).unwrap_or_default();
        self.wake = Some(self.wake.map_or(rest, |wake| wake.min(rest)));
        false
    }

    fn finish(mut self) -> Decision {
        conditions::observe(&mut self.status, self.pod.metadata.generation);
        let is_new = self.pod.status.as_ref() != Some(&self.status);
        Decision {
            status: is_new.then_some(self.status),
            remove: false,
            events: self.events,
            wake: self.wake,
        }
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// The delay before the next start of a container that was started again `restarts` times.
fn backoff(restarts: i32) -> Duration {
    let doublings = u32::try_from(restarts - 1).unwrap_or_default().min(5);
    (FIRST_BACKOFF * 2_u32.pow(doublings)).min(LAST_BACKOFF)
}
