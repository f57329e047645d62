//! Runs any controller through thousands of fault schedules, in process and on virtual time, and shows the one that breaks it.
//!
//! [`check`] runs a story on an embedded API server without faults, then with every single fault at every place, with pairs of faults, and
//! with many faults drawn from seeds. After each run the cluster must be as it is without faults. A run that goes wrong is reduced to the
//! fewest faults that show it, and told as a timeline.
#![forbid(unsafe_code)]

mod answers;
mod built_in;
mod canonical;
mod check;
mod counts;
mod crew;
mod divergence;
mod endless;
mod failure;
mod fault;
mod html;
mod jobs;
mod layer;
mod net;
mod objects;
mod outside;
mod plan;
mod replay;
mod report;
mod scenario;
mod script;
mod shrink;
mod site;
mod subject;
mod timeline;
mod trace;
mod user;
mod view;
mod violation;
mod world;

pub use built_in::BuiltIn;
pub use check::{Check, check};
pub use counts::Excess;
pub use failure::{Class, Failure};
pub use fault::{Fault, FaultKind, Planned, Reason, UnknownKind};
pub use layer::{FaultLayer, FaultLayerBuilder, FaultLayerError, FaultService};
pub use net::{Net, NetService};
pub use objects::Objects;
pub use outside::{Outside, OutsideError};
pub use report::Report;
pub use scenario::{Cluster, Scenario, ScenarioRun};
pub use site::{ParseError, Site};
pub use subject::Life;
pub use user::User;
pub use violation::{Difference, Violation};
