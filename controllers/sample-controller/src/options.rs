//! What can be said about how the controller runs?

use std::num::NonZeroUsize;

use watchkeeper::informer::QueueKind;

/// Settings of the controller, for `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many Foos are synced at once
    #[arg(long, default_value_t = TWO, value_name = "N")]
    pub workers: NonZeroUsize,
    /// The queue between watch and cache: changes in their order, or gathered by object
    #[arg(long, default_value_t, value_name = "ordered|delta")]
    pub queue: QueueKind,
}

const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

impl Default for Options {
    fn default() -> Self {
        Self { workers: TWO, queue: QueueKind::default() }
    }
}
