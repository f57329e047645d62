//! The kinds of faults, and faults at places.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::site::{ParseError, Site};

/// Something that goes wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The request is lost before the server gets it.
    LoseRequest,
    /// The server acts, and its answer is lost.
    LoseAnswer,
    /// The server answers with this status, and does not act.
    Refuse(u16),
    /// The server acts, and answers with this status all the same.
    RefuseAfter(u16),
    /// The request takes this long to reach the server.
    SlowRequest(Duration),
    /// The answer takes this long to come back.
    SlowAnswer(Duration),
    /// The server gets the request twice; the first answer counts.
    Double,
    /// Another writer changes the object just before the server gets the request.
    Foreign,
    /// The controller crashes before the server gets the request.
    CrashBefore,
    /// The controller crashes after the server has acted.
    CrashAfter,
    /// The controller crashes after the server has acted; its next life is served by a replica that is behind: reads that accept any
    /// version see the state after this step of the story, for a minute.
    CrashStale(u32),
    /// The watch, the list of a version, or the next page of a list is refused with a 410 that has this reason.
    Expire(Reason),
    /// The watch is accepted, and then ended by an error event with code 410 and this reason.
    ExpireLater(Reason),
    /// The watch is never answered.
    NeverOpen,
    /// A list or a watch is refused as its version is not known to the server yet.
    TooLarge,
    /// The watch breaks within this event, after so many millionths of its bytes. In a replay line they are percent, with up to four
    /// decimal places: `cut(53.0208)`.
    Cut(u32),
    /// Nothing comes any more from this event on; the connection stays open.
    Stall,
    /// This event, and those behind it, come late.
    Delay(Duration),
    /// The event comes twice.
    Duplicate,
    /// Nothing comes for this long, and then a 410: intermediate states are never seen.
    Hide(Duration),
    /// No bookmarks come any more.
    NoBookmarks,
    /// The object of this event, or the first object in the answer to a list, cannot be decoded. Another writer changes it after half a
    /// minute, and it is sound from then on. An object that is deleted stays as it is.
    Undecodable,
    /// Another writer changes the object, and the event of that change is over the size limit of the controller. It is changed again
    /// after half a minute. The controller knows the object before: it cannot know one that it never reads.
    Oversized,
    /// The server restarts: connections break, and it has forgotten its history.
    Restart,
    /// The history is compacted.
    Compact,
    /// Connections break, and the server cannot be reached for this long.
    Unreachable(Duration),
    /// The cluster is restored from a backup that was made after the last step of the story: what the controller wrote since is lost.
    SetBack,
    /// The controller may not access a resource for a minute. Watches that are open go on: access is checked when a request begins.
    Forbid(String),
    /// A resource is not served for a minute; its watches break.
    Unserve(String),
    /// This replica of the controller is killed and started again.
    Kill(usize),
    /// This replica of the controller is suspended for this long, as by SIGSTOP: nothing wakes it, and its timers expire at the end.
    Pause(usize, Duration),
    /// The clock of this replica runs at this many percent of the true rate, from its next start.
    ClockRate(usize, u32),
    /// The clock of this replica is this many seconds off, from its next start.
    ClockOffset(usize, i64),
}

/// The reason of a 410.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// As today's servers say.
    Expired,
    /// As older servers say.
    Gone,
}

/// A kind of fault, for budgets and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultKind(pub(crate) &'static str);

impl FaultKind {
    /// All kinds, in the order in which reports list them.
    pub const ALL: [Self; 33] = [
        Self("lose-request"),
        Self("lose-answer"),
        Self("refuse"),
        Self("refuse-after"),
        Self("slow-request"),
        Self("slow-answer"),
        Self("double"),
        Self("foreign"),
        Self("crash-before"),
        Self("crash-after"),
        Self("crash-stale"),
        Self("expire"),
        Self("expire-later"),
        Self("never-open"),
        Self("too-large"),
        Self("cut"),
        Self("stall"),
        Self("delay"),
        Self("duplicate"),
        Self("hide"),
        Self("no-bookmarks"),
        Self("undecodable"),
        Self("oversized"),
        Self("restart"),
        Self("compact"),
        Self("unreachable"),
        Self("set-back"),
        Self("forbid"),
        Self("unserve"),
        Self("kill"),
        Self("pause"),
        Self("clock-rate"),
        Self("clock-offset"),
    ];

    /// Its name, as in a replay line.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl FromStr for FaultKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownKind { name: name.to_owned() })
    }
}

/// A text that does not name a kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a kind of fault: there are {}", names(&FaultKind::ALL))]
pub struct UnknownKind {
    name: String,
}

/// The names of kinds, for a sentence.
pub(crate) fn names(kinds: &[FaultKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Fault {
    /// All bytes of an event, as [`Cut`](Self::Cut) counts them.
    pub(crate) const WHOLE: u32 = 1_000_000;

    /// Its kind.
    pub fn kind(&self) -> FaultKind {
        FaultKind(match self {
            Self::LoseRequest => "lose-request",
            Self::LoseAnswer => "lose-answer",
            Self::Refuse(_) => "refuse",
            Self::RefuseAfter(_) => "refuse-after",
            Self::SlowRequest(_) => "slow-request",
            Self::SlowAnswer(_) => "slow-answer",
            Self::Double => "double",
            Self::Foreign => "foreign",
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::CrashStale(_) => "crash-stale",
            Self::Expire(_) => "expire",
            Self::ExpireLater(_) => "expire-later",
            Self::NeverOpen => "never-open",
            Self::TooLarge => "too-large",
            Self::Cut(_) => "cut",
            Self::Stall => "stall",
            Self::Delay(_) => "delay",
            Self::Duplicate => "duplicate",
            Self::Hide(_) => "hide",
            Self::NoBookmarks => "no-bookmarks",
            Self::Undecodable => "undecodable",
            Self::Oversized => "oversized",
            Self::Restart => "restart",
            Self::Compact => "compact",
            Self::Unreachable(_) => "unreachable",
            Self::SetBack => "set-back",
            Self::Forbid(_) => "forbid",
            Self::Unserve(_) => "unserve",
            Self::Kill(_) => "kill",
            Self::Pause(..) => "pause",
            Self::ClockRate(..) => "clock-rate",
            Self::ClockOffset(..) => "clock-offset",
        })
    }

    /// The argument, as in a replay line.
    fn argument(&self) -> Option<String> {
        match self {
            Self::Refuse(code) | Self::RefuseAfter(code) => Some(code.to_string()),
            Self::SlowRequest(time)
            | Self::SlowAnswer(time)
            | Self::Delay(time)
            | Self::Hide(time)
            | Self::Unreachable(time)
            | Self::Pause(_, time) => Some(format!("{}ms", time.as_millis())),
            Self::CrashStale(step) => Some(step.to_string()),
            Self::Expire(Reason::Gone) | Self::ExpireLater(Reason::Gone) => Some("Gone".to_owned()),
            Self::ExpireLater(Reason::Expired) => Some("Expired".to_owned()),
            Self::Cut(millionths) => Some(percent(*millionths)),
            Self::Forbid(resource) | Self::Unserve(resource) => Some(resource.clone()),
            Self::ClockRate(_, percent) => Some(percent.to_string()),
            Self::ClockOffset(_, seconds) => Some(seconds.to_string()),
            _ => None,
        }
    }

    /// The replica that it happens to, if it is not the first.
    fn replica(&self) -> Option<String> {
        match self {
            Self::Kill(replica)
            | Self::Pause(replica, _)
            | Self::ClockRate(replica, _)
            | Self::ClockOffset(replica, _)
                if *replica > 0 =>
            {
                Some(format!("replica {replica}"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.argument().into_iter().chain(self.replica()).collect();
        match &arguments[..] {
            [] => write!(f, "{}", self.kind()),
            arguments => write!(f, "{}({})", self.kind(), arguments.join(", ")),
        }
    }
}

impl FromStr for Fault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, "a fault, such as `lose-answer` or `delay(1000ms)`");
        let (name, argument) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((name, argument)) => (name, argument),
            None => (text, ""),
        };
        let (argument, replica) = match argument.rsplit_once("replica ") {
            Some((rest, replica)) => {
                (rest.trim_end_matches(", "), replica.parse::<usize>().map_err(|_| wrong())?)
            }
            None => (argument, 0),
        };
        fn number<N: FromStr>(argument: &str) -> Option<N> {
            argument.parse().ok()
        }
        let time = || number(argument.strip_suffix("ms")?).map(Duration::from_millis);
        let fault = match name {
            "lose-request" => Some(Self::LoseRequest),
            "lose-answer" => Some(Self::LoseAnswer),
            "refuse" => number(argument).map(Self::Refuse),
            "refuse-after" => number(argument).map(Self::RefuseAfter),
            "slow-request" => time().map(Self::SlowRequest),
            "slow-answer" => time().map(Self::SlowAnswer),
            "double" => Some(Self::Double),
            "foreign" => Some(Self::Foreign),
            "crash-before" => Some(Self::CrashBefore),
            "crash-after" => Some(Self::CrashAfter),
            "crash-stale" => number(argument).map(Self::CrashStale),
            "expire" => match argument {
                "" => Some(Self::Expire(Reason::Expired)),
                "Gone" => Some(Self::Expire(Reason::Gone)),
                _ => None,
            },
            "expire-later" => match argument {
                "Expired" => Some(Self::ExpireLater(Reason::Expired)),
                "Gone" => Some(Self::ExpireLater(Reason::Gone)),
                _ => None,
            },
            "never-open" => Some(Self::NeverOpen),
            "too-large" => Some(Self::TooLarge),
            "cut" => millionths(argument).map(Self::Cut),
            "stall" => Some(Self::Stall),
            "delay" => time().map(Self::Delay),
            "duplicate" => Some(Self::Duplicate),
            "hide" => time().map(Self::Hide),
            "no-bookmarks" => Some(Self::NoBookmarks),
            "undecodable" => Some(Self::Undecodable),
            "oversized" => Some(Self::Oversized),
            "restart" => Some(Self::Restart),
            "compact" => Some(Self::Compact),
            "unreachable" => time().map(Self::Unreachable),
            "set-back" => Some(Self::SetBack),
            "forbid" => Some(Self::Forbid(argument.to_owned())),
            "unserve" => Some(Self::Unserve(argument.to_owned())),
            "kill" => Some(Self::Kill(replica)),
            "pause" => time().map(|time| Self::Pause(replica, time)),
            "clock-rate" => number(argument)
                .filter(|percent| *percent > 0)
                .map(|percent| Self::ClockRate(replica, percent)),
            "clock-offset" => number(argument).map(|seconds| Self::ClockOffset(replica, seconds)),
            _ => None,
        };
        fault.ok_or_else(wrong)
    }
}

/// Millionths as percent, without zeros at the end.
fn percent(millionths: u32) -> String {
    let decimals = format!("{:04}", millionths % 10_000);
    let text = format!("{}.{}", millionths / 10_000, decimals.trim_end_matches('0'));
    text.trim_end_matches('.').to_owned()
}

/// The millionths of a text in percent, with up to four decimal places.
fn millionths(percent: &str) -> Option<u32> {
    let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
        return None;
    }
    let decimals = format!("{decimals:0<4}").parse::<u32>().ok()?;
    let millionths = whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(decimals)?;
    (millionths <= Fault::WHOLE).then_some(millionths)
}

/// A fault at a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    /// Where it happens.
    pub site: Site,
    /// What happens.
    pub fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @ {}", self.fault, self.site)
    }
}

impl FromStr for Planned {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (fault, site) = text.split_once(" @ ").ok_or_else(|| ParseError::new(text, "`fault @ place`"))?;
        Ok(Self { site: site.parse()?, fault: fault.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_fault_is_read_back_from_its_text() {
        let site = "watch pods #1 event 2";
        let names = [
            "cut(50)",
            "cut(0)",
            "cut(100)",
            "cut(53.0208)",
            "cut(7.05)",
            "delay(360000ms)",
            "lose-answer",
            "expire",
            "expire(Gone)",
            "expire-later(Gone)",
            "refuse(401)",
            "forbid(pods)",
            "kill",
            "kill(replica 2)",
            "pause(60000ms, replica 1)",
            "clock-offset(-3600, replica 1)",
        ];
        for text in names.map(|name| format!("{name} @ {site}")) {
            assert_eq!(text.parse::<Planned>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "expire(x) @ step 1",
            "delay @ step 1",
            "cut(x) @ step 1",
            "cut(100.0001) @ step 1",
            "cut(1.23456) @ step 1",
            "cut(1.) @ step 1",
            "cut(-1) @ step 1",
            "what @ step 1",
            "restart",
            "kill(replica x) @ step 1",
        ] {
            assert!(text.parse::<Planned>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_cut_is_read_in_percent() {
        for (text, millionths) in [("cut(53)", 530_000), ("cut(0.0001)", 1), ("cut(99.5)", 995_000)] {
            assert_eq!(text.parse(), Ok(Fault::Cut(millionths)), "{text}");
        }
    }

    #[test]
    fn a_kind_is_read_from_its_name() {
        for kind in FaultKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "cuts".parse::<FaultKind>().unwrap_err().to_string();
        assert!(error.starts_with("\"cuts\" is not a kind of fault: there are lose-request, "), "{error}");
    }

    #[test]
    fn every_kind_is_listed() {
        let samples = [
            "lose-request",
            "lose-answer",
            "refuse(500)",
            "refuse-after(504)",
            "slow-request(1ms)",
            "slow-answer(1ms)",
            "double",
            "foreign",
            "crash-before",
            "crash-after",
            "crash-stale(1)",
            "expire",
            "expire-later(Gone)",
            "never-open",
            "too-large",
            "cut(1)",
            "stall",
            "delay(1ms)",
            "duplicate",
            "hide(1ms)",
            "no-bookmarks",
            "undecodable",
            "oversized",
            "restart",
            "compact",
            "unreachable(1ms)",
            "set-back",
            "forbid(pods)",
            "unserve(pods)",
            "kill",
            "pause(1ms)",
            "clock-rate(120)",
            "clock-offset(-3600)",
        ];
        let kinds =
            samples.map(|text| text.parse::<Fault>().unwrap_or_else(|error| panic!("{error}")).kind());
        assert_eq!(kinds, FaultKind::ALL);
    }
}
