//! The script of a run: which fault happens at which place, planned or drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use watchkeeper::clock::Generator;

use crate::endless::Endless;
use crate::fault::{Fault, FaultKind, Planned, Reason};
use crate::site::{Site, Verb};

/// A place, with what decides which faults are possible there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) site: Site,
    pub(crate) details: Details,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Details {
    Request {
        verb: Verb,
        /// The request names an object.
        named: bool,
        /// The request asks for the next page of a list.
        continues: bool,
        /// The request names a version.
        versioned: bool,
        /// The steps of the story so far.
        steps: u32,
    },
    Event {
        is_bookmark: bool,
        is_first: bool,
    },
    Step {
        /// The resources that controllers have used so far.
        resources: Vec<String>,
        replicas: usize,
    },
    /// A call to the outside world.
    Outside {
        /// Whether it is known which replica makes the call.
        knows_caller: bool,
    },
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than a cache may lag before a controller goes on without it.
const LONG: Duration = Duration::from_secs(360);
/// Longer than a request may take.
const TOO_LONG: Duration = Duration::from_secs(45);

/// The faults that are possible at a place, the most telling first.
pub(crate) fn candidates(place: &Place) -> Vec<Fault> {
    use Fault::*;
    match &place.details {
        Details::Request { verb: Verb::Watch, versioned, .. } => {
            let expire = Expire(Reason::Expired);
            let mut faults =
                vec![expire, LoseRequest, CrashAfter, NeverOpen, Refuse(500), Refuse(429), Refuse(403)];
            if *versioned {
                faults.extend([ExpireLater(Reason::Expired), ExpireLater(Reason::Gone), TooLarge]);
                faults.push(Expire(Reason::Gone));
            }
            faults.extend([Refuse(401), Refuse(503), Refuse(504)]);
            faults
        }
        Details::Request { verb, named, continues, versioned, steps } => {
            let mut faults = vec![CrashAfter, LoseAnswer, CrashBefore, LoseRequest, SlowAnswer(TOO_LONG)];
            faults.extend([
                Refuse(500),
                Refuse(429),
                Refuse(503),
                SlowRequest(2 * SECOND),
                SlowAnswer(2 * SECOND),
            ]);
            if verb.is_write() {
                faults.extend([RefuseAfter(500), RefuseAfter(504), Double]);
                faults.extend(steps.checked_sub(1).map(CrashStale));
                faults.push(CrashStale(*steps));
            }
            if *named && verb.is_write() {
                faults.push(Foreign);
            }
            if matches!(verb, Verb::Update | Verb::Patch | Verb::Apply) {
                faults.push(Refuse(409));
            }
            faults.extend([Refuse(403), Refuse(401), Refuse(504)]);
            if verb.is_write() {
                faults.push(RefuseAfter(503));
            }
            if *verb == Verb::List {
                faults.push(Undecodable);
            }
            if *verb == Verb::List && *versioned {
                faults.push(TooLarge);
            }
            if *continues || (*verb == Verb::List && *versioned) {
                faults.extend([Expire(Reason::Expired), Expire(Reason::Gone)]);
            }
            faults
        }
        Details::Event { is_bookmark, is_first } => {
            let mut faults = vec![
                Hide(MINUTE),
                Delay(LONG),
                Cut(Fault::WHOLE / 2),
                Stall,
                Delay(SECOND),
                Hide(Duration::ZERO),
                Cut(0),
            ];
            if *is_first {
                faults.push(NoBookmarks);
            }
            if !is_bookmark {
                faults.extend([Duplicate, Cut(Fault::WHOLE), Undecodable, Oversized]);
            }
            faults
        }
        Details::Step { resources, replicas } => {
            let mut faults = vec![
                Kill(0),
                SetBack,
                Restart,
                Compact,
                Unreachable(SECOND),
                Unreachable(MINUTE),
                Pause(0, MINUTE),
            ];
            let is_start = place.site == Site::Step(0);
            if is_start {
                faults.extend(clocks(0));
            }
            faults.extend(resources.iter().cloned().map(Forbid));
            faults.extend(resources.iter().cloned().map(Unserve));
            for replica in 1..*replicas {
                faults.extend([Kill(replica), Pause(replica, MINUTE)]);
                faults.extend(clocks(replica).into_iter().filter(|_| is_start));
            }
            faults
        }
        Details::Outside { knows_caller: true } => {
            vec![CrashAfter, LoseAnswer, CrashBefore, LoseRequest, SlowAnswer(2 * SECOND)]
        }
        Details::Outside { knows_caller: false } => vec![LoseAnswer, LoseRequest, SlowAnswer(2 * SECOND)],
    }
}

/// The faults of a replica's clock.
fn clocks(replica: usize) -> [Fault; 4] {
    [
        Fault::ClockRate(replica, 80),
        Fault::ClockRate(replica, 125),
        Fault::ClockOffset(replica, 3600),
        Fault::ClockOffset(replica, -3600),
    ]
}

/// Decides on faults, and keeps which happened.
#[derive(Debug)]
pub(crate) struct Script {
    planned: BTreeMap<Site, Fault>,
    swarm: Option<Swarm>,
    endless: Option<Endless>,
    is_calm: bool,
    hits: Vec<Planned>,
    /// All places so far, if they are recorded.
    places: Option<Vec<Place>>,
}

/// Faults drawn from a seed: some kinds, at some rate.
#[derive(Debug)]
struct Swarm {
    generator: Generator,
    kinds: BTreeSet<FaultKind>,
    /// Per request, event or call.
    rate: f64,
    /// Per step.
    step_rate: f64,
    left: u32,
}

impl Script {
    /// No faults; records all places.
    pub(crate) fn calm() -> Self {
        Self { places: Some(Vec::new()), ..Self::planned(&[]) }
    }

    /// These faults and no others.
    pub(crate) fn planned(faults: &[Planned]) -> Self {
        let planned = faults.iter().map(|it| (it.site.clone(), it.fault.clone())).collect();
        Self { planned, swarm: None, endless: None, is_calm: false, hits: Vec::new(), places: None }
    }

    /// Faults of some of these kinds, at a rate, by the generator.
    pub(crate) fn drawn(generator: Generator, kinds: &[FaultKind]) -> Self {
        let mut chosen: BTreeSet<FaultKind> = BTreeSet::new();
        while chosen.is_empty() && !kinds.is_empty() {
            chosen = kinds.iter().filter(|_| generator.below(3) == 0).copied().collect();
        }
        let rate = [0.01, 0.03, 0.1, 0.2][generator.below(4) as usize];
        let step_rate = [0.0, 0.1, 0.3][generator.below(3) as usize];
        let swarm = Swarm { generator, kinds: chosen, rate, step_rate, left: 60 };
        Self { swarm: Some(swarm), ..Self::planned(&[]) }
    }

    /// Faults as long as a server runs. They are not kept.
    pub(crate) fn endless(endless: Endless) -> Self {
        Self { endless: Some(endless), ..Self::planned(&[]) }
    }

    /// No further faults.
    pub(crate) fn end(&mut self) {
        self.is_calm = true;
    }

    pub(crate) fn hits(&self) -> &[Planned] {
        &self.hits
    }

    pub(crate) fn take_places(&mut self) -> Vec<Place> {
        self.places.take().unwrap_or_default()
    }

    /// Whether the run is one without any faults.
    pub(crate) fn is_of_reference(&self) -> bool {
        self.places.is_some()
    }

    /// The fault that happens at a place, if any.
    pub(crate) fn at(&mut self, site: Site, details: impl FnOnce() -> Details) -> Option<Planned> {
        if self.is_calm {
            return None;
        }
        if let Some(endless) = &self.endless {
            let fault = endless.draw(&site, details)?;
            return Some(Planned { site, fault });
        }
        let fault = match (&mut self.swarm, &mut self.places) {
            (Some(swarm), _) => swarm.draw(&site, details),
            (None, Some(places)) => {
                places.push(Place { site: site.clone(), details: details() });
                None
            }
            (None, None) => self.planned.get(&site).cloned(),
        };
        let hit = Planned { site, fault: fault? };
        self.hits.push(hit.clone());
        Some(hit)
    }
}

impl Swarm {
    fn draw(&mut self, site: &Site, details: impl FnOnce() -> Details) -> Option<Fault> {
        let rate = if matches!(site, Site::Step(_)) { self.step_rate } else { self.rate };
        if self.left == 0 || self.generator.unit() >= rate {
            return None;
        }
        let place = Place { site: site.clone(), details: details() };
        let mut faults = candidates(&place);
        faults.retain(|fault| self.kinds.contains(&fault.kind()));
        let fault = faults.get(self.generator.below(faults.len() as u64) as usize)?.clone();
        self.left -= 1;
        Some(self.vary(fault))
    }

    /// The same fault with another argument, where any will do.
    fn vary(&self, fault: Fault) -> Fault {
        let time = |most: Duration| Duration::from_millis(1 + self.generator.below(most.as_millis() as u64));
        match fault {
            Fault::Cut(_) => Fault::Cut(self.generator.below(u64::from(Fault::WHOLE) + 1) as u32),
            Fault::SlowRequest(_) => Fault::SlowRequest(time(3 * SECOND)),
            Fault::SlowAnswer(length) => Fault::SlowAnswer(time(length)),
            Fault::Delay(length) => Fault::Delay(time(length)),
            Fault::Hide(length) if !length.is_zero() => Fault::Hide(time(2 * MINUTE)),
            Fault::Unreachable(length) => Fault::Unreachable(time(length)),
            Fault::Pause(replica, length) => Fault::Pause(replica, time(length)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_cut_at_any_byte() {
        let mut script = Script::drawn(Generator::seeded(1), &[FaultKind("cut")]);
        let swarm = script.swarm.as_mut().unwrap();
        let cuts: BTreeSet<u32> = (0..5_000)
            .map(|_| match swarm.vary(Fault::Cut(0)) {
                // The byte of an event of 600 after which the watch breaks.
                Fault::Cut(millionths) => millionths * 6 / 10_000,
                other => panic!("{other}"),
            })
            .collect();
        assert!(cuts.len() > 590 && cuts.iter().all(|cut| *cut <= 600), "{} of 600", cuts.len());
    }

    #[test]
    fn every_class_of_error_is_possible_where_a_server_gives_it() {
        let of = |verb, versioned| {
            let details = Details::Request { verb, named: false, continues: false, versioned, steps: 1 };
            let site = Site::Request { replica: 0, what: "a request".into(), nth: 1 };
            candidates(&Place { site, details }).iter().map(ToString::to_string).collect::<BTreeSet<_>>()
        };
        let verbs = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Delete];
        for verb in verbs {
            let faults = of(verb, false);
            for status in [401, 403, 429, 500, 503, 504] {
                assert!(faults.contains(&format!("refuse({status})")), "{verb:?}: {status}");
            }
            for status in [500, 503, 504] {
                let is_possible = faults.contains(&format!("refuse-after({status})"));
                assert_eq!(is_possible, verb.is_write(), "{verb:?}: {status}");
            }
        }
        for fault in ["expire", "expire(Gone)", "too-large"] {
            assert!(of(Verb::List, true).contains(fault) && of(Verb::Watch, true).contains(fault), "{fault}");
        }
        assert!(of(Verb::Watch, true).contains("expire-later(Gone)"));
        assert!(of(Verb::List, false).contains("undecodable"));
    }
}
