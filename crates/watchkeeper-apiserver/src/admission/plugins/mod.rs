//! The plugins, one file each, named as on the real server. A plugin names the resources that it is about.

pub(super) mod default_ingress_class;
pub(super) mod limit_ranger;
pub(super) mod priority;
pub(super) mod resource_quota;
pub(super) mod runtime_class;
pub(super) mod service_account;
pub(super) mod storage_object_in_use_protection;
