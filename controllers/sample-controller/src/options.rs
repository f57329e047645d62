//! Command-line options of the controller.

use std::num::NonZeroUsize;

use watchkeeper::queue::QueueKind;

/// Options of the controller, for `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Number of Foos to reconcile concurrently
    #[arg(long, default_value_t = TWO, value_name = "N")]
    pub workers: NonZeroUsize,
    /// Queue between watch and cache: changes in stream order, or grouped by object
    #[arg(long, default_value_t, value_name = "ordered|delta")]
    pub queue: QueueKind,
}

const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

impl Default for Options {
    fn default() -> Self {
        Self { workers: TWO, queue: QueueKind::default() }
    }
}
