//! What if the terminal is closed? The command stops in order, unless it was told to go on, as `nohup` does.

use std::{fs, io};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at a SIGHUP. Both kernel and shell may send one: no second one ends the process at once.
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

/// Whether the process whose status that is ignores SIGHUP, the first of all signals.
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
