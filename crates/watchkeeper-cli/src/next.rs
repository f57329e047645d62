//! Suggested kubectl commands, one after another: the next appears when the previous one was seen to work.

/// What a user did, as the view saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    FooChanged,
    DeploymentEdited,
    DeploymentDeleted,
    FooDeleted,
}

/// The suggestions: the deed that completes each, its description, and its command.
const STEPS: [(Deed, &str, &str); 4] = [
    (Deed::FooChanged, "scale it", r#"patch foo example-foo --type merge -p '{"spec":{"replicas":3}}'"#),
    (
        Deed::DeploymentEdited,
        "edit its Deployment; the controller restores it",
        "scale deployment example-foo --replicas 7",
    ),
    (
        Deed::DeploymentDeleted,
        "delete its Deployment; the controller creates it again",
        "delete deployment example-foo",
    ),
    (Deed::FooDeleted, "delete it; its Deployment is garbage collected", "delete foo example-foo"),
];

/// The position in the list of suggestions.
pub(crate) struct Next {
    /// The kubectl command with the flags that select this cluster.
    kubectl: String,
    done: usize,
}

impl Next {
    /// Starts at the first step, or after the last if there is no example to try things on.
    pub(crate) fn new(kubectl: String, has_example: bool) -> Self {
        Self { kubectl, done: if has_example { 0 } else { STEPS.len() } }
    }

    /// Advances to the next step if `deed` completes the current one.
    pub(crate) fn saw(&mut self, deed: Deed) {
        if STEPS.get(self.done).is_some_and(|(awaited, ..)| *awaited == deed) {
            self.done += 1;
        }
    }

    /// The current suggestion: its description and its command.
    pub(crate) fn command(&self) -> (&'static str, String) {
        let (_, what, command) =
            STEPS.get(self.done).copied().unwrap_or((Deed::FooDeleted, "list everything", ALL));
        (what, format!("{} {command}", self.kubectl))
    }

    /// All commands, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        let steps = STEPS[self.done..].iter().map(|(.., command)| *command);
        std::iter::once(ALL).chain(steps).map(|command| format!("{} {command}", self.kubectl))
    }
}

const ALL: &str = "get foos,deployments,events -A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_waits_for_the_one_before() {
        let mut next = Next::new("kubectl".to_owned(), true);
        next.saw(Deed::FooDeleted);
        assert!(next.command().1.starts_with("kubectl patch foo"));
        next.saw(Deed::FooChanged);
        assert_eq!(next.command().1, "kubectl scale deployment example-foo --replicas 7");
        for deed in [Deed::DeploymentEdited, Deed::DeploymentDeleted, Deed::FooDeleted, Deed::FooDeleted] {
            next.saw(deed);
        }
        assert_eq!(next.command().1, "kubectl get foos,deployments,events -A");
    }

    #[test]
    fn without_an_example_there_is_nothing_to_try_things_on() {
        let next = Next::new("kubectl".to_owned(), false);
        assert_eq!(next.all().collect::<Vec<_>>(), [next.command().1]);
    }
}
