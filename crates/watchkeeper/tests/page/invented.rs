//! A program that exists only in its views: a controller with any number of keys in all states, and one that is idle. The
//! views say nothing that a program with such controllers could not say.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper::explain::{
    ExplainError, ExplainSource, Explanation, InformerView, KeyCounts, KeySort, KeyState, KeySummary,
    KeysPage, KeysQuery, Overview,
};

/// The program. A `taint` is in every text, to see what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Invented {
    pub(crate) keys: usize,
    pub(crate) taint: &'static str,
    pub(crate) env: Env,
    /// What was to be reconciled on request.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    started: jiff::Timestamp,
}

/// One key in this many is not idle, if there are many.
const RARE: usize = 400;
/// The most workers that it has. All of them are busy, as keys wait for one.
const WORKERS: usize = 4;
/// The reconciles of a key per second. Of 100,000 keys, so many that a queue remembers the runs of the last three minutes.
const RATE: f64 = 1e-4;
/// For how long it has run, in seconds.
const UPTIME: i64 = 6 * 3_600;
/// The key whose explanation is invented.
const EXPLAINED: usize = 3;

const STATES: [KeyState; 10] = [
    KeyState::Running,
    KeyState::Waiting,
    KeyState::Parked,
    KeyState::Retrying,
    KeyState::Delayed,
    KeyState::Failed,
    KeyState::Retrying,
    KeyState::Idle,
    KeyState::Idle,
    KeyState::Cached,
];

impl Invented {
    pub(crate) fn new(keys: usize, env: &Env) -> Self {
        let started = env.clock.wall() - jiff::SignedDuration::from_secs(UPTIME);
        Self { keys, taint: "", env: env.clone(), asked: Arc::default(), started }
    }

    fn time(&self, seconds: i64) -> String {
        format!("{:.3}", self.env.clock.wall() + jiff::SignedDuration::from_secs(seconds))
    }

    fn state(&self, at: usize) -> KeyState {
        match at {
            0..10 => STATES[at],
            _ if at.is_multiple_of(RARE) => match STATES[at / RARE % STATES.len()] {
                KeyState::Running if at / RARE / STATES.len() >= WORKERS => KeyState::Idle,
                state => state,
            },
            _ => KeyState::Idle,
        }
    }

    fn name(&self, at: usize) -> String {
        const SHOPS: [&str; 5] = ["bakery", "florist", "bookshop", "tailor", "brewery"];
        format!("{}/site-{at:06}{}", SHOPS[at % SHOPS.len()], self.taint)
    }

    fn counts(&self) -> KeyCounts {
        let mut counts = KeyCounts::default();
        for at in 0..self.keys {
            *match self.state(at) {
                KeyState::Running => &mut counts.running,
                KeyState::Waiting => &mut counts.waiting,
                KeyState::Parked => &mut counts.parked,
                KeyState::Retrying => &mut counts.retrying,
                KeyState::Delayed => &mut counts.delayed,
                KeyState::Failed => &mut counts.failed,
                KeyState::Idle => &mut counts.idle,
                _ => &mut counts.cached,
            } += 1;
        }
        counts
    }

    /// The error of a key that is retried.
    fn error(&self, key: &str) -> String {
        format!("cannot apply Deployment {key}: the server is busy (429 TooManyRequests){}", self.taint)
    }

    /// The number of failures in a row and the backoff in seconds of a key that is retried, by a limiter that begins with
    /// 5 ms.
    fn backoff(at: usize) -> (usize, i64) {
        let step = (at / RARE + at) % 4;
        (13 + step, [20, 41, 82, 164][step])
    }

    fn summary(&self, at: usize) -> KeySummary {
        let (state, key) = (self.state(at), self.name(at));
        let ((failures, backoff), ago) = (Self::backoff(at), 7 + at as i64 % 4_000);
        // Since when, until when, and the last success, in seconds.
        let (since, until, success) = match state {
            KeyState::Running => (Some(if at == 0 { 75 } else { 1 }), None, Some(ago)),
            KeyState::Waiting => (Some(2), None, Some(ago)),
            KeyState::Parked => (Some(1), Some(4), Some(ago)),
            KeyState::Retrying => {
                (Some(backoff / 3), Some(backoff - backoff / 3), Some(1_000 + at as i64 % 90_000))
            }
            KeyState::Delayed => (Some(200), Some(400), Some(200)),
            KeyState::Failed => (Some(ago), None, Some(ago + 86_400)),
            KeyState::Idle => (Some(ago), None, Some(ago)),
            _ => (None, None, None),
        };
        let is_retried = state == KeyState::Retrying;
        let error = match state {
            KeyState::Retrying => Some(self.error(&key)),
            KeyState::Failed => Some(format!("spec.domain: \"shop\" is no domain name{}", self.taint)),
            _ => None,
        };
        view(json!({
            "key": key,
            "state": state,
            "since": since.map(|since| self.time(-since)),
            "until": until.map(|until| self.time(until)),
            "failures": if is_retried { failures } else { 0 },
            "lastError": error,
            "lastSuccess": success.map(|success| self.time(-success)),
        }))
    }

    /// The number of keys of the other controller.
    fn certificates(&self) -> usize {
        self.keys.min(12)
    }

    fn kind(&self) -> Value {
        json!({"group": "example.com", "version": "v1", "kind": "Website", "plural": "websites"})
    }
}

fn view<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it is a view")
}

impl ExplainSource for Invented {
    fn overview(&self) -> Overview {
        let passed = (self.env.clock.wall().as_millisecond() - self.started.as_millisecond()) as f64 / 1e3;
        let (counts, certificates) = (self.counts(), self.certificates() as u64);
        let retried: Vec<_> = (0..self.keys).filter(|at| self.state(*at) == KeyState::Retrying).collect();
        let errors: f64 = retried.iter().map(|at| passed / Self::backoff(*at).1 as f64).sum();
        let errors = errors as u64 + counts.failed as u64;
        // A load that rises and falls.
        let rate = self.keys as f64 * RATE;
        let done = (self.keys as f64 + passed * rate + (passed / 7.0).sin() * rate * 3.0) as u64 + errors;
        let (retries, initial) = (errors - counts.failed as u64, self.keys as u64);
        let changes = done - retries - initial;
        let kind = |group: &str, kind: &str, plural: &str| json!({"group": group, "version": "v1", "kind": kind, "plural": plural});
        let owns = |kind: Value| json!({"kind": kind, "relation": "owner"});
        let certificate = kind("example.com", "Certificate", "certificates");
        let informers = self.informers();
        view(json!({
            "at": self.time(0),
            "program": format!("website-operator{}", self.taint),
            "phase": "running",
            "leader": {"lease": "website-operator", "identity": format!("website-operator-7d9c-x2k4{}", self.taint),
                "leader": "website-operator-7d9c-x2k4", "isLeader": true},
            "controllers": [
                {"name": "certificates", "workers": 2, "kind": certificate,
                    "related": [owns(kind("", "Secret", "secrets")), {"kind": kind("", "ConfigMap", "configmaps"), "relation": "mapping"}],
                    "keys": {"idle": certificates}, "triggers": {"initial_list": certificates, "owner": 5 * certificates},
                    "reconciles": {"success": 6 * certificates}, "reconcileTime": {"count": 6 * certificates, "sumSeconds": 0.03 * certificates as f64}},
                {"name": format!("websites{}", self.taint), "workers": counts.running, "active": counts.running, "kind": self.kind(),
                    "related": [owns(kind("apps", "Deployment", "deployments")), owns(kind("", "Service", "services")), owns(certificate)],
                    "keys": counts, "oldestWaitingSeconds": 2.5, "longestRunningSeconds": 75.0,
                    "triggers": {"initial_list": initial, "retry": retries, "itself": changes / 4, "requeue": changes / 8,
                        "owner": changes - changes / 4 - changes / 8 - 1, "manual": 1, "resync": 0},
                    "reconciles": {"success": done - errors, "error": errors}, "terminalErrors": counts.failed,
                    "reconcileTime": {"count": done, "sumSeconds": done as f64 * 0.02 + (passed / 9.0).cos()}},
            ],
            "informers": {"total": informers.len(), "synced": informers.len(), "degraded": 1,
                "objects": informers.iter().map(|informer| informer.objects).sum::<usize>(),
                "bytes": informers.iter().map(|informer| informer.bytes).sum::<usize>()},
        }))
    }

    fn keys(&self, controller: &str, query: &KeysQuery) -> Result<KeysPage, ExplainError> {
        if !controller.starts_with("websites") {
            self.explain(controller, "")?;
        }
        let is_matched = |at: &usize| {
            query.state.is_none_or(|state| state == self.state(*at)) && self.name(*at).contains(&query.q)
        };
        let mut matched: Vec<_> = (0..self.keys).filter(is_matched).collect();
        let mut keys: Vec<_> = matched.drain(..).map(|at| (self.state(at), self.name(at), at)).collect();
        let matched = keys.len();
        match query.sort {
            KeySort::State => keys.sort(),
            KeySort::Failures => keys.sort_by_key(|(_, _, at)| std::cmp::Reverse(self.summary(*at).failures)),
            KeySort::Until => keys
                .sort_by_key(|(_, _, at)| self.summary(*at).until.map_or((1, String::new()), |at| (0, at))),
            _ => keys.sort_by(|left, right| left.1.cmp(&right.1)),
        }
        if query.is_reversed {
            keys.reverse();
        }
        let from: usize = query.from.as_ref().and_then(|from| from.parse().ok()).unwrap_or(0);
        let next = from + query.limit;
        let shown: Vec<_> =
            keys.iter().skip(from).take(query.limit).map(|(_, _, at)| self.summary(*at)).collect();
        Ok(view(json!({
            "at": self.time(0), "controller": controller, "kind": self.kind(), "counts": self.counts(),
            "matched": matched, "keys": shown, "continue": (next < matched).then(|| next.to_string()),
            "previous": (from > 0).then(|| from.saturating_sub(query.limit).to_string()),
        })))
    }

    fn explain(&self, kind: &str, key: &str) -> Result<Explanation, ExplainError> {
        if !kind.to_lowercase().starts_with("website") {
            return Err(ExplainError::NoKind {
                kind: kind.to_owned(),
                suggestions: vec!["Website".to_owned()],
            });
        }
        let ((failures, backoff), error) = (Self::backoff(EXPLAINED), self.error(key));
        let last = backoff / 3;
        let next = backoff - last;
        let text = format!(
            "The reconcile of Website {key} failed {last} s ago, for the {failures}th time in a row ({error}), and will be \
             retried in {next} s. Fix the cause of the error; a change to the object is reconciled at once."
        );
        let verdict = json!({"level": "problem", "causes": ["failing"], "text": text});
        let child = |group: &str, kind: &str, suffix: &str, version: &str| json!({"group": group, "kind": kind, "key": format!("{key}{suffix}"), "version": version});
        // Only what a controller of the program reconciles has a state and children.
        let mut certificate = child("example.com", "Certificate", "-tls", "4690");
        certificate["controller"] = json!("certificates");
        certificate["state"] = json!("idle");
        certificate["children"] = json!([child("", "Secret", "-tls", "4691")]);
        let children =
            json!([child("apps", "Deployment", "", "4687"), child("", "Service", "", "4712"), certificate]);
        // The last four failures, and what the first of all has written.
        let failed = [last + 82 + 41 + 20, last + 82 + 41, last + 82, last];
        let first = failed[0] + 21;
        let mut timeline = vec![
            json!({"at": self.time(-first), "kind": "write", "text": format!("wrote Service {key} in version 4712")}),
            json!({"at": self.time(-first), "kind": "event", "text": format!("Warning ServerBusy its Deployment is not up to date{}", self.taint)}),
        ];
        for (ago, took) in failed.into_iter().zip([29, 34, 30, 31]) {
            timeline.push(json!({"at": self.time(-ago), "kind": "trigger", "text": "a retry was due"}));
            let text = format!("failed after {took} ms: {error}");
            timeline.push(json!({"at": self.time(-ago), "kind": "error", "text": text}));
        }
        timeline.push(json!({"at": self.time(next), "kind": "due", "text": "a retry is due"}));
        Ok(view(json!({
            "at": self.time(0), "kind": self.kind(), "key": key, "verdict": verdict,
            "views": [{
                "controller": format!("websites{}", self.taint), "relation": "itself", "verdict": verdict,
                "state": "retrying", "since": self.time(-last), "until": self.time(next), "failures": failures,
                "lastError": {"at": self.time(-last), "message": error},
                "lastOutcome": {"result": "error", "at": self.time(-last), "seconds": 0.031},
                "lastSuccess": self.summary(EXPLAINED).last_success,
                "versions": {"cached": "4710", "reconciled": "4710", "succeeded": "4688"},
                "finalizers": [format!("example.com/site{}", self.taint)],
                "timeline": timeline,
                "children": children,
            }],
        })))
    }

    fn reconcile_now(&self, controller: &str, key: &str) -> Result<(), ExplainError> {
        if key.ends_with("gone") {
            return Err(ExplainError::NoObject { kind: "Website".to_owned(), key: key.to_owned() });
        }
        self.asked.lock().expect("nothing panics with it").push(format!("{controller} {key}"));
        Ok(())
    }

    fn informers(&self) -> Vec<InformerView> {
        let certificates = self.certificates();
        let forbidden = "cannot list configmaps: configmaps is forbidden: User \"system:serviceaccount:web:website-operator\" \
                         cannot list resource \"configmaps\" in API group \"\" at the cluster scope (403 Forbidden)";
        // Only the controller of certificates uses the ConfigMaps.
        view(json!([
            {"id": "certificates.example.com", "name": "certificates", "phase": "watching", "synced": true,
                "objects": certificates, "bytes": certificates * 2_000, "lastContact": self.time(-3), "lists": {"first": 1}, "watches": 41,
                "handlers": [{"name": "certificates"}, {"name": "websites"}]},
            {"id": "configmaps", "name": "configmaps", "phase": "waiting", "synced": true, "objects": 40, "bytes": 96_000,
                "lastContact": self.time(-190), "lists": {"first": 1, "verification": 1}, "watches": 40,
                "degraded": {"since": self.time(-185), "cause": "no_permission", "why": format!("{forbidden}{}", self.taint)},
                "handlers": [{"name": "certificates"}]},
            {"id": "deployments.apps", "name": "deployments", "phase": "watching", "synced": true, "objects": self.keys,
                "bytes": self.keys * 2_100, "queued": 1, "lastContact": self.time(0), "lists": {"first": 1}, "watches": 43,
                "handlers": [{"name": "websites", "pending": 2}]},
            {"id": "secrets", "name": "secrets", "phase": "watching", "synced": true, "objects": certificates, "bytes": certificates * 6_000,
                "lastContact": self.time(-8), "lists": {"first": 1}, "watches": 40, "handlers": [{"name": "certificates"}]},
            {"id": "services", "name": "services", "phase": "watching", "synced": true, "objects": self.keys, "bytes": self.keys * 900,
                "lastContact": self.time(-2), "lists": {"first": 1}, "watches": 42, "handlers": [{"name": "websites"}]},
            {"id": "websites.example.com", "name": "websites", "phase": "watching", "synced": true, "objects": self.keys,
                "bytes": self.keys * 1_800, "lastContact": self.time(-1), "lists": {"first": 1, "expired": 2}, "watches": 44,
                "handlers": [{"name": "websites"}]},
        ]))
    }
}
