//! What a CronJob does next: a pure function of it, its Jobs and the time.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use watchkeeper::record::EventType;
use watchkeeper::record::EventType::{Normal, Warning};

use super::schedule::Schedule;
use crate::job::end_of;
use crate::pods::since_then;

/// The annotation of a Job with the time for which it was started.
pub(super) const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The number of missed times from which on a user is warned.
const MANY: i64 = 100;
/// A wake-up is this late, so that it is not early.
const MARGIN: Duration = Duration::from_millis(100);

/// What a CronJob does.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Names of Jobs that go, with the most recent history kept.
    pub(super) delete: Vec<String>,
    /// A Job to create, and the time for which it is.
    pub(super) start: Option<(Job, Timestamp)>,
    pub(super) status: CronJobStatus,
    pub(super) events: Vec<(EventType, &'static str, String)>,
    /// When to look again, though nothing changes.
    pub(super) wake: Option<Duration>,
}

impl Plan {
    fn tell(&mut self, of: EventType, reason: &'static str, message: String) {
        self.events.push((of, reason, message));
    }
}

/// Decides what a CronJob does; `jobs` are those that it controls.
pub(super) fn plan(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Plan {
    let mut plan = Plan { status: cron.status.clone().unwrap_or_default(), ..Plan::default() };
    // It is not optional in all versions of the API.
    let Some(spec) = Option::<&CronJobSpec>::from(&cron.spec) else { return plan };
    review(&mut plan, jobs);
    plan.delete = surplus(spec, jobs);
    if cron.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let zone = match spec.time_zone.as_deref().map_or(Ok(TimeZone::UTC), TimeZone::get) {
        Ok(zone) => zone,
        Err(error) => {
            let name = spec.time_zone.as_deref().unwrap_or_default();
            plan.tell(Warning, "UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}"));
            return plan;
        }
    };
    if spec.suspend == Some(true) {
        return plan;
    }
    match Schedule::parse(&spec.schedule) {
        Ok(schedule) => follow(&mut plan, cron, spec, jobs, &schedule, &zone, now),
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            plan.tell(Warning, "UnparseableSchedule", message);
        }
    }
    plan
}

/// Brings the list of active Jobs, and the time of the last success, in line with the Jobs that there are.
fn review(plan: &mut Plan, jobs: &[Arc<Job>]) {
    let listed = plan.status.active.take().unwrap_or_default();
    let mut active = Vec::new();
    for known in listed {
        let name = known.name.clone().unwrap_or_default();
        match jobs.iter().find(|job| job.metadata.uid == known.uid) {
            None => plan.tell(Normal, "MissingJob", format!("Active job went missing: {name}")),
            Some(job) => match end_of(job) {
                None => active.push(known),
                Some(end) => {
                    let message = format!("Saw completed job: {name}, condition: {}", end.type_);
                    plan.tell(Normal, "SawCompletedJob", message);
                }
            },
        }
    }
    for job in jobs {
        let is_listed = active.iter().any(|known: &ObjectReference| known.uid == job.metadata.uid);
        if end_of(job).is_none() && !is_listed {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let is_ours = job.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SCHEDULED));
            if is_ours {
                active.push(reference(job));
            } else {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.tell(Warning, "UnexpectedJob", message);
            }
        }
        if end_of(job).is_some_and(|end| end.type_ == "Complete") {
            let done = job.status.as_ref().and_then(|status| status.completion_time.clone());
            plan.status.last_successful_time = plan.status.last_successful_time.take().max(done);
        }
    }
    plan.status.active = (!active.is_empty()).then_some(active);
}

/// A reference to a Job for the list of active ones.
pub(super) fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

/// The names of ended Jobs beyond the limits of the history, the oldest first.
fn surplus(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<String> {
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut names = Vec::new();
    for (of, limit) in limits {
        let Some(limit) = limit else { continue };
        let is_of = |job: &&Arc<Job>| {
            job.metadata.deletion_timestamp.is_none() && end_of(job).is_some_and(|end| end.type_ == of)
        };
        let mut ended: Vec<_> = jobs.iter().filter(is_of).collect();
        ended.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.clone());
            (start.is_none(), start, job.metadata.name.clone())
        });
        let more = ended.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        names.extend(ended.iter().take(more).filter_map(|job| job.metadata.name.clone()));
    }
    names
}

/// Starts a Job if it is time.
fn follow(
    plan: &mut Plan,
    cron: &CronJob,
    spec: &CronJobSpec,
    jobs: &[Arc<Job>],
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) {
    let local = |time: Timestamp| time.to_zoned(zone.clone());
    plan.wake = schedule.next(&local(now)).map(|next| since_then(now, next.timestamp()) + MARGIN);
    let since = earliest(cron, spec, now);
    let Some((time, missed)) = latest(schedule, &local(since), now) else { return };
    if missed > MANY {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.tell(Warning, "TooManyMissedTimes", format!("{message}: {missed}"));
    }
    let deadline = spec
        .starting_deadline_seconds
        .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
    if deadline.is_some_and(|deadline| since_then(time.timestamp(), now) > deadline) {
        let message =
            format!("Missed scheduled time to start a job: {}", time.strftime("%a, %d %b %Y %H:%M:%S %z"));
        return plan.tell(Warning, "MissSchedule", message);
    }
    let job = job_of(cron, spec, &time);
    if jobs.iter().any(|known| known.metadata.name == job.metadata.name) {
        // It was started, and the status was not written.
        plan.status.last_schedule_time = Some(Time(time.timestamp()));
        return;
    }
    let active = plan.status.active.clone().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.tell(Normal, "JobAlreadyActive", message.to_owned());
        }
        Some("Replace") => {
            plan.delete.extend(active.iter().filter_map(|known| known.name.clone()));
            plan.status.active = None;
        }
        _ => {}
    }
    plan.start = Some((job, time.timestamp()));
}

/// The time from which on Jobs may have been missed.
fn earliest(cron: &CronJob, spec: &CronJobSpec, now: Timestamp) -> Timestamp {
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let since = last.or(cron.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    let deadline = spec.starting_deadline_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let oldest = deadline.and_then(|seconds| now.checked_sub(Duration::from_secs(seconds)).ok());
    oldest.map_or(since, |oldest| since.max(oldest))
}

/// The last time of a schedule after `since` and not after `now`, and about how many there were.
fn latest(schedule: &Schedule, since: &Zoned, now: Timestamp) -> Option<(Zoned, i64)> {
    let is_past = |time: &Zoned| time.timestamp() <= now;
    let first = schedule.next(since).filter(is_past)?;
    let Some(second) = schedule.next(&first).filter(is_past) else { return Some((first, 1)) };
    let interval = since_then(first.timestamp(), second.timestamp()).max(Duration::from_secs(1));
    let elapsed = since_then(first.timestamp(), now);
    let missed = i64::try_from(elapsed.as_secs() / interval.as_secs().max(1) + 1).unwrap_or(i64::MAX);
    // There may be very many: look at the end, in windows that grow until there is a time in one.
    let mut window = interval;
    while window < elapsed {
        let from = now.checked_sub(window).ok()?.to_zoned(since.time_zone().clone());
        let mut last = None;
        let mut next = schedule.next(&from);
        while let Some(time) = next.filter(is_past) {
            next = schedule.next(&time);
            last = Some(time);
        }
        match last {
            Some(last) => return Some((last, missed)),
            None => window = window.saturating_mul(2),
        }
    }
    let times = std::iter::successors(Some(first), |time| schedule.next(time).filter(is_past));
    times.last().map(|last| (last, missed))
}

/// The Job for a time of the schedule. Its name says which, so that there is only one.
fn job_of(cron: &CronJob, spec: &CronJobSpec, time: &Zoned) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), rfc3339(time));
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", time.timestamp().as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

fn rfc3339(time: &Zoned) -> String {
    if time.offset().is_zero() {
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron(spec: Value, status: Value) -> CronJob {
        let mut whole = json!({"schedule": "*/10 * * * *", "jobTemplate": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"template": {}}}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata =
            json!({"name": "tick", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
    }

    fn job(name: &str, end: Option<&str>) -> Arc<Job> {
        let conditions = end.map(|end| json!([{"type": end, "status": "True"}]));
        let metadata = json!({"name": name, "uid": name, "annotations": {SCHEDULED: "x"}});
        Arc::new(
            serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions,
                "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z"}}))
            .unwrap(),
        )
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    fn started(plan: &Plan) -> Option<String> {
        plan.start.as_ref().map(|(_, time)| time.to_string())
    }

    fn reasons(plan: &Plan) -> Vec<&'static str> {
        plan.events.iter().map(|event| event.1).collect()
    }

    #[test]
    fn a_job_is_started_when_it_is_time_and_named_after_it() {
        let early = plan(&cron(json!({}), json!({})), &[], at("00:09:59"));
        assert_eq!((started(&early), early.wake), (None, Some(Duration::from_millis(1100))));
        let due = plan(&cron(json!({}), json!({})), &[], at("00:10:00"));
        let (job, time) = due.start.unwrap();
        assert_eq!(time, at("00:10:00"));
        assert_eq!(job.metadata.name.unwrap(), format!("tick-{}", time.as_second() / 60));
        assert_eq!(job.metadata.annotations.unwrap()[SCHEDULED], "2026-01-01T00:10:00Z");
        let done = cron(json!({}), json!({"lastScheduleTime": "2026-01-01T00:10:00Z"}));
        assert_eq!(started(&plan(&done, &[], at("00:10:30"))), None);
    }

    #[test]
    fn only_the_last_of_the_missed_times_is_made_up_for_and_within_the_deadline() {
        let late = plan(&cron(json!({}), json!({})), &[], at("00:59:00"));
        assert_eq!(started(&late).unwrap(), "2026-01-01T00:50:00Z");
        let strict = plan(&cron(json!({"startingDeadlineSeconds": 60}), json!({})), &[], at("00:59:00"));
        assert_eq!((started(&strict), reasons(&strict)), (None, vec![]));
        let minutely = cron(json!({"schedule": "* * * * *"}), json!({}));
        let many = plan(&minutely, &[], at("05:00:30"));
        assert_eq!(started(&many).unwrap(), "2026-01-01T05:00:00Z");
        assert_eq!(reasons(&many), ["TooManyMissedTimes"]);
        // The last time was on a Friday, and it is Sunday.
        let weekdays = cron(json!({"schedule": "0 6-16/4 * * 1-5"}), json!({}));
        let sunday = plan(&weekdays, &[], "2026-01-11T12:00:00Z".parse().unwrap());
        assert_eq!(started(&sunday).unwrap(), "2026-01-09T14:00:00Z");
    }

    #[test]
    fn concurrency_is_allowed_forbidden_or_replaces() {
        let runs = [job("old", None)];
        let policy = |policy: &str| {
            plan(&cron(json!({"concurrencyPolicy": policy}), json!({})), &runs, at("00:10:00"))
        };
        let allowed = policy("Allow");
        assert!(allowed.start.is_some() && allowed.delete.is_empty());
        assert_eq!(allowed.status.active.as_ref().unwrap().len(), 1);
        let forbidden = policy("Forbid");
        assert_eq!((started(&forbidden), reasons(&forbidden)), (None, vec!["JobAlreadyActive"]));
        let replaced = policy("Replace");
        assert!(replaced.start.is_some());
        assert_eq!((replaced.delete, replaced.status.active), (vec!["old".to_owned()], None));
    }

    #[test]
    fn a_job_that_was_started_before_a_crash_is_not_started_again() {
        let name = format!("tick-{}", at("00:10:00").as_second() / 60);
        let plan = plan(&cron(json!({}), json!({})), &[job(&name, None)], at("00:10:00"));
        assert_eq!(started(&plan), None);
        assert_eq!(plan.status.last_schedule_time.unwrap().0, at("00:10:00"));
        assert_eq!(plan.status.active.unwrap()[0].name.as_deref(), Some(name.as_str()));
    }

    #[test]
    fn the_history_is_limited_and_ended_jobs_leave_the_list() {
        let limits = json!({"suspend": true, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
        let active = json!([{"name": "b", "uid": "b"}, {"name": "gone", "uid": "gone"}]);
        let jobs = [job("a", Some("Complete")), job("b", Some("Complete")), job("c", Some("Failed"))];
        let plan = plan(&cron(limits, json!({"active": active})), &jobs, at("09:00:00"));
        assert_eq!(plan.delete, ["a", "c"]);
        assert_eq!(reasons(&plan), ["SawCompletedJob", "MissingJob"]);
        assert_eq!((started(&plan), plan.status.active), (None, None));
        assert_eq!(plan.status.last_successful_time.unwrap().0, at("00:00:05"));
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        let broken = plan(&cron(json!({"schedule": "often"}), json!({})), &[], at("09:00:00"));
        assert_eq!(reasons(&broken), ["UnparseableSchedule"]);
        let nowhere = plan(&cron(json!({"timeZone": "Mars/Crater"}), json!({})), &[], at("09:00:00"));
        assert_eq!(reasons(&nowhere), ["UnknownTimeZone"]);
        let berlin = cron(json!({"schedule": "0 9 * * *", "timeZone": "Europe/Berlin"}), json!({}));
        let plan = plan(&berlin, &[], at("08:00:00"));
        let annotations = plan.start.unwrap().0.metadata.annotations.unwrap();
        assert_eq!(annotations[SCHEDULED], "2026-01-01T09:00:00+01:00");
    }
}
