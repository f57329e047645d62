//! What can be said about how the controller runs?

use watchkeeper::informer::QueueKind;

/// Settings of the controller, for `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many Foos are synced at once
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = at_least_one)]
    pub workers: usize,
    /// The queue between watch and cache: changes in their order, or gathered by object
    #[arg(long, default_value_t, value_name = "ordered|delta")]
    pub queue: QueueKind,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a number, at least 1".to_owned()),
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 2, queue: QueueKind::default() }
    }
}
