//! Runs a controller through seeded fault schedules, in process and on virtual time, and reports the seeds that break it.
//!
//! A [`Simulation`] holds an API server, a [`Net`] in front of it that delays, loses and refuses requests, and a controller that crashes and
//! restarts. One seed gives one [`Trace`], line by line.
#![forbid(unsafe_code)]

mod answers;
mod net;
mod simulation;
mod trace;

pub use net::{Moment, Net, NetService, Rates};
pub use simulation::{Cluster, Run, Simulation};
pub use trace::Trace;
