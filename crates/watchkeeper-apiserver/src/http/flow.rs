//! The flow of a request: which flow schema and which priority level it belongs to.

use std::fmt::Write as _;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::percent_decode_str;

use crate::access::flow::{Flow, Flows};
use crate::access::user::User;
use crate::http::admit::attributes;
use crate::http::reply::Reply;
use crate::http::route::{Query, Route};
use crate::http::shared::Shared;

const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The classification of requests.
#[derive(Debug)]
pub(crate) struct FlowControl {
    flows: Mutex<Flows>,
    /// The user of requests without another one.
    admin: User,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self { flows: Mutex::default(), admin: User::admin() }
    }
}

impl Shared {
    /// Returns the flow of a request; `None` without flow control.
    pub(super) fn flow(
        self: &Arc<Self>,
        user: Option<&User>,
        head: &Parts,
        route: &Route,
        query: &Query,
    ) -> Option<Flow> {
        let control = self.flow_control.as_ref()?;
        let path = percent_decode_str(head.uri.path()).decode_utf8_lossy();
        let asked = attributes(&head.method, &path, route, query);
        self.flows(control).of(user.unwrap_or(&control.admin), &asked)
    }

    /// The flows of this moment. If there was a change, flow schemas are told whether their levels exist.
    fn flows<'a>(self: &Arc<Self>, control: &'a FlowControl) -> MutexGuard<'a, Flows> {
        let flows = control.flows.lock();
        if flows.are_current(&self.core.lock().store) {
            return flows;
        }
        drop(flows);
        self.run(|core| core.settle_flow_schemas());
        let mut flows = control.flows.lock();
        flows.read(&self.core.lock().store);
        flows
    }

    /// The metrics of priority levels in the Prometheus text format.
    pub(super) fn flow_metrics(self: &Arc<Self>) -> String {
        let Some(control) = &self.flow_control else { return String::new() };
        let mut text = String::from(
            "# HELP apiserver_flowcontrol_nominal_limit_seats Requests of a priority level that are served at a time on a \
             real server; here there is no limit.\n\
             # TYPE apiserver_flowcontrol_nominal_limit_seats gauge\n",
        );
        for (name, seats) in self.flows(control).seats() {
            // Writing to a `String` cannot fail. The name of an object needs no escapes.
            let _ = writeln!(
                text,
                "apiserver_flowcontrol_nominal_limit_seats{{priority_level=\"{name}\"}} {seats}"
            );
        }
        text
    }
}

/// Says in a reply which flow its request belongs to.
pub(super) fn labelled(mut reply: Reply, flow: Option<Flow>) -> Reply {
    if let Some(Flow { schema, level }) = flow {
        reply.headers_mut().insert(SCHEMA, schema);
        reply.headers_mut().insert(LEVEL, level);
    }
    reply
}
