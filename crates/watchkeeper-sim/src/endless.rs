//! Faults for as long as a server runs: what happens at a place follows from the seed and the place alone.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::time::Duration;

use watchkeeper::clock::Generator;

use crate::fault::{Fault, FaultKind};
use crate::script::{Details, Place, candidates};
use crate::site::Site;

/// Faults of some kinds, at a rate. Requests of several connections come in no fixed order, so no generator is shared between places:
/// the third `create pods default/` meets the same fault whatever else happens around it.
#[derive(Clone, Debug)]
pub(crate) struct Endless {
    pub(crate) seed: u64,
    pub(crate) kinds: BTreeSet<FaultKind>,
    /// Per request and per event.
    pub(crate) rate: f64,
    /// The longest that something is held up.
    pub(crate) longest: Duration,
}

impl Endless {
    /// The fault that happens at a place, if any.
    pub(crate) fn draw(&self, site: &Site, details: impl FnOnce() -> Details) -> Option<Fault> {
        let place = foldhash::quality::FixedState::with_seed(self.seed).hash_one(site);
        let generator = Generator::seeded(place);
        if generator.unit() >= self.rate {
            return None;
        }
        let faults = self.possible(&Place { site: site.clone(), details: details() });
        let fault = faults.get(generator.below(faults.len() as u64) as usize)?.clone();
        Some(self.vary(fault, &generator))
    }

    fn possible(&self, place: &Place) -> Vec<Fault> {
        let mut faults = candidates(place);
        if matches!(place.details, Details::Request { .. }) {
            // There is no story, at whose steps they happen in a simulation.
            faults.extend([Fault::Restart, Fault::Compact, Fault::Unreachable(self.longest)]);
        }
        faults.retain(|fault| self.kinds.contains(&fault.kind()));
        faults
    }

    /// The same fault with another argument, where any will do.
    fn vary(&self, fault: Fault, generator: &Generator) -> Fault {
        let time = || Duration::from_millis(1 + generator.below(self.longest.as_millis() as u64));
        match fault {
            Fault::Cut(_) => Fault::Cut(generator.below(u64::from(Fault::WHOLE) + 1) as u32),
            Fault::SlowRequest(_) => Fault::SlowRequest(time()),
            Fault::SlowAnswer(_) => Fault::SlowAnswer(time()),
            Fault::Delay(_) => Fault::Delay(time()),
            Fault::Hide(_) => Fault::Hide(time()),
            Fault::Unreachable(_) => Fault::Unreachable(time()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Verb;

    fn endless(seed: u64, rate: f64) -> Endless {
        Endless { seed, kinds: FaultKind::ALL.into(), rate, longest: Duration::from_secs(5) }
    }

    fn draw(endless: &Endless, nth: u32) -> Option<Fault> {
        let site = Site::Request { replica: 0, what: "manager: create pods d/".into(), nth };
        let details = Details::Request {
            verb: Verb::Create,
            named: false,
            continues: false,
            versioned: false,
            steps: 0,
        };
        endless.draw(&site, || details)
    }

    #[test]
    fn a_place_has_the_same_fault_in_whatever_order_places_are_reached() {
        let faults =
            |numbers: &[u32]| numbers.iter().map(|nth| draw(&endless(7, 0.5), *nth)).collect::<Vec<_>>();
        let forward = faults(&(0..100).collect::<Vec<_>>());
        let mut backward = faults(&(0..100).rev().collect::<Vec<_>>());
        backward.reverse();
        assert_eq!(forward, backward);
        let other: Vec<_> = (0..100).map(|nth| draw(&endless(8, 0.5), nth)).collect();
        assert_ne!(forward, other);
    }

    #[test]
    fn the_rate_is_kept() {
        let hits = |rate| (0..2000).filter(|nth| draw(&endless(1, rate), *nth).is_some()).count();
        assert_eq!((hits(0.0), hits(1.0)), (0, 2000));
        assert!((60..140).contains(&hits(0.05)), "{}", hits(0.05));
    }

    #[test]
    fn nothing_is_held_up_longer_than_the_longest() {
        for nth in 0..500 {
            let fault = draw(&endless(3, 1.0), nth);
            if let Some(Fault::SlowRequest(time) | Fault::SlowAnswer(time) | Fault::Unreachable(time)) = fault
            {
                assert!(time <= Duration::from_secs(5), "{time:?}");
            }
        }
    }
}
