//! Which admission plugins a server has.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::admission::chain::{Chain, PLUGINS, PRIORITY};

/// The admission plugins of a server. The default is none.
///
/// ```
/// use watchkeeper_apiserver::Admission;
///
/// assert_eq!("*".parse(), Ok(Admission::all()));
/// assert_eq!("Priority".parse::<Admission>()?.names().collect::<Vec<_>>(), ["Priority"]);
/// assert!("*,-Priority".parse::<Admission>()?.names().all(|name| name != "Priority"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission(BTreeSet<&'static str>);

impl Admission {
    /// All plugins.
    pub fn all() -> Self {
        Self(PLUGINS.iter().map(|(name, _)| *name).collect())
    }

    /// No plugin.
    pub fn none() -> Self {
        Self::default()
    }

    /// The names of the plugins, which are those of kube-apiserver, in the order in which they run.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        PLUGINS.iter().map(|(name, _)| *name).filter(|name| self.0.contains(name))
    }

    /// The same plugins, except the one of that name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    pub(crate) fn chain(&self) -> Chain {
        Chain::of(|name| self.0.contains(name))
    }

    /// Returns whether the system's priority classes are needed.
    pub(crate) fn needs_priorities(&self) -> bool {
        self.0.contains(PRIORITY)
    }
}

impl FromStr for Admission {
    type Err = String;

    /// Reads a list: `*` for all plugins, `NAME` for one, `-NAME` to leave one out.
    fn from_str(list: &str) -> Result<Self, String> {
        let entries: Vec<_> = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        let mut selected = if entries.contains(&"*") { Self::all() } else { Self::none() };
        for entry in entries.into_iter().filter(|entry| *entry != "*") {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            let Some((known, _)) = PLUGINS.iter().find(|(known, _)| *known == name) else {
                let all = Self::all().names().collect::<Vec<_>>().join(", ");
                return Err(format!("there is no admission plugin {name}: expected one of {all}"));
            };
            match entry.starts_with('-') {
                true => selected.0.remove(known),
                false => selected.0.insert(known),
            };
        }
        Ok(selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_selected_by_a_list() {
        let parse = |list: &str| list.parse::<Admission>();
        assert_eq!(parse(""), Ok(Admission::none()));
        assert_eq!(parse("-Priority,*").map(|it| it.names().count()), Ok(PLUGINS.len() - 1));
        assert_eq!(parse("*,-Priority,Priority"), Ok(Admission::all()));
        assert_eq!(Ok(Admission::all().without("Priority")), parse("*,-Priority"));
        assert!(parse("*,Other").is_err_and(|error| error.contains("there is no admission plugin Other")));
    }
}
