//! Faults that are not about one request: at a step of the story, or of the whole server.

use std::time::Duration;

use watchkeeper::clock::Instant;
use watchkeeper_apiserver::Checkpoint;

use super::windows::Windows;
use super::{Net, Replica};
use crate::fault::{Fault, Planned};
use crate::script::Details;
use crate::site::Site;
use crate::trace::Event;

/// How many changes of others are lost with a backup, apart from those of the story and the controller. Fewer might be made
/// again before the controller looks: it can then not tell that the history is another one.
const LOST: u64 = 10_000;

impl Net {
    /// The place after a step of the story: what happens there.
    pub(crate) fn after_step(&self, step: u32) {
        let planned = {
            let mut state = self.0.state.lock();
            state.steps.push(self.0.server.revision());
            // The controller has had no time to react: it is not quiet yet.
            state.last_activity = self.0.clock.now();
            let (resources, replicas) = (state.resources.clone(), state.replicas.len());
            state.script.at(Site::Step(step), || Details::Step { resources, replicas })
        };
        if let Some(planned) = planned {
            self.strike(step, planned);
        }
    }

    /// Carries out the fault at a step of the story.
    fn strike(&self, step: u32, planned: Planned) {
        if planned.fault == Fault::SetBack {
            let (net, checkpoint) = (self.clone(), self.0.server.checkpoint());
            self.0.server.skip_revisions(LOST);
            tokio::spawn(async move { net.set_back(step, &checkpoint, planned).await });
            return;
        }
        self.0.trace.add(Event::Fault(planned.clone()));
        self.happens(&planned);
        self.carry_out(&planned);
    }

    /// Carries out a fault that is not about one request.
    pub(super) fn carry_out(&self, planned: &Planned) {
        let minute = Duration::from_secs(60);
        match &planned.fault {
            Fault::Restart => {
                self.forget(planned);
                self.break_connections(Some(planned));
            }
            Fault::Compact => self.forget(planned),
            Fault::Unreachable(time) => {
                self.window(|windows, now| windows.cut_off(now + *time, planned));
                self.break_connections(Some(planned));
            }
            Fault::Forbid(resource) => {
                self.window(|windows, now| windows.refuse(resource, 403, now + minute, planned));
            }
            Fault::Unserve(resource) => {
                self.window(|windows, now| windows.refuse(resource, 404, now + minute, planned));
                self.break_watches(resource, planned);
            }
            Fault::Kill(replica) => self.change(*replica, planned, |_| {}),
            Fault::Pause(replica, time) => {
                let until = self.0.clock.now() + *time;
                if let Some(replica) = self.0.state.lock().replicas.get_mut(*replica) {
                    replica.pauses.pause_until(until);
                    replica.paused_by = Some(planned.clone());
                }
            }
            Fault::ClockRate(replica, percent) => self.change(*replica, planned, |replica| {
                replica.clock_rate = Some(*percent);
                replica.clock_by = Some(planned.clone());
            }),
            Fault::ClockOffset(replica, seconds) => self.change(*replica, planned, |replica| {
                replica.clock_offset = *seconds;
                replica.clock_by = Some(planned.clone());
            }),
            _ => {}
        }
    }

    /// The server forgets its history.
    fn forget(&self, planned: &Planned) {
        self.0.server.compact_now();
        self.note_effect(|effects| effects.forgets(planned));
    }

    /// Changes something about a replica, and kills it. A schedule may name one that there is not.
    fn change(&self, replica: usize, planned: &Planned, change: impl FnOnce(&mut Replica)) {
        let found = self.0.state.lock().replicas.get_mut(replica).map(|replica| {
            change(replica);
            (replica.has_begun, replica.life.clone())
        });
        if let Some((has_begun, life)) = found {
            // Before the first life and between two there is nothing to kill.
            if matches!(planned.fault, Fault::Kill(_)) && has_begun && !life.is_cancelled() {
                self.had_effect(planned);
            }
            life.cancel();
        }
    }

    /// Returns to the backup when the controller has had time to write, unless the story has gone on.
    async fn set_back(&self, step: u32, checkpoint: &Checkpoint, planned: Planned) {
        self.0.clock.sleep(Duration::from_secs(5)).await;
        let has_gone_on = self.0.state.lock().steps.len() as u32 > step + 1;
        if !has_gone_on && self.0.server.revision() > checkpoint.revision() {
            self.0.trace.add(Event::Fault(planned.clone()));
            self.0.trace.add(Event::Restored { revision: checkpoint.revision() });
            self.had_effect(&planned);
            self.0.server.restore(checkpoint);
            self.break_connections(None);
            self.check_invariants();
        }
    }

    fn window(&self, set: impl FnOnce(&mut Windows, Instant)) {
        set(&mut self.0.state.lock().windows, self.0.clock.now());
    }

    /// Breaks all connections of all replicas.
    pub(super) fn break_connections(&self, planned: Option<&Planned>) {
        self.note_effect(|effects| effects.breaks(planned));
        let connections = std::mem::take(&mut self.0.state.lock().connections);
        connections.break_all();
    }

    /// Breaks the watches of a resource.
    fn break_watches(&self, resource: &str, planned: &Planned) {
        self.note_effect(|effects| effects.breaks(Some(planned)));
        let watches = self.0.state.lock().connections.take_watches(resource);
        watches.into_iter().for_each(|watches| watches.cancel());
    }

    /// Ends the life of a replica.
    pub(crate) fn kill(&self, replica: usize) {
        let life = self.0.state.lock().replicas[replica].life.clone();
        life.cancel();
    }
}
