//! Quantities by the names of resources.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Quantities by the names of resources, such as those of a `resources.requests`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads the members of an object that are quantities.
pub fn amounts(of: &Value) -> Amounts {
    let members = of.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), Quantity::of(value)?))).collect()
}

/// Amounts as messages show them: `cpu=1,memory=1Gi`.
pub fn shown(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

/// Adds amounts to others.
pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.remove(name).unwrap_or_default() + amount.clone();
        to.insert(name.clone(), sum);
    }
}

/// Raises amounts to others that are greater.
pub(crate) fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|known| known < amount) {
            to.insert(name.clone(), amount.clone());
        }
    }
}
