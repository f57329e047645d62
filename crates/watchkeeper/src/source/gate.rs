//! The gate that writes pass while their process leads.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{BootTime, Clock};
use crate::wire::{ApiError, Class};

/// Lets writes pass up to a moment that is moved on as long as the process leads. Clones share it.
///
/// No write starts at or after that moment, and none that has started is waited for beyond it. Reads are not affected.
#[derive(Clone)]
pub(crate) struct WriteGate(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Notified when the gate is closed before its time.
    closed: Notify,
}

#[derive(Default)]
struct State {
    /// Open before this.
    until: Option<BootTime>,
    in_flight: usize,
    /// When a write last ended without an answer: the server may act on it later.
    unanswered: Option<BootTime>,
}

impl WriteGate {
    /// Returns a closed gate.
    pub(crate) fn new(clock: &Clock) -> Self {
        Self(Arc::new(Shared { clock: clock.clone(), state: Mutex::default(), closed: Notify::new() }))
    }

    /// Lets writes pass until then.
    pub(crate) fn open_until(&self, until: BootTime) {
        self.0.state.lock().until = Some(until);
    }

    /// Lets no write pass any more, and ends those that wait for an answer.
    pub(crate) fn close(&self) {
        self.0.state.lock().until = None;
        self.0.closed.notify_waiters();
    }

    /// Returns whether no write is waiting for its answer, and none has ended without one within the last `memory`.
    pub(crate) fn is_settled(&self, memory: Duration) -> bool {
        let (now, state) = (self.0.clock.boot(), self.0.state.lock());
        state.in_flight == 0 && state.unanswered.is_none_or(|at| now.since(at) >= memory)
    }

    /// Sends a write, which `exchange` does, if the gate is open.
    ///
    /// # Errors
    ///
    /// The gate is closed, and nothing was sent ([`Class::NotLeader`]); or it closed before the answer came ([`Class::Timeout`]); or
    /// the error of `exchange`.
    pub(super) async fn pass<T>(
        &self,
        exchange: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let mut passage = self.enter()?;
        let ended = || Err(ApiError::new(Class::Timeout, "leadership ended before the answer came"));
        let mut exchange = pin!(exchange);
        // Looked at before each step: after a suspend, what was held up must not go on to send.
        let guarded =
            poll_fn(|cx| if self.is_open() { exchange.as_mut().poll(cx) } else { Poll::Ready(ended()) });
        let outcome = tokio::select! {
            biased;
            outcome = guarded => outcome,
            () = self.wait_until_closed() => ended(),
        };
        passage.is_answered = outcome.as_ref().map_or_else(is_answer, |_| true);
        outcome
    }

    fn is_open(&self) -> bool {
        let now = self.0.clock.boot();
        self.0.state.lock().until.is_some_and(|until| now < until)
    }

    fn enter(&self) -> Result<Passage<'_>, ApiError> {
        let now = self.0.clock.boot();
        let mut state = self.0.state.lock();
        if state.until.is_none_or(|until| now >= until) {
            let message = "this replica does not lead: the write was not sent";
            return Err(ApiError::new(Class::NotLeader, message));
        }
        state.in_flight += 1;
        Ok(Passage { gate: self, is_answered: false })
    }

    async fn wait_until_closed(&self) {
        loop {
            // Registered before the look, so that no wake-up is lost in between.
            let closed = self.0.closed.notified();
            let until = self.0.state.lock().until;
            let Some(until) = until.filter(|until| self.0.clock.boot() < *until) else { return };
            tokio::select! {
                biased;
                () = closed => {}
                () = self.0.clock.sleep_until_boot(until) => {}
            }
        }
    }
}

/// Whether the server has answered, or was never asked.
fn is_answer(error: &ApiError) -> bool {
    let is_unsent = matches!(error.class(), Class::ConnectionRefused | Class::Unreachable | Class::Invalid);
    error.code().is_some() || is_unsent
}

/// A write on its way, counted until it ends or is dropped.
struct Passage<'a> {
    gate: &'a WriteGate,
    is_answered: bool,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let now = self.gate.0.clock.boot();
        let mut state = self.gate.0.state.lock();
        state.in_flight -= 1;
        if !self.is_answered {
            state.unanswered = Some(now);
        }
    }
}

impl fmt::Debug for WriteGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("WriteGate").field("until", &state.until).field("in_flight", &state.in_flight).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt;

    use super::*;
    use crate::env::Env;

    const SECOND: Duration = Duration::from_secs(1);

    fn gate() -> (WriteGate, Clock) {
        let clock = Env::simulated(1).clock;
        (WriteGate::new(&clock), clock)
    }

    async fn class(gate: &WriteGate, answer: impl Future<Output = Result<(), ApiError>>) -> Option<Class> {
        gate.pass(answer).await.err().map(|error| error.class())
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_starts_before_the_gate_is_open_nor_at_its_end() {
        let (gate, clock) = gate();
        let never = || async { panic!("it must not be sent") };
        assert_eq!(class(&gate, never()).await, Some(Class::NotLeader));
        gate.open_until(clock.boot() + 2 * SECOND);
        assert_eq!(class(&gate, async { Ok(()) }).await, None);
        clock.sleep(2 * SECOND).await;
        assert_eq!(class(&gate, never()).await, Some(Class::NotLeader));
        gate.open_until(clock.boot() + SECOND);
        gate.close();
        assert_eq!(class(&gate, never()).await, Some(Class::NotLeader));
        assert!(gate.is_settled(SECOND), "nothing was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_ends_with_the_leadership_which_may_have_been_extended() {
        let (gate, clock) = gate();
        let start = clock.boot();
        gate.open_until(start + 5 * SECOND);
        let extend = async {
            clock.sleep(3 * SECOND).await;
            assert!(!gate.is_settled(Duration::ZERO), "it is in flight");
            gate.open_until(start + 8 * SECOND);
        };
        let (ended, ()) = tokio::join!(class(&gate, pending()), extend);
        assert_eq!((ended, clock.boot().since(start)), (Some(Class::Timeout), 8 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_ends_soon_after_a_suspend_that_has_outlasted_the_leadership() {
        let (gate, clock) = gate();
        gate.open_until(clock.boot() + 10 * SECOND);
        let mut write = Box::pin(class(&gate, pending()));
        assert!(clock.timeout(SECOND, &mut write).await.is_err());
        tokio::time::advance(60 * SECOND).await;
        clock.suspend(60 * SECOND);
        assert_eq!(clock.timeout(SECOND, &mut write).await, Ok(Some(Class::Timeout)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_held_up_before_it_was_sent_is_not_sent_after_the_end() {
        let (gate, clock) = gate();
        gate.open_until(clock.boot() + 10 * SECOND);
        let (connected, connection) = tokio::sync::oneshot::channel::<()>();
        let mut write = Box::pin(class(&gate, async {
            connection.await.unwrap();
            panic!("it must not be sent");
        }));
        assert!(clock.timeout(SECOND, &mut write).await.is_err());
        // The machine is suspended, and the connection is there before any timer has noticed.
        tokio::time::advance(60 * SECOND).await;
        clock.suspend(60 * SECOND);
        connected.send(()).unwrap();
        assert_eq!(write.now_or_never(), Some(Some(Class::Timeout)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_close_ends_writes_at_once() {
        let (gate, clock) = gate();
        gate.open_until(clock.boot() + 5 * SECOND);
        let close = async {
            clock.sleep(SECOND).await;
            gate.close();
        };
        let (ended, ()) = tokio::join!(class(&gate, pending()), close);
        assert_eq!(ended, Some(Class::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_answer_did_not_come_is_remembered_for_a_while() {
        let (gate, clock) = gate();
        gate.open_until(clock.boot() + 3600 * SECOND);
        let error = |class| async move { Err(ApiError::new(class, "x")) };
        for (class_, is_settled) in [
            (Class::ConnectionRefused, true),
            (Class::Unreachable, true),
            (Class::Invalid, true),
            (Class::ConnectionLost, false),
            (Class::Timeout, false),
        ] {
            assert_eq!(class(&gate, error(class_)).await, Some(class_));
            assert_eq!(gate.is_settled(15 * SECOND), is_settled, "{class_:?}");
            clock.sleep(15 * SECOND).await;
            assert!(gate.is_settled(15 * SECOND));
        }
        let refused = async { Err(ApiError::from_response(http::StatusCode::CONFLICT, None, b"")) };
        assert_eq!(class(&gate, refused).await, Some(Class::Conflict));
        assert!(gate.is_settled(15 * SECOND), "the server has answered");
        // A write whose caller is dropped is like one without an answer.
        assert!(gate.pass(pending::<Result<(), ApiError>>()).now_or_never().is_none());
        assert!(!gate.is_settled(15 * SECOND));
    }
}
