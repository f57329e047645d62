//! Causes in an object that is no key of the controller.

use super::{Cause, kubectl};
use crate::explain::facts::RelatedFacts;
use crate::explain::key_view::Level;

/// Returns what is the matter with the object itself.
pub(super) fn related(facts: &RelatedFacts<'_>) -> Cause {
    let RelatedFacts { controller, main, kind, key, .. } = facts;
    let name = format!("{} {key}", kind.kind);
    match (&facts.object, &facts.maps_to[..]) {
        (None, _) => Cause::new(
            "notFound",
            Level::Problem,
            format!("{name} is not in the cache: it does not exist, or is not selected"),
            format!(
                "check its name, namespace and labels with {}",
                kubectl(&kind.plural, key, " --show-labels")
            ),
        ),
        (Some(_), []) if facts.is_owned => Cause::new(
            "noOwner",
            Level::Problem,
            format!(
                "{name} names no {} as its controller, so its changes reconcile nothing in {controller}",
                main.kind
            ),
            "set its controller owner reference, as Context::apply does",
        ),
        (Some(_), []) => Cause::new(
            "noMapping",
            Level::Problem,
            format!(
                "the mapping of controller {controller} returns no {} for {name}, so its changes reconcile nothing",
                main.kind
            ),
            "check the fields that the mapping reads, and the index that it uses",
        ),
        (Some(_), keys) => {
            let mut shown: Vec<_> = keys.iter().take(3).map(ToString::to_string).collect();
            if keys.len() > shown.len() {
                shown.push(format!("{} more", keys.len() - shown.len()));
            }
            Cause::new(
                "related",
                Level::Ok,
                format!(
                    "a change of {name} reconciles {} {} in controller {controller}",
                    main.kind,
                    shown.join(", ")
                ),
                format!("ask for {} {}", main.kind, shown.first().map_or("", String::as_str)),
            )
        }
    }
}
