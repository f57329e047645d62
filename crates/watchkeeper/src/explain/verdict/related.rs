//! Causes in an object that is no key of the controller.

use super::{Cause, ERROR, kubectl};
use crate::explain::facts::RelatedFacts;
use crate::explain::key_view::Level;
use crate::explain::query::cut;

/// Returns what is the matter with the object itself.
pub(super) fn related(facts: &RelatedFacts<'_>) -> Cause {
    let RelatedFacts { controller, main, kind, key, .. } = facts;
    let name = format!("{} {key}", kind.kind);
    match (&facts.object, &facts.maps_to.keys[..], &facts.maps_to.panic) {
        (None, ..) => Cause::new(
            "notFound",
            Level::Problem,
            format!("{name} is not in the cache: it does not exist, or is not selected"),
            format!(
                "check its name, namespace and labels with {}",
                kubectl(&kind.plural, key, " --show-labels")
            ),
        ),
        (Some(_), [], _) if facts.is_owned => Cause::new(
            "noOwner",
            Level::Problem,
            format!(
                "{name} has no {} as its controller owner, so a change to it reconciles nothing in controller \
                 {controller}",
                main.kind
            ),
            "set its controller owner reference, as Context::apply does",
        ),
        (Some(_), [], Some(message)) => Cause::new(
            "mappingPanics",
            Level::Problem,
            format!(
                "the mapping of controller {controller} panics for {name} ({}), so a change to it reconciles nothing",
                cut(message, ERROR)
            ),
            "fix the bug that the panic message points to",
        ),
        (Some(_), [], None) => Cause::new(
            "noMapping",
            Level::Problem,
            format!(
                "the mapping of controller {controller} returns no {} for {name}, so a change to it reconciles nothing",
                main.kind
            ),
            "check the fields that the mapping reads, and the index that it uses",
        ),
        (Some(_), keys, _) => {
            let mut shown: Vec<_> = keys.iter().take(3).map(ToString::to_string).collect();
            if keys.len() > shown.len() {
                shown.push(format!("{} more", keys.len() - shown.len()));
            }
            Cause::new(
                "related",
                Level::Ok,
                format!(
                    "a change to {name} reconciles {} {} in controller {controller}",
                    main.kind,
                    shown.join(", ")
                ),
                format!("ask about {} {}", main.kind, shown.first().map_or("", String::as_str)),
            )
        }
    }
}
