//! The plan: every single fault at every place of the reference run, then pairs of them.

use std::collections::BTreeSet;

use watchkeeper::clock::Generator;

use crate::fault::{FaultKind, Planned};
use crate::script::{Place, candidates};

/// Every single fault of these kinds at every place, the most telling faults first.
pub(crate) fn singles(places: &[Place], kinds: &BTreeSet<FaultKind>) -> Vec<Planned> {
    let possible: Vec<Vec<Planned>> = places
        .iter()
        .map(|place| {
            let faults = candidates(place).into_iter().filter(|fault| kinds.contains(&fault.kind()));
            faults.map(|fault| Planned { site: place.site.clone(), fault }).collect()
        })
        .collect();
    let most = possible.iter().map(Vec::len).max().unwrap_or_default();
    let in_order = (0..most).flat_map(|rank| possible.iter().filter_map(move |faults| faults.get(rank)));
    in_order.cloned().collect()
}

/// So many pairs of these faults, at different places, drawn by the generator.
pub(crate) fn pairs(singles: &[Planned], count: usize, generator: &Generator) -> Vec<[Planned; 2]> {
    if singles.iter().all(|planned| planned.site == singles[0].site) {
        return Vec::new();
    }
    let pick = || &singles[generator.below(singles.len() as u64) as usize];
    let pairs = std::iter::repeat_with(|| [pick(), pick()]).filter(|[one, other]| one.site != other.site);
    pairs.take(count).map(|pair| pair.map(Clone::clone)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Details;
    use crate::site::{Site, Verb};

    fn places() -> Vec<Place> {
        let details =
            Details::Request { verb: Verb::Apply, named: true, continues: false, versioned: false, steps: 1 };
        let site = |nth| Site::Request { replica: 0, what: "apply pods d/a".into(), nth };
        [1, 2].map(|nth| Place { site: site(nth), details: details.clone() }).into()
    }

    #[test]
    fn every_fault_is_planned_once_at_every_place_the_best_first() {
        let plan = singles(&places(), &FaultKind::ALL.into());
        let distinct: BTreeSet<_> = plan.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), plan.len());
        assert_eq!(plan[0].fault, plan[1].fault);
        assert_ne!(plan[0].site, plan[1].site);
        let only = singles(&places(), &[FaultKind("double")].into());
        assert_eq!(only.len(), 2);
    }

    #[test]
    fn the_faults_of_a_pair_are_at_two_places() {
        let plan = singles(&places(), &FaultKind::ALL.into());
        let pairs = pairs(&plan, 50, &Generator::seeded(1));
        assert_eq!(pairs.len(), 50);
        assert!(pairs.iter().all(|[one, other]| one.site != other.site));
    }
}
