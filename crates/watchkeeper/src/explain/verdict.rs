//! The verdict on an object: from facts to one or two sentences. Pure.
//!
//! Causes are collected from the most fundamental one on: the program, the caches, the key. The text has the first two.

use super::facts::{Facts, ObjectFacts, RelatedFacts, WatchFacts};
use super::key_view::{Level, Verdict};
use super::query::cut;
use super::view::ProgramPhase;
use super::words::{counted, human};
use crate::clock::Instant;
use crate::object::ObjectName;
use crate::reflector::{Cause as Trouble, Phase};
use crate::workqueue::{KeyRecord, KeyState, Reason, Relation, RunResult, Trigger};

/// A run that takes longer than this may hang.
const LONG_RUN: std::time::Duration = std::time::Duration::from_secs(60);
/// A key that waits for longer than this is in a queue that is too long.
const LONG_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// The number of bytes of an error in a verdict.
const ERROR: usize = 200;

/// One cause: a clause, and what to do about it. Neither has a full stop.
struct Cause {
    word: &'static str,
    level: Level,
    clause: String,
    advice: String,
}

impl Cause {
    fn new(word: &'static str, level: Level, clause: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { word, level, clause: clause.into(), advice: advice.into() }
    }
}

const NOT_STARTED: &str = "notStarted";
const NOTHING: &str = "nothing is to be done";

/// Returns what is the matter with a key.
pub(super) fn verdict(facts: &Facts<'_>) -> Verdict {
    let mut causes: Vec<Cause> = Vec::new();
    causes.extend(program(facts));
    let of_caches = caches(facts.key, &facts.watches, &facts.others, facts.now);
    let is_starting = causes.iter().any(|cause| cause.word == NOT_STARTED);
    causes.extend(of_caches.into_iter().filter(|cause| !is_starting || cause.word != "notSynced"));
    if facts.is_paused {
        causes.push(Cause::new(
            "paused",
            Level::Problem,
            format!("controller {} starts no reconciles while a cache is out of date", facts.controller),
            NOTHING,
        ));
    }
    let of_key = key(facts);
    // What is well or comes by itself is of no interest beside a problem.
    // What is not in a cache that is not right may exist all the same.
    let is_known = facts.record.is_some() || facts.object.is_some();
    if causes.is_empty() || (of_key.level == Level::Problem && is_known) {
        causes.push(of_key);
    }
    write(&causes)
}

/// Returns what is the matter with an object whose changes lead to reconciles of others.
pub(super) fn related_verdict(facts: &RelatedFacts<'_>) -> Verdict {
    let mut causes: Vec<Cause> = caches(facts.key, &facts.watches, &[], facts.now);
    let of_object = related(facts);
    if causes.is_empty() || (of_object.level == Level::Problem && facts.object.is_some()) {
        causes.push(of_object);
    }
    write(&causes)
}

/// Writes the first two causes as sentences.
fn write(causes: &[Cause]) -> Verdict {
    let text = match causes {
        [] => String::new(),
        [one] => format!("{}. {}.", capital(&one.clause), capital(&one.advice)),
        [first, second, ..] => {
            let also = format!("{}; also, {}.", capital(&first.clause), second.clause);
            if first.word == NOT_STARTED {
                // What keeps it from starting is to be mended.
                format!("{also} {}.", capital(&second.advice))
            } else if second.advice == NOTHING || first.advice == second.advice {
                format!("{also} {}.", capital(&first.advice))
            } else if first.advice == NOTHING {
                format!("{also} {}.", capital(&second.advice))
            } else {
                format!("{also} {}; then {}.", capital(&first.advice), second.advice)
            }
        }
    };
    Verdict {
        level: causes.iter().map(|cause| cause.level).max().unwrap_or_default(),
        causes: causes.iter().map(|cause| cause.word.to_owned()).collect(),
        text,
    }
}

fn capital(clause: &str) -> String {
    let mut signs = clause.chars();
    signs.next().map(|first| first.to_uppercase().chain(signs).collect()).unwrap_or_default()
}

/// Causes in the program: no key of it is reconciled.
fn program(facts: &Facts<'_>) -> Option<Cause> {
    let controller = facts.controller;
    match (facts.phase, facts.leader) {
        (ProgramPhase::Stopping, _) => Some(Cause::new(
            "shutDown",
            Level::Problem,
            format!("controller {controller} is shutting down and starts no reconciles"),
            "the next start of the program reconciles every object; start it if nothing else does",
        )),
        (ProgramPhase::Standby, Some(leader)) if leader.leader.is_empty() => Some(Cause::new(
            "noLeader",
            Level::Problem,
            "no replica leads yet, so none reconciles",
            format!("check the Lease {} and the permission of the replicas to update it", leader.lease),
        )),
        (ProgramPhase::Standby, Some(leader)) => Some(Cause::new(
            "notLeader",
            Level::Notice,
            format!("this replica does not lead: {} does, and reconciles", leader.leader),
            format!("ask {}", leader.leader),
        )),
        (ProgramPhase::Starting | ProgramPhase::Standby, _) => {
            let all = facts.watches.iter().chain(&facts.others);
            let unsynced: Vec<_> =
                all.filter(|watch| !watch.has_synced).map(|watch| watch.name.as_str()).collect();
            let why = match &unsynced[..] {
                [] => String::new(),
                names => format!(", as it waits for the caches of {}", names.join(", ")),
            };
            Some(Cause::new(
                NOT_STARTED,
                Level::Problem,
                format!("controller {controller} has not started{why}"),
                "see that the program runs, and what it logs",
            ))
        }
        (ProgramPhase::Running, _) => None,
    }
}

/// Causes in the caches: the first of the watches that cover the key, else that of another kind.
fn caches(key: &ObjectName, watches: &[WatchFacts], others: &[WatchFacts], now: Instant) -> Vec<Cause> {
    let covering: Vec<_> = watches.iter().filter(|watch| watch.covers(key)).collect();
    if covering.is_empty() {
        return not_covered(key, watches).into_iter().collect();
    }
    let troubles = covering.into_iter().chain(others).filter_map(|watch| trouble(watch, now));
    troubles.take(1).collect()
}

fn not_covered(key: &ObjectName, watches: &[WatchFacts]) -> Option<Cause> {
    let namespaces: Vec<_> = watches.iter().filter_map(|watch| watch.namespace.as_deref()).collect();
    let first = watches.first()?;
    let (clause, advice) = match key.namespace() {
        Some(namespace) => (
            format!("{} are watched only in {}, not in {namespace}", resource(first), namespaces.join(", ")),
            format!("add {namespace} to the namespaces of the manager or of the watch, or move the object"),
        ),
        None => (
            format!("{} has no namespace, and {} have one", key.name(), resource(first)),
            "ask again with NAMESPACE/NAME".to_owned(),
        ),
    };
    Some(Cause::new("wrongNamespace", Level::Problem, clause, advice))
}

fn resource(watch: &WatchFacts) -> &str {
    &watch.resource
}

fn trouble(watch: &WatchFacts, now: Instant) -> Option<Cause> {
    let WatchFacts { name, resource, kind, .. } = watch;
    if watch.phase == Phase::Stopped {
        return Some(Cause::new(
            "watchStopped",
            Level::Problem,
            format!("the informer of {name} has stopped, so its cache does not change any more"),
            "start the program again",
        ));
    }
    let Some((since, cause, why)) = &watch.degraded else {
        return (!watch.has_synced).then(|| {
            Cause::new(
                "notSynced",
                Level::Pending,
                format!("the cache of {name} has not synced yet"),
                "wait for the initial list",
            )
        });
    };
    let lasts = human(now.saturating_duration_since(*since));
    let why = cut(why, ERROR);
    Some(match cause {
        Trouble::NotServed => Cause::new(
            "notServed",
            Level::Problem,
            format!("the API server has not served {resource} for {lasts}"),
            format!("install the CRD of {kind}; the informer finds it by itself"),
        ),
        Trouble::NoPermission => Cause::new(
            "noPermission",
            Level::Problem,
            format!("the program has not been permitted to list and watch {resource} for {lasts} ({why})"),
            "grant get, list and watch to its service account",
        ),
        Trouble::Polled => Cause::new(
            "polled",
            Level::Notice,
            format!("the program may list {resource} but not watch them, so its cache is late"),
            "grant watch to its service account",
        ),
        Trouble::Unreachable => Cause::new(
            "watchDown",
            Level::Problem,
            format!("the API server has not been reached for {name} for {lasts} ({why})"),
            "check the API server and the way to it; the cache catches up by itself",
        ),
        Trouble::Failing => Cause::new(
            "watchFailing",
            Level::Problem,
            format!("requests for {name} have failed for {lasts} ({why})"),
            "fix what the error says; the cache catches up by itself",
        ),
        #[allow(unreachable_patterns, reason = "causes may be added")]
        _ => Cause::new(
            "degraded",
            Level::Problem,
            format!("the cache of {name} has not been up to date for {lasts} ({why})"),
            "fix what the error says",
        ),
    })
}

/// The cause in the key itself.
fn key(facts: &Facts<'_>) -> Cause {
    match (&facts.record, &facts.object) {
        (None, None) => absent(facts),
        (None, Some(object)) => Cause::new(
            "notRemembered",
            Level::Notice,
            format!(
                "{} is in the cache with version {}, and controller {} remembers no run of it",
                name(facts),
                object.version,
                facts.controller
            ),
            "nothing is wrong if its last run was long ago; change an annotation to have it reconciled",
        ),
        (Some(record), object) => recorded(facts, record, object.as_ref()),
    }
}

fn name(facts: &Facts<'_>) -> String {
    format!("{} {}", facts.kind.kind, facts.key)
}

/// Returns the command that shows an object.
fn kubectl(plural: &str, key: &ObjectName, more: &str) -> String {
    let namespace = key.namespace().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!("`kubectl get {plural} {}{namespace}{more}`", key.name())
}

fn absent(facts: &Facts<'_>) -> Cause {
    let plural = &facts.kind.plural;
    let mut covering = facts.watches.iter().filter(|watch| watch.covers(facts.key));
    let selected = covering.find(|watch| !watch.labels.is_empty() || !watch.fields.is_empty());
    match selected {
        Some(watch) => {
            let selector = if watch.labels.is_empty() { &watch.fields } else { &watch.labels };
            Cause::new(
                "notSelected",
                Level::Problem,
                format!(
                    "{} is not in the cache, which has only objects with {selector}: its labels or fields differ, or \
                     it does not exist",
                    name(facts)
                ),
                format!("compare them with {}", kubectl(plural, facts.key, " --show-labels")),
            )
        }
        None => Cause::new(
            "notFound",
            Level::Problem,
            format!("{} is not in the cache: it does not exist, or was deleted long ago", name(facts)),
            format!("check its name and namespace with {}", kubectl(plural, facts.key, "")),
        ),
    }
}

/// The last error in parentheses.
fn error_of(record: &KeyRecord<ObjectName>) -> String {
    record.last_error.as_ref().map(|error| cut(&error.message, ERROR)).unwrap_or_default()
}

fn ago(at: Option<Instant>, now: Instant) -> String {
    at.map(|at| human(now.saturating_duration_since(at))).unwrap_or_default()
}

fn recorded(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    match record.state {
        KeyState::Running => running(facts, record),
        KeyState::Waiting => waiting(facts, record),
        KeyState::Parked => parked(facts, record),
        KeyState::Retrying => failing(facts, record, object),
        KeyState::Delayed if has_failed(record) => failing(facts, record, object),
        KeyState::Delayed => {
            let due = record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)));
            Cause::new(
                "requeued",
                Level::Ok,
                format!(
                    "{} was reconciled {} ago, and asked to run again in {}",
                    name(facts),
                    ago(record.last_success, facts.now),
                    due.unwrap_or_default()
                ),
                NOTHING,
            )
        }
        KeyState::Failed => terminal(facts, record),
        _ => idle(facts, record, object),
    }
}

fn has_failed(record: &KeyRecord<ObjectName>) -> bool {
    record.last_run.is_some_and(|run| !matches!(run.result, RunResult::Success | RunResult::RequeueAfter))
}

fn one_of(workers: usize) -> String {
    if workers == 1 { "the only worker".to_owned() } else { format!("one of {workers} workers") }
}

fn running(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let lasts = record.worked_on_since.map(|since| facts.now.saturating_duration_since(since));
    let lasts = lasts.unwrap_or_default();
    let again = if record.waiting_since.is_some() { ", and runs once more afterwards" } else { "" };
    if lasts < LONG_RUN {
        let clause = format!("{} is being reconciled, for {} now{again}", name(facts), human(lasts));
        return Cause::new("running", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "hangs",
        Level::Problem,
        format!(
            "the reconcile of {} has been running for {} and holds {}",
            name(facts),
            human(lasts),
            one_of(facts.workers)
        ),
        "find out what it waits for, and set Controller::timeout so that such runs end",
    )
}

fn waiting(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let waited = record.waiting_since.map(|since| facts.now.saturating_duration_since(since));
    let (waited, behind) = (waited.unwrap_or_default(), record.behind.unwrap_or(0));
    let clause = format!(
        "{} has waited {} for {}, behind {}",
        name(facts),
        human(waited),
        one_of(facts.workers),
        counted(behind, "other key")
    );
    if waited < LONG_WAIT {
        return Cause::new("waiting", Level::Pending, clause, NOTHING);
    }
    Cause::new(
        "queueLong",
        Level::Problem,
        clause,
        "give the controller more workers, or find out why its runs take so long",
    )
}

fn parked(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let left = record.parked_until.map(|until| human(until.saturating_duration_since(facts.now)));
    let what = match &facts.writes[..] {
        [] => "its own writes".to_owned(),
        [write, rest @ ..] => {
            let verb = if write.deleted { "the delete of " } else { "" };
            let kind = if write.kind.is_empty() { String::new() } else { format!("{} ", write.kind) };
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let version = if write.version.is_unset() {
                String::new()
            } else {
                format!(" in version {}", write.version)
            };
            let cached = if write.cached.is_unset() {
                String::new()
            } else {
                format!(", which the cache at version {} has not seen", write.cached)
            };
            format!("its own write: {verb}{kind}{}{version}{more}{cached}", write.name)
        }
    };
    Cause::new(
        "ownWrites",
        Level::Pending,
        format!("{} waits for {what}", name(facts)),
        format!("it runs when the cache has, and after {} all the same", left.unwrap_or_default()),
    )
}

fn failing(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    if let Some(why) = object.and_then(|object| object.undecodable.as_ref()) {
        return Cause::new(
            "undecodable",
            Level::Problem,
            format!("{} cannot be decoded into its type ({})", name(facts), cut(why, ERROR)),
            "correct the object, or the type in the program; it is retried until then",
        );
    }
    let due = record.delayed_until.map(|due| human(due.saturating_duration_since(facts.now)));
    let last = record.last_error.as_ref();
    let since = ago(last.map(|error| error.at), facts.now);
    let result = record.last_run.map(|run| run.result);
    let verb = match result {
        Some(RunResult::Panic) => "panicked",
        Some(RunResult::Timeout) => "did not end in time",
        _ => "failed",
    };
    let row = match record.retries {
        0 | 1 => String::new(),
        times => format!(", the failure number {times} in a row"),
    };
    let failed = format!(
        "{verb} {since} ago{row} ({}), and is retried in {}",
        error_of(record),
        due.unwrap_or_default()
    );
    if object.is_some_and(|object| object.deleting && holds(facts, object)) {
        let finalizer = facts.finalizer.unwrap_or_default();
        return Cause::new(
            "cleanupFails",
            Level::Problem,
            format!("{} is being deleted, and the cleanup for finalizer {finalizer} {failed}", name(facts)),
            "fix the cause of the error; the object is gone when the cleanup succeeds",
        );
    }
    let backoff = last.zip(record.delayed_until).map(|(error, due)| due.saturating_duration_since(error.at));
    if let (Some(own), Some(backoff)) = (record.own_backoff, backoff)
        && backoff > own * 2
    {
        return Cause::new(
            "rateLimited",
            Level::Problem,
            format!(
                "the reconcile of {} {failed} instead of after {}, as retries of all keys share one rate limit",
                name(facts),
                human(own)
            ),
            "fix the error that most of the failing keys have",
        );
    }
    let (word, advice) = match result {
        Some(RunResult::Panic) => ("panics", "fix the bug that the message names"),
        Some(RunResult::Timeout) => ("timesOut", "find out what it waits for, or raise Controller::timeout"),
        _ => ("failing", "fix the cause of the error; a change of the object is reconciled at once"),
    };
    Cause::new(word, Level::Problem, format!("the reconcile of {} {failed}", name(facts)), advice)
}

fn holds(facts: &Facts<'_>, object: &ObjectFacts) -> bool {
    facts.finalizer.is_some_and(|own| object.finalizers.iter().any(|finalizer| finalizer == own))
}

fn terminal(facts: &Facts<'_>, record: &KeyRecord<ObjectName>) -> Cause {
    let since = ago(record.last_error.as_ref().map(|error| error.at), facts.now);
    Cause::new(
        "terminal",
        Level::Problem,
        format!(
            "the last reconcile of {} failed {since} ago with an error that is not retried ({})",
            name(facts),
            error_of(record)
        ),
        "correct what the error names; the next change of the object is reconciled",
    )
}

fn idle(facts: &Facts<'_>, record: &KeyRecord<ObjectName>, object: Option<&ObjectFacts>) -> Cause {
    let ended = record.last_run.map(|run| run.ended).or(record.last_success);
    let since = ago(ended, facts.now);
    let Some(object) = object else {
        let deleted = record.triggers.iter().find(|record| {
            matches!(
                record.trigger,
                Trigger::Object { relation: Relation::Itself, reason: Reason::Deleted, .. }
            )
        });
        let when = match deleted {
            Some(trigger) => format!("was deleted {} ago", ago(Some(trigger.at), facts.now)),
            None => "is not in the cache any more".to_owned(),
        };
        let clause = format!("{} {when}, and the run for that ended {since} ago", name(facts));
        return Cause::new("deleted", Level::Ok, clause, NOTHING);
    };
    if object.deleting && !holds(facts, object) && !object.finalizers.is_empty() {
        return Cause::new(
            "heldByOthers",
            Level::Notice,
            format!(
                "{} is being deleted, and held by {}, which controller {} does not own",
                name(facts),
                object.finalizers.join(", "),
                facts.controller
            ),
            "see why the owner of the finalizer does not remove it",
        );
    }
    let saw = record.last_run.and_then(|run| run.saw);
    let cached = object.version.as_number();
    match (saw, cached) {
        (Some(saw), Some(cached)) if cached > saw.get() && facts.has_predicates => Cause::new(
            "filtered",
            Level::Notice,
            format!(
                "{} has changed since its last run {since} ago, which saw version {saw}, and a predicate did not pass \
                 the change to version {cached}",
                name(facts)
            ),
            "nothing is wrong if that was meant; else loosen Controller::when",
        ),
        (Some(saw), Some(cached)) if cached > saw.get() => Cause::new(
            "changing",
            Level::Pending,
            format!(
                "{} has just changed to version {cached}, and its last run saw version {saw}",
                name(facts)
            ),
            NOTHING,
        ),
        (Some(saw), _) => Cause::new(
            "reconciled",
            Level::Ok,
            format!(
                "{} is reconciled: its last run ended {since} ago and saw version {saw}, the cached one",
                name(facts)
            ),
            NOTHING,
        ),
        _ => Cause::new(
            "reconciled",
            Level::Ok,
            format!("{} is reconciled: its last run ended {since} ago", name(facts)),
            NOTHING,
        ),
    }
}

/// The cause in an object that is no key of the controller.
fn related(facts: &RelatedFacts<'_>) -> Cause {
    let RelatedFacts { controller, main, kind, key, .. } = facts;
    let name = format!("{} {key}", kind.kind);
    match (&facts.object, &facts.maps_to[..]) {
        (None, _) => Cause::new(
            "notFound",
            Level::Problem,
            format!("{name} is not in the cache: it does not exist, or is not selected"),
            format!(
                "check its name, namespace and labels with {}",
                kubectl(&kind.plural, key, " --show-labels")
            ),
        ),
        (Some(_), []) if facts.is_owned => Cause::new(
            "noOwner",
            Level::Problem,
            format!(
                "{name} names no {} as its controller, so its changes reconcile nothing in {controller}",
                main.kind
            ),
            "set its controller owner reference, as Context::apply does",
        ),
        (Some(_), []) => Cause::new(
            "noMapping",
            Level::Problem,
            format!(
                "the mapping of controller {controller} returns no {} for {name}, so its changes reconcile nothing",
                main.kind
            ),
            "check the fields that the mapping reads, and the index that it uses",
        ),
        (Some(_), keys) => {
            let mut shown: Vec<_> = keys.iter().take(3).map(ToString::to_string).collect();
            if keys.len() > shown.len() {
                shown.push(format!("{} more", keys.len() - shown.len()));
            }
            Cause::new(
                "related",
                Level::Ok,
                format!(
                    "a change of {name} reconciles {} {} in controller {controller}",
                    main.kind,
                    shown.join(", ")
                ),
                format!("ask for {} {}", main.kind, shown.first().map_or("", String::as_str)),
            )
        }
    }
}
