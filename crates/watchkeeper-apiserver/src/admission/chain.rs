//! The chain of plugins, in the order of the real server.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::plugin::Plugin;
use crate::admission::plugins::default_ingress_class::DefaultIngressClass;
use crate::admission::plugins::limit_ranger::LimitRanger;
use crate::admission::plugins::priority::Priority;
use crate::admission::plugins::resource_quota::ResourceQuota;
use crate::admission::plugins::runtime_class::RuntimeClass;
use crate::admission::plugins::service_account::ServiceAccount;
use crate::admission::plugins::storage_object_in_use_protection::StorageObjectInUseProtection;
use crate::admission::policies::mutating::MutatingPolicies;
use crate::admission::policies::validating::ValidatingPolicies;
use crate::admission::reinvocation::Reinvocation;
use crate::admission::webhooks::mutating::MutatingWebhooks;
use crate::admission::webhooks::validating::ValidatingWebhooks;
use crate::failure::Result;

/// Makes a plugin.
type Make = fn() -> Box<dyn Plugin>;

/// All plugins by name, in the order in which they run.
pub(super) const PLUGINS: &[(&str, Make)] = &[
    ("LimitRanger", || Box::new(LimitRanger)),
    ("ServiceAccount", || Box::new(ServiceAccount)),
    (PRIORITY, || Box::new(Priority)),
    ("StorageObjectInUseProtection", || Box::new(StorageObjectInUseProtection)),
    ("RuntimeClass", || Box::new(RuntimeClass)),
    ("DefaultIngressClass", || Box::new(DefaultIngressClass)),
    ("MutatingAdmissionPolicy", || Box::new(MutatingPolicies::default())),
    ("MutatingAdmissionWebhook", || Box::new(MutatingWebhooks::default())),
    ("ValidatingAdmissionPolicy", || Box::new(ValidatingPolicies::default())),
    ("ValidatingAdmissionWebhook", || Box::new(ValidatingWebhooks::default())),
    ("ResourceQuota", || Box::new(ResourceQuota)),
];

/// The plugin that resolves priority classes.
pub(super) const PRIORITY: &str = "Priority";

/// The plugins of a server.
#[derive(Debug)]
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Chain {
    /// The plugins with these names.
    pub(super) fn of(is_selected: impl Fn(&str) -> bool) -> Self {
        let selected = PLUGINS.iter().filter(|(name, _)| is_selected(name));
        Self { plugins: selected.map(|(_, make)| make()).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    pub(super) fn mutate(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        *attempt.session.reinvocation() = Reinvocation::default();
        self.mutate_once(attempt, object)?;
        let again = attempt.session.reinvocation().begin_second(object);
        match again {
            true => self.mutate_once(attempt, object),
            false => Ok(()),
        }
    }

    fn mutate_once(&self, attempt: &Attempt<'_>, object: &mut Value) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.mutate(attempt, object))
    }

    pub(super) fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        self.plugins.iter().try_for_each(|plugin| plugin.validate(attempt, object))
    }
}
