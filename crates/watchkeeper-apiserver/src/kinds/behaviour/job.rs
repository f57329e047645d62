//! Jobs.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Behaviour, Change, Context, Findings, workload};
use crate::failure::{Cause, Result};
use crate::kinds::age::human;
use crate::kinds::cells::{Row, containers, number, selector};
use crate::kinds::conditions;
use crate::kinds::fill::{fill, remove_null};
use crate::kinds::kind::Kind;
use crate::kinds::meta;

#[derive(Debug)]
pub(in crate::kinds) struct Job;

impl Behaviour for Job {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        if spec.get("parallelism").is_none() && spec.get("completions").is_none() {
            fill(spec, "completions", 1.into());
        }
        fill(spec, "parallelism", 1.into());
        // Where each index has a limit, all of them together have none.
        let limit = if spec.get("backoffLimitPerIndex").is_some_and(Value::is_number) { i32::MAX } else { 6 };
        fill(spec, "backoffLimit", limit.into());
        fill(spec, "completionMode", "NonIndexed".into());
        fill(spec, "suspend", false.into());
        fill(spec, "manualSelector", false.into());
        let replacement = if spec["podFailurePolicy"].is_object() { "Failed" } else { "TerminatingOrFailed" };
        remove_null(spec, "podFailurePolicy");
        fill(spec, "podReplacementPolicy", replacement.into());
        workload::default_template(spec);
        Ok(())
    }

    fn prepare_create(&self, job: &mut Value, _context: &dyn Context) {
        if job["spec"]["manualSelector"] != true {
            select_own_pods(job);
        }
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let spec = &change.new["spec"];
        for field in
            ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
        {
            if spec[field].as_i64().is_some_and(|number| number < 0) {
                let problem = "must be greater than or equal to 0";
                findings.causes.push(Cause::invalid(&format!("spec.{field}"), &spec[field], problem));
            }
        }
        if spec["completionMode"] == "Indexed" && spec["completions"].is_null() {
            let problem = "when completion mode is Indexed";
            findings.causes.push(Cause::required("spec.completions", problem));
        }
        let policy = &spec["template"]["spec"]["restartPolicy"];
        if !["Never", "OnFailure"].contains(&policy.as_str().unwrap_or_default()) {
            let field = "spec.template.spec.restartPolicy";
            match policy.as_str() {
                None | Some("" | "Always") => {
                    let supported = ["OnFailure", "Never"];
                    findings.causes.push(Cause::not_supported(field, policy, &supported));
                }
                Some(_) => {}
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let fixed = ["selector", "completionMode"].into_iter();
        let mut changed: Vec<_> =
            fixed.filter(|field| old["spec"].get(field) != new["spec"].get(field)).collect();
        if old["spec"]["template"] != new["spec"]["template"] && old["spec"]["suspend"] != true {
            changed.push("template");
        }
        let cause = |field: &&str| {
            Cause::invalid(&format!("spec.{field}"), &new["spec"][*field], "field is immutable")
        };
        changed.iter().map(cause).collect()
    }

    fn field_value(&self, job: &Value, path: &str) -> Option<String> {
        (path == "status.successful").then(|| number(&job["status"]["succeeded"]).to_string())
    }

    fn headers(&self) -> &'static str {
        "Name Status Completions Duration Age Containers* Images* Selector*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            state(row),
            completions(row),
            duration(row),
            row.age(),
            containers(&spec["template"], "name"),
            containers(&spec["template"], "image"),
            selector(&spec["selector"]),
        ])
    }
}

/// Gives a job labels and a selector that no other job has.
fn select_own_pods(job: &mut Value) {
    let (uid, name) = (meta::text(job, "uid").to_owned(), meta::text(job, "name").to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for pointer in ["/metadata", "/spec/template/metadata"] {
        if let Some(metadata) = job.pointer_mut(pointer) {
            fill(metadata, "labels", json!({}));
            for (key, text) in labels {
                fill(&mut metadata["labels"], key, text.as_str().into());
            }
        }
    }
    fill(&mut job["spec"], "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
}

fn state(row: &Row<'_>) -> &'static str {
    let has = |wanted: &str| conditions::holds(row.status(), wanted);
    let states = [
        (has("Complete"), "Complete"),
        (has("Failed"), "Failed"),
        (row.is_terminating(), "Terminating"),
        (has("Suspended"), "Suspended"),
        (has("FailureTarget"), "FailureTarget"),
        (has("SuccessCriteriaMet"), "SuccessCriteriaMet"),
    ];
    states.iter().find(|(holds, _)| *holds).map_or("Running", |(_, name)| *name)
}

fn completions(row: &Row<'_>) -> String {
    let succeeded = number(&row.status()["succeeded"]);
    match (row.spec()["completions"].as_i64(), number(&row.spec()["parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(row: &Row<'_>) -> String {
    let time = |field: &str| row.status()[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    match (time("startTime"), time("completionTime")) {
        (Some(start), end) => human(end.unwrap_or(row.now).as_second() - start.as_second()),
        (None, _) => String::new(),
    }
}
