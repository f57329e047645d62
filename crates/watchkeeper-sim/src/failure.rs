//! The result of a check that found something wrong, for people to read.

use std::fmt;
use std::path::PathBuf;

use crate::crew::Trouble;
use crate::replay::{Faults, Replay, file_name};
use crate::timeline::Timeline;
use crate::trace::Entry;
use crate::violation::Violation;

/// A run that went wrong.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) replay: Replay,
    pub(crate) violation: Violation,
    pub(crate) entries: Vec<Entry>,
    /// There were no faults.
    pub(crate) is_calm: bool,
    /// The state became right when something made the controller look again.
    pub(crate) is_mended_by_nudge: bool,
    /// The schedules with faults until it was found.
    pub(crate) schedules: u64,
}

impl Finding {
    /// A run with faults.
    pub(crate) fn shown(replay: &Replay, violation: Violation, entries: Vec<Entry>) -> Self {
        let replay = replay.clone();
        Self { replay, violation, entries, is_calm: false, is_mended_by_nudge: false, schedules: 0 }
    }

    /// A run without faults.
    pub(crate) fn calm(seed: u64, violation: Violation, entries: Vec<Entry>) -> Self {
        Self { is_calm: true, ..Self::shown(&Replay::calm(seed), violation, entries) }
    }
}

/// Why a check failed. Its text is a timeline of the run that went wrong.
#[derive(Clone)]
pub struct Failure(Box<Kind>);

#[derive(Clone)]
enum Kind {
    /// The check cannot be run as it is set up.
    Settings(String),
    /// A schedule does not end.
    Stuck {
        name: String,
        schedule: String,
    },
    /// Code that the author gave, or the simulator, panicked.
    Panicked {
        name: String,
        schedule: String,
        what: String,
    },
    Found(Found),
}

#[derive(Clone)]
struct Found {
    name: String,
    replay: Replay,
    violation: Violation,
    is_calm: bool,
    schedules: u64,
    class: Class,
    timeline: Timeline,
    page: Option<PathBuf>,
}

/// What kind of mistake a controller has likely made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// It acted on an old state.
    StaleRead,
    /// It relies on having seen every state.
    UnobservedState,
    /// It crashed between two writes that belong together.
    CrashBetweenWrites,
    /// It created or did something twice, as it did not know that it had been done.
    NotIdempotent,
    /// Nothing made it look again.
    LostWakeUp,
    /// It does not tolerate an error, a conflict or an object that it cannot read.
    ErrorHandling,
    /// It depends on the clock.
    Time,
    /// It goes wrong without any fault.
    WithoutFaults,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StaleRead => "stale read: it acted on an old state",
            Self::UnobservedState => "unobserved state: it relies on having seen every state",
            Self::CrashBetweenWrites => "crash between two writes that belong together",
            Self::NotIdempotent => "not idempotent: it does something again that was already done",
            Self::LostWakeUp => "lost wake-up: nothing made it look again",
            Self::ErrorHandling => "error handling: it does not recover from a failed request",
            Self::Time => "time: it depends on its clock",
            Self::WithoutFaults => "wrong even without faults",
        })
    }
}

impl Class {
    /// The likely class, by the last of the fewest faults that show the mistake.
    fn of(replay: &Replay, violation: &Violation, is_mended_by_nudge: bool) -> Self {
        let Faults::Planned(faults) = &replay.faults else { return Self::ErrorHandling };
        let Some(last) = faults.last() else { return Self::WithoutFaults };
        match (last.fault.kind().name(), violation) {
            ("crash-stale" | "delay" | "stall" | "pause" | "never-open", _) => Self::StaleRead,
            // Changes that come in another way than one by one.
            ("hide" | "expire" | "expire-later" | "cut" | "no-bookmarks" | "compact" | "restart", _)
            | ("unreachable" | "kill" | "set-back", _) => match is_mended_by_nudge {
                true => Self::LostWakeUp,
                false => Self::UnobservedState,
            },
            // What changed while the controller waited for the answer.
            ("slow-answer", _) if is_mended_by_nudge => Self::LostWakeUp,
            // It did not try again.
            ("lose-answer" | "refuse-after", _) if is_mended_by_nudge => Self::ErrorHandling,
            ("lose-answer" | "refuse-after" | "double" | "slow-answer", _)
            | ("crash-before" | "crash-after", Violation::Doubled(_)) => Self::NotIdempotent,
            ("crash-before" | "crash-after", _) => Self::CrashBetweenWrites,
            ("duplicate" | "slow-request", _) => Self::LostWakeUp,
            ("clock-rate" | "clock-offset", _) => Self::Time,
            _ => Self::ErrorHandling,
        }
    }
}

impl Failure {
    pub(crate) fn settings(problem: String) -> Self {
        Self(Box::new(Kind::Settings(problem)))
    }

    pub(crate) fn trouble(name: &str, trouble: Trouble) -> Self {
        let name = name.to_owned();
        Self(Box::new(match trouble {
            Trouble::Stuck { schedule } => Kind::Stuck { name, schedule },
            Trouble::Panicked { schedule, what } => Kind::Panicked { name, schedule, what },
        }))
    }

    pub(crate) fn of(name: &str, finding: Finding) -> Self {
        let Finding { replay, violation, entries, is_calm, is_mended_by_nudge, schedules } = finding;
        let class = Class::of(&replay, &violation, is_mended_by_nudge);
        let timeline = Timeline::new(&entries, &violation);
        let name = name.to_owned();
        let mut found = Found { name, replay, violation, is_calm, schedules, class, timeline, page: None };
        found.page = found.write_page();
        Self(Box::new(Kind::Found(found)))
    }

    /// What was wrong; `None` if no run went wrong, but the check could not be run.
    pub fn violation(&self) -> Option<&Violation> {
        match &*self.0 {
            Kind::Found(found) => Some(&found.violation),
            _ => None,
        }
    }

    /// What kind of mistake it likely is.
    pub fn class(&self) -> Option<Class> {
        match &*self.0 {
            Kind::Found(found) => Some(found.class),
            _ => None,
        }
    }

    /// How many schedules with faults it took to find it, in the order of the plan; 0 if it goes wrong without faults, or in a
    /// replay.
    pub fn schedules(&self) -> Option<u64> {
        match &*self.0 {
            Kind::Found(found) => Some(found.schedules),
            _ => None,
        }
    }

    /// The value of `SIM_REPLAY` that shows it again.
    pub fn replay(&self) -> Option<String> {
        match &*self.0 {
            Kind::Found(found) => Some(found.replay.to_string()),
            _ => None,
        }
    }

    /// The HTML page that shows the run, if it could be written.
    pub fn page(&self) -> Option<&std::path::Path> {
        match &*self.0 {
            Kind::Found(found) => found.page.as_deref(),
            _ => None,
        }
    }
}

impl Found {
    fn write_page(&self) -> Option<PathBuf> {
        let page = crate::html::page(&self.name, &self.heading(), &self.timeline);
        let folder = std::env::var_os("SIM_PAGES").map_or_else(std::env::temp_dir, PathBuf::from);
        let file = folder.join(format!("watchkeeper-sim-{}.html", file_name(&self.name)));
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, page)).ok().map(|()| file)
    }

    fn when(&self) -> String {
        match self.schedules {
            _ if self.is_calm => "without faults".to_owned(),
            0 => "when replayed".to_owned(),
            schedules => format!("in schedule {schedules}"),
        }
    }

    /// What is wrong, in a few lines.
    fn heading(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("wrong", self.violation.to_string()), ("likely", self.class.to_string())];
        if !self.is_calm {
            lines.push(("replay", format!("SIM_REPLAY='{}'", self.replay)));
        } else if self.replay.seed != 0 {
            lines.push(("seed", format!("{}: runs without faults do not end alike", self.replay.seed)));
        }
        lines
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Settings(problem) => f.write_str(problem),
            Kind::Stuck { name, schedule } => write!(
                f,
                "{name}: a run does not end: the controller or the story spins or blocks its thread, and never awaits\n  \
                 replay: SIM_REPLAY='{schedule}'"
            ),
            Kind::Panicked { name, schedule, what } => {
                write!(f, "{name}: {what}\n  replay: SIM_REPLAY='{schedule}'")
            }
            Kind::Found(found) => {
                writeln!(f, "{}: goes wrong {}", found.name, found.when())?;
                for (label, text) in found.heading() {
                    writeln!(f, "  {label}: {text}")?;
                }
                if let Some(page) = &found.page {
                    writeln!(f, "  page: {}", page.display())?;
                }
                write!(f, "\n{}", found.timeline)
            }
        }
    }
}

/// As the text: `unwrap` shows it.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}
