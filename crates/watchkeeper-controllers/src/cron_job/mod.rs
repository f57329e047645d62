//! The CronJob controller: starts Jobs at the times of a schedule.

// `schedule.rs` reads schedules, `plan.rs` decides, and this file reads and writes.

mod plan;
mod schedule;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::params::DeleteParams;
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch, WriteError};
use watchkeeper::record::EventType;
use watchkeeper::wire::Class;

use self::plan::{Plan, plan};
use crate::family::controller;

/// The number of CronJobs that are reconciled at the same time.
const WORKERS: usize = 5;

/// Registers the CronJob controller with `manager`.
///
/// It starts a Job for each time of the schedule, in the time zone of the CronJob, as its concurrency policy allows; of times that
/// were missed it makes up for the last, within the starting deadline. It deletes ended Jobs beyond the limits of the history. It needs
/// a Job controller, such as [`job`](crate::job).
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<CronJob>::new(manager)
        .component("cronjob-controller")
        .owns(Watch::<Job>::new())
        .workers(WORKERS)
        .reconcile(reconcile)
}

async fn reconcile(cron: Arc<CronJob>, cx: Context<CronJob>) -> Result<Action, Error> {
    let jobs = cx.owned::<Job>()?.complete()?;
    let Plan { delete, start, mut status, events, wake } = plan(&cron, &jobs, cx.env().clock.wall());
    for (of, reason, message) in events {
        cx.event(of, reason, &message);
    }
    for name in delete {
        if cx.delete_with::<Job>(&name, DeleteParams::background()).await? {
            cx.event(EventType::Normal, "SuccessfulDelete", &format!("Deleted job {name}"));
        }
    }
    write(&cx, &status).await?;
    if let Some((job, time)) = start {
        start_job(&cx, &cron, &job, time, &mut status).await?;
        write(&cx, &status).await?;
    }
    Ok(wake.map_or(Action::done(), Action::requeue_after))
}

async fn write(cx: &Context<CronJob>, status: &CronJobStatus) -> Result<(), Error> {
    let status = status.clone();
    Ok(cx.status_as::<CronJobStatus>(|current| *current = status).await?)
}

async fn start_job(
    cx: &Context<CronJob>,
    cron: &CronJob,
    job: &Job,
    time: Timestamp,
    status: &mut CronJobStatus,
) -> Result<(), Error> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let made = match cx.create(job).await {
        Ok(made) => {
            cx.event(EventType::Normal, "SuccessfulCreate", &format!("Created job {name}"));
            Some(made)
        }
        Err(error) => {
            let WriteError::Api { source, .. } = &error else { return Err(error.into()) };
            let is_ours = source.class() == Class::AlreadyExists && is_ours(cx, cron, name).await?;
            if !is_ours {
                let message = format!("Error creating job: {source}");
                cx.event(EventType::Warning, "FailedCreate", &message);
                return Err(error.into());
            }
            None
        }
    };
    if let Some(made) = made {
        status.active.get_or_insert_default().push(plan::reference(&made));
    }
    status.last_schedule_time = Some(Time(time));
    Ok(())
}

/// Whether a Job of that name is one of the CronJob, which the cache does not have yet.
async fn is_ours(cx: &Context<CronJob>, cron: &CronJob, name: &str) -> Result<bool, Error> {
    let job = cx.live().get::<Job>(&cx.key().sibling(name)).await?;
    Ok(job.is_some_and(|job| controller(&job.metadata).map(|owner| &owner.uid) == cron.metadata.uid.as_ref()))
}
