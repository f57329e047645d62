//! `DefaultIngressClass`: an Ingress that names no class gets the default one.

use std::cmp::Reverse;

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::Result;
use crate::kinds::cells::text;
use crate::kinds::meta;

const GROUP: &str = "networking.k8s.io";
/// The annotation of the default class.
const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation that named a class before there was a field.
const LEGACY: &str = "kubernetes.io/ingress.class";

#[derive(Debug)]
pub(in crate::admission) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        let is_new = attempt.operation == Operation::Create && attempt.is_about(GROUP, "ingresses");
        let has_class = object["spec"].get("ingressClassName").is_some_and(|class| !class.is_null())
            || object["metadata"]["annotations"].get(LEGACY).is_some();
        if !is_new || has_class {
            return Ok(());
        }
        let classes = attempt.list(GROUP, "v1", "ingressclasses", None);
        let values = classes.iter().map(|class| class.value());
        let defaults = values.filter(|class| class["metadata"]["annotations"][DEFAULT] == "true");
        // Of several the newest, and of those the first by name.
        let newest = defaults.min_by_key(|class| {
            let created = text(&class["metadata"]["creationTimestamp"]).to_owned();
            (Reverse(created), meta::text(class, "name").to_owned())
        });
        if let Some(class) = newest {
            object["spec"]["ingressClassName"] = meta::text(&class, "name").into();
        }
        Ok(())
    }
}
