//! Graceful shutdown when the terminal closes (SIGHUP), unless the signal is ignored, as under `nohup`.

use std::{fs, io};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` on SIGHUP. The kernel and the shell may both send one, so a second one does not end the process at once.
pub(crate) fn stops(stop: &CancellationToken) -> io::Result<()> {
    if is_ignored(&fs::read_to_string("/proc/self/status")?) {
        return Ok(());
    }
    let (mut hangups, stop) = (signal(SignalKind::hangup())?, stop.clone());
    tokio::spawn(async move {
        hangups.recv().await;
        stop.cancel();
    });
    Ok(())
}

/// Whether a process with this `/proc/PID/status` ignores SIGHUP, signal 1. Unknown counts as ignored.
fn is_ignored(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_none_or(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_a_mask() {
        let status =
            |mask: &str| format!("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(!is_ignored(&status("0000000000001000")));
        assert!(is_ignored(&status("0000000000001001")));
        assert!(is_ignored(&status("?")) && is_ignored(""), "what is not known is left as it is");
    }
}
