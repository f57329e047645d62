//! A program that exists only in its views: a controller with any number of keys in all states, and one that is idle.

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
}

/// One key in this many is not idle, if there are many.
const RARE: usize = 400;
/// The most workers that it has. All of them are busy, as keys wait for one.
const WORKERS: usize = 4;

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
        Self { keys, taint: "", env: env.clone(), asked: Arc::default() }
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

    fn error(&self) -> String {
        format!(
            "cannot apply Deployment site: the server is busy, retry later (429 TooManyRequests){}",
            self.taint
        )
    }

    fn summary(&self, at: usize) -> KeySummary {
        let state = self.state(at);
        let has_failed = matches!(state, KeyState::Retrying | KeyState::Failed);
        let is_due = matches!(state, KeyState::Retrying | KeyState::Delayed | KeyState::Parked);
        // The backoffs of a limiter that begins with 5 ms, in seconds.
        let step = (at / RARE + at) % 4;
        let backoff = [20, 41, 82, 164][step];
        let failures = if has_failed { 13 + step } else { 0 };
        let until = is_due.then(|| self.time(backoff - backoff / 3));
        let since = if is_due { backoff / 3 } else { 7 + at as i64 % 4_000 };
        view(json!({
            "key": self.name(at),
            "state": state,
            "since": self.time(-since),
            "until": until,
            "failures": failures,
            "lastError": has_failed.then(|| self.error()),
            "lastSuccess": (!at.is_multiple_of(3)).then(|| self.time(-60 - at as i64 % 90_000)),
        }))
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
        let passed = self.env.clock.wall().as_millisecond() as f64 / 1e3;
        let counts = self.counts();
        // A load that rises and falls.
        let done = passed * 40.0 + (passed / 7.0).sin() * 120.0;
        view(json!({
            "at": self.time(0),
            "program": format!("website-operator{}", self.taint),
            "phase": "running",
            "leader": {"lease": "website-operator", "identity": format!("website-operator-7d9c-x2k4{}", self.taint),
                "leader": "website-operator-7d9c-x2k4", "isLeader": true},
            "controllers": [
                {"name": "certificates", "workers": 2, "kind": {"group": "cert-manager.io", "version": "v1", "kind": "Certificate", "plural": "certificates"},
                    "keys": {"idle": 12}, "reconciles": {"success": 900}, "reconcileTime": {"count": 900, "sumSeconds": 4.5}},
                {"name": format!("websites{}", self.taint), "workers": counts.running, "active": counts.running, "kind": self.kind(),
                    "related": [{"kind": {"group": "apps", "version": "v1", "kind": "Deployment", "plural": "deployments"}, "relation": "owner"}],
                    "keys": counts, "oldestWaitingSeconds": 2.5, "longestRunningSeconds": 75.0,
                    "triggers": {"itself": 12_408, "owner": 31_077, "initial_list": self.keys, "retry": 254, "requeue": 1_990, "manual": 1, "resync": 0},
                    "reconciles": {"success": done as u64, "error": (done / 50.0) as u64},
                    "reconcileTime": {"count": done as u64, "sumSeconds": done * 0.02 + (passed / 9.0).cos()}},
            ],
            "informers": {"total": 3, "synced": 3, "degraded": 1, "objects": self.keys + 52, "bytes": self.keys * 1_800 + 120_000},
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
        let text = format!(
            "The reconcile of Website {key} failed 44 s ago, for the 15th time in a row ({}), and will be retried in 38 s. Fix \
             the cause of the error; a change to the object is reconciled at once.",
            self.error()
        );
        let verdict = json!({"level": "problem", "causes": ["failing"], "text": text});
        let child = |kind: &str, name: &str, state: &str| json!({"kind": kind, "key": format!("bakery/{name}{}", self.taint), "version": "4711", "state": state});
        let (mut deployment, mut replicas) =
            (child("Deployment", "site", "idle"), child("ReplicaSet", "site-5f7c", "idle"));
        replicas["children"] =
            json!([child("Pod", "site-5f7c-8xkqz", "running"), child("Pod", "site-5f7c-jh2lm", "idle")]);
        deployment["children"] = json!([replicas]);
        let timeline = json!([
            {"at": self.time(-4_000), "kind": "run", "text": "reconciled in 12 ms, at version 4688"},
            {"at": self.time(-126), "kind": "trigger", "text": format!("the object changed (version 4710){}", self.taint)},
            {"at": self.time(-126), "kind": "write", "text": "wrote Service bakery/site in version 4712"},
            {"at": self.time(-105), "kind": "error", "text": format!("failed after 29 ms: {}", self.error())},
            {"at": self.time(-105), "kind": "event", "text": format!("Warning ReconcileFailed {}", self.error())},
            {"at": self.time(-85), "kind": "trigger", "text": "a retry was due"},
            {"at": self.time(-85), "kind": "error", "text": format!("failed after 34 ms: {}", self.error())},
            {"at": self.time(-44), "kind": "trigger", "text": "a retry was due"},
            {"at": self.time(-44), "kind": "error", "text": format!("failed after 31 ms: {}", self.error())},
            {"at": self.time(38), "kind": "due", "text": "a retry is due"},
        ]);
        Ok(view(json!({
            "at": self.time(0), "kind": self.kind(), "key": key, "verdict": verdict,
            "views": [{
                "controller": format!("websites{}", self.taint), "relation": "itself", "verdict": verdict,
                "state": "retrying", "since": self.time(-44), "until": self.time(38), "failures": 15,
                "lastError": {"at": self.time(-44), "message": self.error()},
                "lastOutcome": {"result": "error", "at": self.time(-44), "seconds": 0.031},
                "lastSuccess": self.time(-4_000),
                "versions": {"cached": "4710", "reconciled": "4710", "succeeded": "4688"},
                "finalizers": [format!("example.com/site{}", self.taint)],
                "timeline": timeline,
                "children": [deployment, child("Service", "site", "idle")],
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
        view(json!([
            {"id": "websites.example.com", "name": "websites", "phase": "watching", "synced": true, "objects": self.keys,
                "bytes": self.keys * 1_800, "lastContact": self.time(-1), "lists": {"first": 1, "expired": 2}, "watches": 4},
            {"id": "deployments.apps", "name": "deployments", "phase": "waiting", "synced": true, "objects": 40, "bytes": 96_000,
                "queued": 3, "lastContact": self.time(-190), "lists": {"first": 1, "verification": 1},
                "degraded": {"since": self.time(-185), "cause": "no_permission",
                    "why": format!("cannot watch deployments: it is forbidden (403 Forbidden){}", self.taint)},
                "handlers": [{"name": "websites", "pending": 12}]},
            {"id": "certificates.cert-manager.io", "name": "certificates", "phase": "watching", "synced": true, "objects": 12,
                "bytes": 24_000, "lastContact": self.time(-3), "lists": {"first": 1}, "watches": 1},
        ]))
    }
}
