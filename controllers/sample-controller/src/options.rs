//! Command-line options of the controller.

use std::num::NonZeroUsize;

use watchkeeper::controller::AccessCheck;
use watchkeeper::process::pod_namespace;
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
    /// Work only while this replica leads, so that several can run; the others stand by
    #[arg(long)]
    pub leader_elect: bool,
    /// Namespace of the Lease of the leader election; that of the pod by default
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// What to do at the start if permissions are missing; all that are missing are named
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = AccessCheck::Warn)]
    pub access_check: AccessCheck,
}

const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

impl Options {
    /// The namespace of the Lease, if there is to be an election; `None` in it if that is not known.
    pub(crate) fn election(&self) -> Option<Option<String>> {
        let namespace = || self.leader_election_namespace.clone().or_else(pod_namespace);
        self.leader_elect.then(namespace)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: TWO,
            queue: QueueKind::default(),
            leader_elect: false,
            leader_election_namespace: None,
            access_check: AccessCheck::Off,
        }
    }
}
