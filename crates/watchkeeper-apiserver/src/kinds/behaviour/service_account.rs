//! Service accounts.

use super::{Behaviour, Subresource};

#[derive(Debug)]
pub(in crate::kinds) struct ServiceAccount;

impl Behaviour for ServiceAccount {
    fn subresources(&self) -> &'static [Subresource] {
        &[Subresource {
            name: "token",
            body: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: &["create"],
        }]
    }
}
