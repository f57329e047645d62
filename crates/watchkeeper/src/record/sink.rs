//! How do events reach the API server? One after the other, tried again while the server is away.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::source::Requests;
use crate::wire::{ApiError, Class};

/// Writes recorded events to the API server.
#[derive(Debug)]
pub struct EventSink {
    requests: Requests,
    receiver: mpsc::Receiver<Event>,
    env: Env,
}

/// Tries for one event; a server that answers is not asked twice.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);
/// How long a stop waits for events to be written.
const LAST_PASS: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("{0} events could not be written before the end")]
struct Unwritten(usize);

impl EventSink {
    pub(super) fn new(requests: Requests, receiver: mpsc::Receiver<Event>, env: Env) -> Self {
        Self { requests, receiver, env }
    }

    /// Writes events until `stop`, and then, for a few seconds at most, what was recorded before it; or until every recorder is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = self.receiver.recv() => event,
            };
            match event {
                Some(event) => self.write(&event, &stop).await,
                None => return,
            }
        }
        self.receiver.close();
        let clock = self.env.clock.clone();
        let last = async {
            while let Some(event) = self.receiver.recv().await {
                self.write(&event, &stop).await;
            }
        };
        if clock.timeout(LAST_PASS, last).await.is_err() {
            self.env.reporter.error("events", "sink", &Unwritten(self.receiver.len() + 1));
        }
    }

    /// Tries until the server has answered, in any way; after `stop` only once.
    async fn write(&self, event: &Event, stop: &CancellationToken) {
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(error) = self.requests.of::<Event>().create(event).await else { return };
            if !may_pass(&error) || tries == TRIES || stop.is_cancelled() {
                let name = event.metadata.name.as_deref().unwrap_or_default();
                self.env.reporter.error("events", name, &error);
                return;
            }
            // All recorders of a cluster wake up together after an outage: the first pause is of random length.
            let pause = if tries == 1 { PAUSE.mul_f64(self.env.generator.unit()) } else { PAUSE };
            stop.run_until_cancelled(self.env.clock.sleep(pause)).await;
        }
    }
}

/// Whether the server has not decided about the event.
fn may_pass(error: &ApiError) -> bool {
    matches!(
        error.class(),
        Class::ConnectionRefused
            | Class::ConnectionLost
            | Class::Timeout
            | Class::TooManyRequests
            | Class::Other
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::Node;
    use kube_client::Client;
    use kube_client::client::Body;
    use parking_lot::Mutex;

    use super::super::{EventType, recorder};
    use super::*;
    use crate::source::Clients;

    /// Clients whose server answers with `codes`, the last of them for ever; the bodies that it got.
    fn clients(codes: &'static [u16]) -> (Clients, Arc<Mutex<Vec<Event>>>) {
        let (seen, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let log = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, asked) = (log.clone(), asked.clone());
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                log.lock().push(serde_json::from_slice(&body).unwrap());
                let code = codes[asked.fetch_add(1, Ordering::Relaxed).min(codes.len() - 1)];
                let response = Response::builder().status(code).body(Body::from(body.to_vec())).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        (Clients::from_client(Client::new(service, "default"), &Env::simulated(1)), seen)
    }

    fn node() -> Node {
        serde_json::from_str(r#"{"metadata":{"name":"n1","uid":"u","resourceVersion":"4"}}"#).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_names_its_object_by_type_and_goes_to_the_default_namespace_without_one() {
        let (clients, seen) = clients(&[201]);
        let (recorder, sink) = recorder("me", &clients);
        recorder.event(&node(), EventType::Warning, "Why", "because");
        drop(recorder);
        sink.run(CancellationToken::new()).await;
        let event = seen.lock()[0].clone();
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("Why")));
        let regarding = event.involved_object;
        assert_eq!((regarding.kind.as_deref(), regarding.api_version.as_deref()), (Some("Node"), Some("v1")));
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert!(event.metadata.name.unwrap().starts_with("n1."));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_is_tried_again_and_one_that_refuses_is_not() {
        for (codes, tries, errors) in [(&[503, 503, 201][..], 3, 0), (&[403][..], 1, 1), (&[500][..], 12, 1)]
        {
            let (clients, seen) = clients(codes);
            let (recorder, sink) = recorder("me", &clients);
            recorder.event(&node(), EventType::Normal, "Why", "because");
            drop(recorder);
            sink.run(CancellationToken::new()).await;
            assert_eq!((seen.lock().len(), clients.env().reporter.errors()), (tries, errors), "{codes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_does_not_hold_up_the_end() {
        let service = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::io::Error>>()
        });
        let clients = Clients::from_client(Client::new(service, "default"), &Env::simulated(1));
        let (recorder, sink) = recorder("me", &clients);
        (0..100).for_each(|_| recorder.event(&node(), EventType::Normal, "Why", "because"));
        let (stop, began) = (CancellationToken::new(), clients.env().clock.now());
        stop.cancel();
        sink.run(stop).await;
        assert_eq!((clients.env().clock.now() - began, clients.env().reporter.errors()), (LAST_PASS, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn every_event_has_a_name_of_its_own_that_the_server_takes() {
        let (clients, seen) = clients(&[201]);
        let (recorder, sink) = recorder("me", &clients);
        let mut odd = node();
        odd.metadata.name = Some("x".repeat(250));
        [node(), node(), odd]
            .iter()
            .for_each(|node| recorder.event(node, EventType::Normal, "Why", "because"));
        drop(recorder);
        sink.run(CancellationToken::new()).await;
        let names: Vec<_> = seen.lock().iter().map(|event| event.metadata.name.clone().unwrap()).collect();
        assert!(names[0] != names[1] && names[2].len() == 36, "{names:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_recorded_before_the_stop_is_still_written_and_later_events_are_dropped() {
        let (clients, seen) = clients(&[201]);
        let (recorder, sink) = recorder("me", &clients);
        let stop = CancellationToken::new();
        recorder.event(&node(), EventType::Normal, "Why", "because");
        stop.cancel();
        sink.run(stop).await;
        recorder.event(&node(), EventType::Normal, "Why", "too late");
        assert_eq!((seen.lock().len(), recorder.dropped()), (1, 1));
    }
}
