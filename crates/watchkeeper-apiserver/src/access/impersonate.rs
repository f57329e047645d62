//! Impersonation: requests that a user makes as another one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::access::attributes::{Attributes, Object, Resource};
use crate::access::user::{
    ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, as_node, as_service_account,
    service_account_groups,
};
use crate::failure::{Failure, Result, quoted};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Returns the user as whom a request is to be made; `None` if it is made as its own user.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let texts = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).into_iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut extra = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_decode_str(key).decode_utf8().unwrap_or(Cow::Borrowed(key)).into_owned();
            extra.insert(key, texts(name.as_str()));
        }
    }
    let user = User { name: first(USER), uid: first(UID), groups: texts(GROUP), extra };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(Failure::bad_request(format!("requested {} without impersonating a user name", shown(&user))))
}

/// A user as the real server prints it in its refusal.
fn shown(user: &User) -> String {
    let list = |values: &[String]| values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ");
    let strings = |values: &[String], absent: &str| match values.is_empty() {
        true => format!("[]string({absent})"),
        false => format!("[]string{{{}}}", list(values)),
    };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let pairs = user
                .extra
                .iter()
                .map(|(key, values)| format!("{}:[]string{{{}}}", quoted(key), list(values)));
            format!("map[string][]string{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    };
    let (name, uid, groups) = (quoted(&user.name), quoted(&user.uid), strings(&user.groups, "nil"));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// How a user may be impersonated.
struct Mode {
    /// Empty for the older mode, which is not limited to certain requests.
    name: &'static str,
    verb: String,
}

/// Returns the user to go on with, if `may` allows `requestor` to impersonate `wanted` for the request `asked`.
///
/// The modes are tried in the real server's order. If none applies, the refusal is that of the first.
pub(crate) fn impersonate(
    requestor: &User,
    wanted: &User,
    asked: &Attributes<'_>,
    may: &dyn Fn(&Attributes<'_>) -> Result<()>,
) -> Result<User> {
    let mut first = None;
    for mode in modes(requestor, wanted) {
        match mode.check(requestor, wanted, asked, may) {
            Ok(user) => return Ok(user),
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    Err(first.unwrap_or_else(|| Failure::internal("all impersonation modes failed")))
}

fn modes(requestor: &User, wanted: &User) -> impl Iterator<Item = Mode> {
    let name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
    let (node, account) = (as_node(&wanted.name), as_service_account(&wanted.name).is_some());
    let own = requestor.extra.get("authentication.kubernetes.io/node-name").and_then(|names| names.first());
    let is_own =
        node.is_some() && as_service_account(&requestor.name).is_some() && own.map(String::as_str) == node;
    [
        (name_only && is_own, "associated-node"),
        (name_only && node.is_some(), "arbitrary-node"),
        (name_only && account, "serviceaccount"),
        (node.is_none() && !account, "user-info"),
        (true, ""),
    ]
    .into_iter()
    .filter(|(applies, _)| *applies)
    .map(|(_, name)| Mode {
        name,
        verb: if name.is_empty() { "impersonate".to_owned() } else { format!("impersonate:{name}") },
    })
}

impl Mode {
    fn check(
        &self,
        requestor: &User,
        wanted: &User,
        asked: &Attributes<'_>,
        may: &dyn Fn(&Attributes<'_>) -> Result<()>,
    ) -> Result<User> {
        let limited = !self.name.is_empty();
        if limited {
            let verb = format!("impersonate-on:{}:{}", self.name, asked.verb);
            may(&Attributes { verb: &verb, object: asked.object })?;
        }
        let group = if limited { AUTHENTICATION } else { "" };
        let of = |group, resource, name| Resource { group, resource, name, ..Resource::default() };
        let verb = self.verb.as_str();
        let may = |resource: Resource<'_>| may(&Attributes { verb, object: Object::Resource(resource) });
        let mut user = wanted.clone();
        may(match (as_service_account(&wanted.name), as_node(&wanted.name)) {
            (Some((namespace, name)), _) => {
                if wanted.groups.is_empty() {
                    user.groups = service_account_groups(namespace);
                }
                Resource { namespace, ..of(group, "serviceaccounts", name) }
            }
            (None, Some(name)) if limited => {
                user.groups = vec!["system:nodes".to_owned()];
                of(group, "nodes", if self.name == "associated-node" { "*" } else { name })
            }
            _ => of(group, "users", &wanted.name),
        })?;
        if !wanted.uid.is_empty() {
            may(of(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        if limited && wanted.groups.iter().any(|group| group == MASTERS) {
            let why = "impersonating the system:masters group is not allowed";
            let asked = Attributes::of_resource(verb, of(group, "groups", MASTERS));
            return Err(asked.forbidden(&requestor.name, why));
        }
        wanted.groups.iter().try_for_each(|name| may(of(group, "groups", name)))?;
        for (key, values) in &wanted.extra {
            let of_key = Resource { subresource: key, ..of(AUTHENTICATION, "userextras", "") };
            values.iter().try_for_each(|name| may(Resource { name, ..of_key }))?;
        }
        Ok(with_status_group(user))
    }
}

/// Adds the group that says whether the user has credentials.
fn with_status_group(user: User) -> User {
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let group = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if has(UNAUTHENTICATED) || has(group) { user } else { user.group(group) }
}
