//! Does a controller survive? Runs it through seeded fault schedules, in process and on virtual time, and tells which one breaks it.
//!
//! A [`Simulation`] holds an API server, a [`Net`] in front of it that delays, loses and refuses what passes through, and a controller that
//! is crashed and started again. Everything follows from the seed: the same seed gives the same [`Trace`], line by line.
#![forbid(unsafe_code)]

mod answers;
mod net;
mod simulation;
mod trace;

pub use net::{Moment, Net, NetService, Rates};
pub use simulation::{Run, Simulation, World};
pub use trace::Trace;
