//! Which webhooks are called again, because the object has changed after their call.

use std::collections::BTreeSet;

use serde_json::Value;

/// The state of the mutating plugins in one attempt. They run a second time if one of them changed what an earlier
/// webhook has seen that wishes to see changes.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    /// The webhooks that have been called and wish to see later changes.
    called: BTreeSet<String>,
    /// Those among them that have to be called again.
    due: BTreeSet<String>,
    is_second: bool,
    /// The object after the last call.
    last: Option<Value>,
}

impl Reinvocation {
    /// Returns whether a webhook is to be called in this run of the plugins.
    pub(super) fn is_due(&self, id: &str) -> bool {
        !self.is_second || self.due.contains(id)
    }

    /// Notes a webhook that wishes to see later changes.
    pub(super) fn called(&mut self, id: &str) {
        self.called.insert(id.to_owned());
    }

    /// Notes that the object has changed.
    pub(super) fn changed(&mut self) {
        self.due.append(&mut self.called);
    }

    /// Notes whether the object has changed since the last call.
    pub(super) fn compare(&mut self, object: &Value) {
        if self.last.as_ref().is_some_and(|last| last != object) {
            self.changed();
        }
    }

    /// Keeps the object after a call, if it matters.
    pub(super) fn keep(&mut self, object: &Value) {
        self.last = (!self.is_second).then(|| object.clone());
    }

    /// Begins the second run, if there has to be one. `object` is the result of the first.
    pub(super) fn begin_second(&mut self, object: &Value) -> bool {
        self.compare(object);
        self.is_second = !self.due.is_empty();
        self.is_second
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_is_called_again_if_a_later_one_changed_the_object() {
        let mut state = Reinvocation::default();
        assert!(state.is_due("a"));
        state.changed();
        state.called("a");
        state.keep(&json!(1));
        assert!(!state.begin_second(&json!(1)), "its own change does not count");
        state.changed();
        state.called("b");
        assert!(state.begin_second(&json!(1)));
        assert!(state.is_due("a") && !state.is_due("b"));
    }

    #[test]
    fn a_webhook_is_called_again_if_another_plugin_changed_the_object() {
        let mut state = Reinvocation::default();
        state.called("a");
        state.keep(&json!(1));
        assert!(state.begin_second(&json!(2)));
        assert!(state.is_due("a"));
    }
}
