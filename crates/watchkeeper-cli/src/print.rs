//! Output for other programs: manifests and shell completions.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::{Args, CrdArgs};

/// `watchkeeper crd`: the definition of Foos, ready for `kubectl apply -f -`.
pub(crate) fn crd(args: &CrdArgs) -> io::Result<()> {
    let manifest = match args.without_status {
        true => sample_controller::CRD,
        false => sample_controller::CRD_STATUS_SUBRESOURCE,
    };
    let example = if args.example { format!("---\n{}", sample_controller::EXAMPLE) } else { String::new() };
    write!(io::stdout(), "{manifest}{example}")
}

/// `watchkeeper completions`: a script that the shell sources.
pub(crate) fn completions(shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    generate(shell, &mut Args::command(), "watchkeeper", &mut script);
    io::stdout().write_all(&script)
}
