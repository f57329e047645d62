//! What goes wrong, when, and which line of a log explains it.

use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use super::replica::Line;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fault {
    /// kube-apiserver is killed, and started again
    ApiServerKilled,
    /// The replica that leads is killed
    LeaderKilled,
    /// The network of one replica passes nothing on
    NetworkStalled,
    /// The role of the controller is taken away, and given back
    PermissionTaken,
    /// The token of the controller is replaced, and the old one revoked
    CredentialsRotated,
    /// etcd forgets its history
    EtcdCompacted,
}

impl Fault {
    pub(super) const ALL: [Self; 6] = [
        Self::ApiServerKilled,
        Self::LeaderKilled,
        Self::NetworkStalled,
        Self::PermissionTaken,
        Self::CredentialsRotated,
        Self::EtcdCompacted,
    ];

    /// How long it lasts, if it does not end by itself. A leader whose network is stalled loses the lease.
    pub(super) fn lasts(self) -> Duration {
        match self {
            Self::NetworkStalled => Duration::from_secs(20),
            Self::PermissionTaken => Duration::from_secs(15),
            _ => Duration::ZERO,
        }
    }

    /// How long after its end a line may explain it. Where another kind of fault with the same words follows, it must be over before.
    fn soon(self) -> Duration {
        match self {
            Self::NetworkStalled | Self::PermissionTaken => Duration::from_secs(20),
            _ => Duration::from_secs(45),
        }
    }

    /// Words of the lines that explain it; none if clients do not notice it by itself.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::ApiServerKilled => {
                &["cannot reach the API server", "cannot watch", "cannot list", "connection"]
            }
            Self::LeaderKilled => &["became leader"],
            Self::NetworkStalled => &[
                "cannot read the lease",
                "cannot write the lease",
                "leader election lost",
                "did not answer",
                "timed out",
            ],
            Self::PermissionTaken => &["403", "forbidden"],
            Self::CredentialsRotated => &["the credentials were renewed"],
            // The watch cache of the API server hides it until that is killed.
            Self::EtcdCompacted => &[],
        }
    }
}

/// A fault that has happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happened {
    pub(super) fault: Fault,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// The only replica that notices it, if it is not all of them.
    pub(super) victim: Option<usize>,
}

impl Happened {
    /// Whether a log should explain it.
    pub(super) fn is_noticed(&self) -> bool {
        !self.fault.words().is_empty()
    }

    /// The lines of the logs that explain it: during it, or soon after.
    pub(super) fn explanations<'a>(&self, lines: &'a [Line]) -> Vec<&'a Line> {
        let end = self.until.checked_add(self.fault.soon()).unwrap_or(Timestamp::MAX);
        let in_time = |line: &&Line| (self.from..=end).contains(&line.at);
        let is_there = |line: &&Line| self.victim.is_none_or(|victim| victim == line.replica);
        let is_about = |line: &&Line| self.fault.words().iter().any(|word| line.text.contains(word));
        lines.iter().filter(in_time).filter(is_there).filter(is_about).collect()
    }
}

/// The faults of a run with the time of each. The API server is killed once a minute, and the leader, the network or the role once each
/// in three minutes, so that every kind happens in the first three.
pub(super) fn plan(minutes: u64) -> Vec<(Duration, Fault)> {
    let mut plan = Vec::new();
    for minute in 0..minutes {
        let at = |second: u64| Duration::from_secs(minute * 60 + second);
        plan.push((at(5), Fault::ApiServerKilled));
        plan.push(match minute % 3 {
            0 => (at(20), Fault::LeaderKilled),
            1 => (at(20), Fault::NetworkStalled),
            _ => (at(20), Fault::PermissionTaken),
        });
        // Shortly before the API server is killed, so that it cannot resume watches.
        plan.push(if minute % 2 == 0 {
            (at(50), Fault::EtcdCompacted)
        } else {
            (at(50), Fault::CredentialsRotated)
        });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_faults_happen_within_three_minutes_and_in_order() {
        let plan = plan(3);
        assert!(Fault::ALL.iter().all(|fault| plan.iter().any(|(_, planned)| planned == fault)));
        assert!(plan.is_sorted_by_key(|(at, _)| *at));
        let leaders = super::plan(60).into_iter().filter(|(_, fault)| *fault == Fault::LeaderKilled);
        assert_eq!(leaders.count(), 20);
    }

    #[test]
    fn a_fault_is_explained_by_a_line_of_its_own_kind_and_time() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let line = |second, text: &str| Line {
            at: at(second),
            replica: 1,
            level: "INFO".to_owned(),
            text: text.to_owned(),
        };
        let lines = [line(5, "became leader"), line(12, "stopped leading"), line(70, "became leader")];
        let killed = |second| {
            let (from, until) = (at(second), at(second));
            Happened { fault: Fault::LeaderKilled, from, until, victim: None }
        };
        assert_eq!(killed(30).explanations(&lines)[0].at, at(70));
        assert!(killed(10).explanations(&lines).is_empty(), "one is too early, the other too late");
        assert!(!Happened { fault: Fault::EtcdCompacted, ..killed(1) }.is_noticed());
    }
    #[test]
    fn a_stall_is_not_explained_by_what_the_next_fault_does_nor_by_the_other_replica() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let stall = Happened { fault: Fault::NetworkStalled, from: at(20), until: at(40), victim: Some(2) };
        let is_explained = |second, replica, text: &str| {
            let (level, text) = ("WARN".to_owned(), text.to_owned());
            !stall.explanations(&[Line { at: at(second), replica, level, text }]).is_empty()
        };
        assert!(is_explained(31, 2, "cannot write the lease a/b the API server did not answer"));
        assert!(!is_explained(31, 1, "cannot write the lease a/b the API server did not answer"));
        // The API server is killed at the fifth second of the next minute.
        assert!(!is_explained(66, 2, "cannot write the lease a/b connection refused"));
        // Within the time of the stall, but of something else.
        assert!(!is_explained(55, 2, "cannot watch Foos: connection reset"));
        assert!(!is_explained(55, 2, "the lease has another holder"));
        assert!(!is_explained(55, 2, "connection lost"));
        let plan = plan(60);
        let ends = |(at, fault): &(Duration, Fault)| (*at + fault.lasts() + fault.soon(), *fault);
        for (end, fault) in plan.iter().map(ends).filter(|(_, fault)| *fault == Fault::NetworkStalled) {
            let is_away = |(at, other): &(Duration, Fault)| {
                *other != Fault::ApiServerKilled || *at < end - fault.lasts() - fault.soon() || *at > end
            };
            assert!(plan.iter().all(is_away), "the API server is killed while a stall may be explained");
        }
    }
}
