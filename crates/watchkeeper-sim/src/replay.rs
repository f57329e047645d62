//! Schedules as text, for `SIM_REPLAY`, and the other variables of the environment.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use watchkeeper::clock::Generator;

use crate::fault::{FaultKind, Planned};
use crate::script::Script;
use crate::world::Outcome;

/// A schedule, so that it can be run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The seed of the world: uids, jitter and the like.
    pub(crate) seed: u64,
    pub(crate) part: Part,
    pub(crate) faults: Faults,
}

/// The part of a story that is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// The story ends before its next step.
    pub(crate) steps: Option<u32>,
    /// Steps that are left out; the others keep their numbers.
    pub(crate) without: BTreeSet<u32>,
}

impl Part {
    pub(crate) fn is_whole(&self) -> bool {
        self.steps.is_none() && self.without.is_empty()
    }
}

/// The faults of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// These and no others.
    Planned(Vec<Planned>),
    /// Drawn from a seed.
    Drawn(u64),
}

impl Default for Faults {
    fn default() -> Self {
        Self::Planned(Vec::new())
    }
}

impl Replay {
    pub(crate) fn calm(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn planned(faults: Vec<Planned>) -> Self {
        Self { faults: Faults::Planned(faults), ..Self::default() }
    }

    pub(crate) fn drawn(seed: u64) -> Self {
        Self { seed, faults: Faults::Drawn(seed), ..Self::default() }
    }

    /// A fault of the schedule that is not among those that happened.
    pub(crate) fn missed(&self, hits: &[Planned]) -> Option<&Planned> {
        match &self.faults {
            Faults::Planned(faults) => faults.iter().find(|fault| !hits.contains(fault)),
            Faults::Drawn(_) => None,
        }
    }

    /// Why a run of the schedule tests nothing: a fault of it has lost its place, or had no effect there.
    pub(crate) fn void(&self, outcome: &Outcome) -> Option<String> {
        if let Some(missed) = self.missed(&outcome.hits) {
            return Some(format!("there was no place for {missed}"));
        }
        self.missed(&outcome.effects).map(|idle| format!("there was no effect of {idle}"))
    }

    pub(crate) fn script(&self, kinds: &[FaultKind]) -> Script {
        match &self.faults {
            Faults::Planned(faults) => Script::planned(faults),
            Faults::Drawn(seed) => Script::drawn(Generator::seeded(*seed).fork("faults"), kinds),
        }
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.seed != 0 {
            parts.push(format!("seed={}", self.seed));
        }
        parts.extend(self.part.steps.map(|steps| format!("steps={steps}")));
        if !self.part.without.is_empty() {
            let without: Vec<_> = self.part.without.iter().map(ToString::to_string).collect();
            parts.push(format!("without={}", without.join(",")));
        }
        match &self.faults {
            Faults::Planned(faults) => parts.extend(faults.iter().map(ToString::to_string)),
            Faults::Drawn(seed) => parts.push(format!("drawn={seed}")),
        }
        if parts.is_empty() { f.write_str("calm") } else { f.write_str(&parts.join("; ")) }
    }
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut replay = Self::default();
        let mut faults = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty() && *part != "calm") {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{part:?} needs a number"));
            match part.split_once('=') {
                Some(("seed", seed)) => replay.seed = number(seed)?,
                Some(("steps", steps)) => replay.part.steps = Some(number(steps)? as u32),
                Some(("without", steps)) => {
                    let steps = steps.split(',').map(|step| number(step.trim()).map(|step| step as u32));
                    replay.part.without = steps.collect::<Result<_, _>>()?;
                }
                Some(("drawn", seed)) => replay.faults = Faults::Drawn(number(seed)?),
                _ => faults.push(part.parse::<Planned>().map_err(|error| error.to_string())?),
            }
        }
        if !faults.is_empty() {
            replay.faults = Faults::Planned(faults);
        }
        Ok(replay)
    }
}

/// What the environment asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// `SIM_REPLAY`: only this schedule.
    pub(crate) replay: Option<Replay>,
    /// `SIM_PAIRS`: so many pairs of faults.
    pub(crate) pairs: Option<usize>,
    /// `SIM_SEEDS`: so many seeds.
    pub(crate) seeds: Option<u64>,
    /// `SIM_SHARD=i/n`: only every n-th schedule, from the i-th, counted from 1.
    pub(crate) shard: Option<(u64, u64)>,
    /// `SIM_STATE`: a folder that keeps how far each check has come, so that it can be continued.
    pub(crate) state: Option<PathBuf>,
}

impl Options {
    pub(crate) fn from_env() -> Result<Self, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let replay =
            text("SIM_REPLAY").map(|text| text.parse().map_err(|error| format!("SIM_REPLAY: {error}")));
        let pairs = text("SIM_PAIRS").map(|text| number("SIM_PAIRS", &text));
        let seeds = text("SIM_SEEDS").map(|text| number("SIM_SEEDS", &text));
        let shard = text("SIM_SHARD").map(|text| shard(&text));
        Ok(Self {
            replay: replay.transpose()?,
            pairs: pairs.transpose()?,
            seeds: seeds.transpose()?,
            shard: shard.transpose()?,
            state: text("SIM_STATE").map(PathBuf::from),
        })
    }

    /// The file that keeps how far a check has come: one per check and shard.
    pub(crate) fn state_of(&self, name: &str) -> Option<PathBuf> {
        let shard = self.shard.map(|(shard, shards)| format!("-{shard}-of-{shards}")).unwrap_or_default();
        self.state.as_ref().map(|folder| folder.join(format!("{}{shard}.json", file_name(name))))
    }

    /// The place in the whole plan of a schedule of this shard, both counted from 0.
    pub(crate) fn index(&self, number: u64) -> u64 {
        self.shard.map_or(number, |(shard, shards)| number * shards + shard - 1)
    }
}

/// The name of a check as a part of the names of its files.
pub(crate) fn file_name(name: &str) -> String {
    name.replace("::", "-").replace([' ', '/', ':'], "-")
}

fn number<N: FromStr>(variable: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{variable}: {text:?} is not a number"))
}

fn shard(text: &str) -> Result<(u64, u64), String> {
    let parts =
        text.split_once('/').and_then(|(shard, shards)| Some((shard.parse().ok()?, shards.parse().ok()?)));
    let valid = parts.filter(|(shard, shards)| (1..=*shards).contains(shard));
    valid.ok_or_else(|| format!("SIM_SHARD: {text:?} is not a shard, such as 1/4"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_back_from_its_text() {
        for text in [
            "calm",
            "drawn=7",
            "seed=3; steps=4; without=1,3; kill @ step 1; lose-answer @ create pods d/ #1",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
        for text in ["seed=x", "without=x", "kill", "what @ step 1"] {
            assert!(text.parse::<Replay>().is_err(), "{text}");
        }
    }

    #[test]
    fn shards_take_each_schedule_once() {
        let options = |text: &str| Options { shard: Some(shard(text).unwrap()), ..Options::default() };
        let taken = ["1/3", "2/3", "3/3"].map(|text| [0, 1, 2].map(|number| options(text).index(number)));
        assert_eq!(taken, [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
        assert_eq!(Options::default().index(5), 5);
        for text in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(shard(text).unwrap_err().contains("is not a shard"), "{text}");
        }
    }
}
