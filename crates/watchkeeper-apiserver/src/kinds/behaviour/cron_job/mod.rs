//! CronJobs.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Behaviour, Change, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, containers, count, or, selector, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

mod schedule;

/// A Job has the name of its CronJob and a time in minutes, and its name is a label.
const LONGEST_NAME: usize = 52;

#[derive(Debug)]
pub(in crate::kinds) struct CronJob;

impl Behaviour for CronJob {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        fill(spec, "concurrencyPolicy", "Allow".into());
        fill(spec, "suspend", false.into());
        fill(spec, "successfulJobsHistoryLimit", 3.into());
        fill(spec, "failedJobsHistoryLimit", 1.into());
        if let Some(job) = spec.get_mut("jobTemplate").filter(|job| job.is_object()) {
            fill(job, "metadata", json!({}));
            job.get_mut("spec").into_iter().for_each(workload::default_template);
        }
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (spec, causes) = (&change.new["spec"], &mut findings.causes);
        let old = change.old.map(|old| &old["spec"]);
        validate_schedule(spec, old, causes);
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            if spec[field].as_i64().is_some_and(|number| number < 0) {
                let problem = "must be greater than or equal to 0";
                causes.push(Cause::invalid(&format!("spec.{field}"), &spec[field], problem));
            }
        }
        if old.is_none_or(|old| old["timeZone"] != spec["timeZone"])
            && let Some(problem) = spec["timeZone"].as_str().and_then(zone_problem)
        {
            causes.push(Cause::invalid("spec.timeZone", &spec["timeZone"], &problem));
        }
        let (policy, policies) = (&spec["concurrencyPolicy"], ["Allow", "Forbid", "Replace"]);
        if !policies.contains(&text(policy)) {
            causes.push(Cause::not_supported("spec.concurrencyPolicy", policy, &policies));
        }
        let name = meta::text(change.new, "name");
        if old.is_none() && name.len() > LONGEST_NAME {
            let problem = format!("must be no more than {LONGEST_NAME} characters");
            causes.push(Cause::invalid("metadata.name", &name.into(), &problem));
        }
    }

    fn headers(&self) -> &'static str {
        "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age Containers* Images* Selector*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let (spec, job) = (row.spec(), &row.spec()["jobTemplate"]["spec"]);
        let last = &row.status()["lastScheduleTime"];
        json!([
            row.name(),
            text(&spec["schedule"]),
            or(text(&spec["timeZone"]), "<none>"),
            if spec["suspend"] == true { "True" } else { "False" },
            count(&row.status()["active"]),
            if last.is_null() { "<none>".to_owned() } else { row.since(last) },
            row.age(),
            containers(&job["template"], "name"),
            containers(&job["template"], "image"),
            selector(&job["selector"]),
        ])
    }
}

fn validate_schedule(spec: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    const FIELD: &str = "spec.schedule";
    let schedule = text(&spec["schedule"]);
    if schedule.is_empty() {
        causes.push(Cause::required(FIELD, ""));
        return;
    }
    let mut invalid = |problem: &str| causes.push(Cause::invalid(FIELD, &schedule.into(), problem));
    if let Some(problem) = schedule::problem(schedule) {
        invalid(&problem);
    }
    // An old schedule may have its time zone still.
    match old.is_some_and(|old| text(&old["schedule"]).contains("TZ")) {
        _ if !schedule.contains("TZ") => {}
        true if spec["timeZone"].is_string() => {
            invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
        true => {}
        false => invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
    }
}

/// Says why a text is not the name of a time zone.
fn zone_problem(zone: &str) -> Option<String> {
    if zone.is_empty() {
        return Some("timeZone must be nil or non-empty string".to_owned());
    }
    if zone.eq_ignore_ascii_case("Local") {
        let problem = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return Some(problem.to_owned());
    }
    TimeZone::get(zone).is_err().then(|| format!("unknown time zone {zone}"))
}
