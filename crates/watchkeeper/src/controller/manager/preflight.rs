//! The check at the start whether the program has the permissions that it needs.
//!
//! It asks one SelfSubjectAccessReview per verb, resource and place, a few at a time. A SelfSubjectRulesReview would be one request
//! per namespace, but it does not tell cluster-wide permissions from those in a namespace, and authorizers other than RBAC leave it
//! incomplete: it could not name what is missing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};

use super::role::Role;
use crate::report::WithCauses;
use crate::source::{Client, Scope};
use crate::wire::{ApiError, Class};

/// How long the whole check may take.
const BUDGET: Duration = Duration::from_secs(10);
/// How many questions are asked at the same time.
const AT_ONCE: usize = 8;

/// What a program does about missing permissions at its start; see
/// [`ManagerBuilder::preflight`](super::ManagerBuilder::preflight) and [`Preflight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum AccessCheck {
    /// Nothing: the server is not asked
    #[default]
    Off,
    /// They are reported, and the program goes on: they may be granted later
    Warn,
    /// The program ends before any controller starts
    Fail,
}

/// The permissions that a program needs and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingAccess {
    program: String,
    /// By where they are missing; no role is empty.
    missing: BTreeMap<Scope, Role>,
}

impl MissingAccess {
    /// What is missing cluster-wide and in each namespace.
    pub fn roles(&self) -> impl Iterator<Item = (&Scope, &Role)> {
        self.missing.iter()
    }

    /// The ClusterRole and the Roles, as YAML, that grant exactly what is missing to those they are bound to.
    pub fn manifest(&self) -> String {
        let name = format!("{}-missing", self.program);
        let documents = self.missing.iter().map(|(scope, role)| {
            let (kind, namespace) = match scope.namespace() {
                Some(namespace) => ("Role", format!("  namespace: {namespace}\n")),
                None => ("ClusterRole", String::new()),
            };
            format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{namespace}{role}"
            )
        });
        documents.collect::<Vec<_>>().join("---\n")
    }
}

impl fmt::Display for MissingAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.missing.iter().map(|(scope, role)| {
            let place =
                scope.namespace().map_or("cluster-wide".to_owned(), |name| format!("in namespace {name}"));
            format!("{place}: {}", role.beyond(&Role::default()).join(", "))
        });
        let places: Vec<_> = places.collect();
        write!(f, "permissions are missing {}\nbind this to the program's account:\n", places.join("; "))?;
        f.write_str(&self.manifest())
    }
}

impl Error for MissingAccess {}

/// The check of a program without a [`Manager`](super::Manager), which makes it by itself.
///
/// ```
/// # use watchkeeper::Client;
/// # use watchkeeper::controller::{AccessCheck, MissingAccess, Preflight, Role};
/// # use watchkeeper::source::Scope;
/// # async fn example(client: &Client) -> Result<(), MissingAccess> {
/// let mut role = Role::default();
/// ["list", "watch"].iter().for_each(|verb| role.add("", "configmaps", verb));
/// let preflight = Preflight::new("my-program", AccessCheck::Fail, client).needs(Scope::Cluster, &role);
/// preflight.require().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Preflight {
    check: AccessCheck,
    program: String,
    needed: BTreeMap<Scope, Role>,
    client: Client,
}

/// One permission in one place.
struct Question {
    scope: Scope,
    group: String,
    resource: String,
    /// The object that it is about; `None` for all.
    name: Option<String>,
    verb: String,
}

impl Preflight {
    /// Returns a check for the program of that name, by a client whose writes no election refuses.
    pub fn new(program: &str, check: AccessCheck, client: &Client) -> Self {
        Self { check, program: program.to_owned(), needed: BTreeMap::new(), client: client.clone() }
    }

    /// Adds permissions that the program needs there.
    #[must_use]
    pub fn needs(mut self, scope: Scope, role: &Role) -> Self {
        self.needed.entry(scope).or_default().extend(role);
        self
    }

    /// Returns an error if permissions are missing and the check is [`AccessCheck::Fail`]. It takes ten seconds at most; a server
    /// that cannot answer is not in the way. Cancel-safe.
    ///
    /// # Errors
    ///
    /// All that is missing, with the roles that grant it.
    pub async fn require(&self) -> Result<(), MissingAccess> {
        match self.check {
            AccessCheck::Fail => self.missing().await.map_or(Ok(()), Err),
            AccessCheck::Off | AccessCheck::Warn => Ok(()),
        }
    }

    /// Reports permissions that are missing if the check is [`AccessCheck::Warn`]. Cancel-safe.
    pub async fn warn(&self) {
        if self.check == AccessCheck::Warn
            && let Some(missing) = self.missing().await
        {
            self.client.env().reporter.error("access", &self.program, &missing);
        }
    }

    /// The permissions that the server says are missing. What it does not answer counts as granted.
    async fn missing(&self) -> Option<MissingAccess> {
        let mut missing = BTreeMap::<Scope, Role>::new();
        let answers = async {
            let questions = stream::iter(self.questions());
            let mut answers = questions.map(|question| self.ask(question)).buffer_unordered(AT_ONCE);
            while let Some(answer) = answers.next().await {
                if let Some(Question { scope, group, resource, name, verb }) = answer? {
                    missing.entry(scope).or_default().insert(&group, &resource, name.as_deref(), &verb);
                }
            }
            Ok::<_, ApiError>(())
        };
        match self.client.env().clock.timeout(BUDGET, answers).await {
            Ok(Ok(())) => tracing::debug!("permissions were checked"),
            // The cluster does not offer the check.
            Ok(Err(error)) if matches!(error.class(), Class::NotFound | Class::Forbidden) => {
                tracing::debug!(error = %WithCauses(&error), "cannot check permissions");
            }
            Ok(Err(error)) => tracing::warn!(error = %WithCauses(&error), "cannot check permissions"),
            Err(_late) => tracing::warn!("cannot check permissions: no answer within {BUDGET:?}"),
        }
        let program = self.program.clone();
        (!missing.is_empty()).then_some(MissingAccess { program, missing })
    }

    /// All questions; none about a namespace that one about the whole cluster includes.
    fn questions(&self) -> Vec<Question> {
        let wide = self.needed.get(&Scope::Cluster);
        let mut questions = Vec::new();
        for (scope, role) in &self.needed {
            for rule in role.rules() {
                let is_included = |verb: &String| {
                    *scope != Scope::Cluster && wide.is_some_and(|wide| wide.covers(&rule, verb))
                };
                questions.extend(rule.verbs.iter().filter(|verb| !is_included(verb)).map(|verb| Question {
                    scope: scope.clone(),
                    group: rule.group.clone(),
                    resource: rule.resource.clone(),
                    name: rule.name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
        questions
    }

    /// Returns the question if the answer is no.
    async fn ask(&self, question: Question) -> Result<Option<Question>, ApiError> {
        let (resource, subresource) = match question.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (&*question.resource, None),
        };
        let attributes = ResourceAttributes {
            namespace: question.scope.namespace().map(str::to_owned),
            group: Some(question.group.clone()),
            resource: Some(resource.to_owned()),
            subresource,
            name: question.name.clone(),
            verb: Some(question.verb.clone()),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answered = self.client.api::<SelfSubjectAccessReview>().create(&review).await?;
        Ok(answered.status.is_some_and(|status| !status.allowed).then_some(question))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> MissingAccess {
        let (mut wide, mut narrow) = (Role::default(), Role::default());
        wide.add("apiextensions.k8s.io", "customresourcedefinitions", "create");
        narrow.add("", "secrets", "watch");
        narrow.add("", "secrets", "list");
        let missing = [(Scope::Cluster, wide), (Scope::Namespace("shop".to_owned()), narrow)];
        MissingAccess { program: "web".to_owned(), missing: missing.into() }
    }

    #[test]
    fn the_message_lists_everything_and_the_roles_that_grant_it() {
        assert_eq!(
            missing().to_string(),
            r#"permissions are missing cluster-wide: create customresourcedefinitions.apiextensions.k8s.io; in namespace shop: list secrets, watch secrets
bind this to the program's account:
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: web-missing
rules:
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  verbs: ["create"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: web-missing
  namespace: shop
rules:
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["list", "watch"]
"#
        );
    }
}
