//! The plan: every single fault at every place of the reference run, then pairs of them.

use std::collections::BTreeSet;

use watchkeeper::clock::Generator;

use crate::fault::{Fault, FaultKind, Planned};
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

/// So many different pairs of these faults, at different places, drawn by the generator. Half of them are of the most telling faults, a
/// quarter has one of those, and the others are of any; where there are too few of one sort, the next has more.
pub(crate) fn pairs(singles: &[Planned], count: usize, generator: &Generator) -> Vec<[Planned; 2]> {
    let (telling, all): (Vec<usize>, Vec<usize>) = (
        (0..singles.len()).filter(|at| is_telling(&singles[*at].fault)).collect(),
        (0..singles.len()).collect(),
    );
    let mut drawn = Drawn { singles, generator, seen: BTreeSet::new(), pairs: Vec::new() };
    for (ones, others, upto) in
        [(&telling, &telling, count / 2), (&telling, &all, count * 3 / 4), (&all, &all, count)]
    {
        drawn.draw(ones, others, upto);
    }
    drawn.pairs
}

/// Whether a fault leaves something half done, undone, unknown or unseen: with another fault, it shows the most.
fn is_telling(fault: &Fault) -> bool {
    match fault {
        Fault::CrashBefore
        | Fault::CrashAfter
        | Fault::CrashStale(_)
        | Fault::LoseAnswer
        | Fault::SetBack => true,
        Fault::Hide(time) => !time.is_zero(),
        _ => false,
    }
}

struct Drawn<'a> {
    singles: &'a [Planned],
    generator: &'a Generator,
    /// The positions of the faults of each pair, the smaller one first.
    seen: BTreeSet<(usize, usize)>,
    pairs: Vec<[Planned; 2]>,
}

/// After so many draws in a row that bring nothing new, nearly all pairs are drawn.
const MOST_MISSES: u32 = 1000;

impl Drawn<'_> {
    /// Draws pairs of one of the `ones` and one of the `others`, until there are so many in all.
    fn draw(&mut self, ones: &[usize], others: &[usize], upto: usize) {
        let pick = |of: &[usize]| of[self.generator.below(of.len() as u64) as usize];
        let mut misses = 0;
        while self.pairs.len() < upto && misses < MOST_MISSES && !ones.is_empty() && !others.is_empty() {
            let (one, other) = (pick(ones), pick(others));
            let is_pair = self.singles[one].site != self.singles[other].site;
            if is_pair && self.seen.insert((one.min(other), one.max(other))) {
                self.pairs.push([one, other].map(|at| self.singles[at].clone()));
                misses = 0;
            } else {
                misses += 1;
            }
        }
    }
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
    fn the_faults_of_a_pair_are_at_two_places_and_each_pair_is_drawn_once() {
        let plan = singles(&places(), &FaultKind::ALL.into());
        let of = |count| pairs(&plan, count, &Generator::seeded(1));
        let most = of(10_000);
        assert!(most.iter().all(|[one, other]| one.site != other.site));
        let distinct: BTreeSet<_> = most
            .iter()
            .map(|pair| {
                let mut texts = pair.each_ref().map(ToString::to_string);
                texts.sort();
                texts
            })
            .collect();
        assert_eq!(distinct.len(), most.len());
        // Each fault of the one place with each of the other.
        let possible = (plan.len() / 2).pow(2);
        assert!(most.len() > possible * 9 / 10 && most.len() <= possible, "{} of {possible}", most.len());
        assert_eq!(of(50), of(50));
    }

    #[test]
    fn pairs_of_the_most_telling_faults_come_first() {
        let plan = singles(&places(), &FaultKind::ALL.into());
        let pairs = pairs(&plan, 20, &Generator::seeded(1));
        assert_eq!(pairs.len(), 20);
        let telling = |pair: &[Planned; 2]| pair.iter().filter(|planned| is_telling(&planned.fault)).count();
        assert!(pairs[..10].iter().all(|pair| telling(pair) == 2));
        assert!(pairs[10..15].iter().all(|pair| telling(pair) >= 1));
        assert!(pairs[15..].iter().any(|pair| telling(pair) == 0));
        let none = super::pairs(&plan[..1], 20, &Generator::seeded(1));
        assert!(none.is_empty() && super::pairs(&[], 20, &Generator::seeded(1)).is_empty());
    }
}
