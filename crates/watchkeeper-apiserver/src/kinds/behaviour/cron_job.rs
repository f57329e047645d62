//! CronJobs.

use serde_json::{Value, json};

use super::{Behaviour, workload};
use crate::failure::Result;
use crate::kinds::cells::{Row, containers, count, or, selector, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

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
