//! The task of an election: carries out the steps of the elector, and shows what comes of them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::elector::{Elector, Loss, Now, Step};
use super::follow::Follower;
use super::leadership::Leadership;
use super::lock::LeaseLock;
use super::record::{LeaderRecord, Seen};
use crate::clock::{BootTime, Clock};
use crate::env::Env;
use crate::object::ObjectName;
use crate::report::WithCauses;
use crate::source::Client;
use crate::wire::{ApiError, Class};

/// Acquires the lease, keeps it, and releases it.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) elector: Elector,
    pub(super) lock: LeaseLock,
    pub(super) client: Client,
    pub(super) lease: ObjectName,
    pub(super) env: Env,
    pub(super) leadership: Leadership,
    /// How long a write without an answer keeps the lease from being released.
    pub(super) memory: Duration,
    /// Whether the lease is released at the end.
    pub(super) releases: bool,
}

impl Keeper {
    /// Runs until leadership is lost, which is an error, or until `resign`: then the lease is released, if that is wanted, it is
    /// held and nothing is in flight.
    ///
    /// A request that is under way at `resign` is finished first: an acquisition may have succeeded.
    pub(super) async fn run(mut self, resign: CancellationToken) -> Result<(), Loss> {
        let mut follower = Some(Follower::start(&self.client, &self.lease));
        self.leadership.status().saw();
        while !resign.is_cancelled() {
            if self.elector.leads_until().is_some() {
                follower = None;
            }
            let is_watched = follower.as_ref().is_some_and(Follower::is_up);
            match self.elector.step(self.now(), is_watched) {
                Step::Wait(until) => {
                    let changed = tokio::select! {
                        biased;
                        () = resign.cancelled() => continue,
                        changed = news(follower.as_ref()) => Some(changed),
                        () = self.env.clock.sleep_until_boot(until) => None,
                    };
                    if let Some(lease) = changed {
                        self.leadership.status().saw();
                        self.elector.watched(lease, self.now());
                    }
                }
                Step::Get => self.read().await,
                Step::Create(record) => self.write(&record, true).await,
                Step::Update(record) => self.write(&record, false).await,
                Step::Stop(loss) => {
                    self.leadership.step_down();
                    self.leadership.set_leader(self.elector.holder());
                    return Err(loss);
                }
            }
            self.show();
        }
        self.leadership.step_down();
        if self.releases {
            self.release().await;
        }
        Ok(())
    }

    fn now(&self) -> Now {
        let clock = &self.env.clock;
        Now { boot: clock.boot(), wall: clock.wall(), chance: self.env.generator.unit() }
    }

    /// Makes public what the elector knows.
    fn show(&self) {
        self.leadership.set_leader(self.elector.holder());
        if let (Some(until), Some(sent)) = (self.elector.leads_until(), self.elector.renewed()) {
            self.leadership.lead(sent, until, self.elector.slow_paths(), || self.lock.reference());
        }
    }

    async fn read(&mut self) {
        let deadline = self.elector.leads_until();
        let clock = self.env.clock.clone();
        let answer = tokio::select! {
            biased;
            answer = self.lock.get() => answer,
            () = until(deadline, &clock) => return,
        };
        match answer {
            Ok(lease) => {
                self.leadership.status().saw();
                self.elector.read(lease, self.now());
            }
            Err(error) => {
                self.tell("cannot read the lease", &error);
                self.leadership.status().did_not_see(WithCauses(&error).to_string());
                self.elector.read_failed(self.now());
            }
        }
    }

    async fn write(&mut self, record: &LeaderRecord, is_new: bool) {
        let (deadline, sent) = (self.elector.leads_until(), self.env.clock.boot());
        let (clock, lock) = (self.env.clock.clone(), &mut self.lock);
        let write = async { if is_new { lock.create(record).await } else { lock.update(record).await } };
        let answer = tokio::select! {
            biased;
            answer = write => answer,
            () = until(deadline, &clock) => return,
        };
        match answer {
            Ok(lease) => {
                self.leadership.status().saw();
                self.elector.wrote(lease, sent, self.now());
            }
            Err(error) => {
                self.tell("cannot write the lease", &error);
                self.elector.write_failed(self.now());
            }
        }
    }

    /// Logs a failed request. That another candidate was faster is no trouble.
    fn tell(&self, what: &'static str, error: &ApiError) {
        let lease = &self.lease;
        if matches!(error.class(), Class::Conflict | Class::AlreadyExists) {
            tracing::debug!(%lease, %error, "{what}");
        } else {
            tracing::warn!(%lease, error = %WithCauses(error), "{what}");
        }
    }

    /// Releases the lease if this candidate holds it, so that another need not wait for its end.
    async fn release(&mut self) {
        if !self.elector.may_hold() {
            return;
        }
        if !self.leadership.is_settled(self.memory) {
            tracing::warn!(lease = %self.lease, "the lease is left to expire: a write has not been answered");
            return;
        }
        loop {
            let Ok(Some(fetched)) = self.lock.get().await else { return };
            let Some(record) = self.elector.release(&fetched, self.env.clock.wall()) else { return };
            match self.lock.update(&record).await {
                Ok(_) => {
                    tracing::info!(lease = %self.lease, "released the lease");
                    return;
                }
                Err(error) if error.class() == Class::Conflict => {}
                Err(error) => return self.tell("cannot release the lease", &error),
            }
        }
    }
}

async fn news(follower: Option<&Follower>) -> Option<Seen> {
    match follower {
        Some(follower) => follower.changed().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<BootTime>, clock: &Clock) {
    match deadline {
        Some(deadline) => clock.sleep_until_boot(deadline).await,
        None => std::future::pending().await,
    }
}
