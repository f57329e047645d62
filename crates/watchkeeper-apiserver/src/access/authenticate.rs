//! Authentication: the user of a request on a socket.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use http_body::Body;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

use crate::access::authorize::Authorizer;
use crate::access::local;
use crate::access::tokens::Tokens;
use crate::access::user::User;
use crate::failure::{Failure, Result};
use crate::state::core::Core;

/// The user of a request, among its extensions. A request without one is made by the server's own admin.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Arc<User>);

/// What requests are authenticated against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticator<'a> {
    /// The token of the admin; `None` on the plain HTTP listener, where everybody is the admin.
    pub(crate) token: Option<&'a str>,
    pub(crate) tokens: &'a Tokens,
    pub(crate) authorizer: &'a Authorizer,
    pub(crate) core: &'a Mutex<Core>,
}

impl Authenticator<'_> {
    /// Returns the user of a request, or `None` for the admin; refuses one with wrong credentials.
    ///
    /// A request over plain HTTP must come from a local program. One without credentials is anonymous if roles decide,
    /// and is refused otherwise.
    pub(crate) fn user_of<B: Body>(&self, request: &Request<B>) -> Result<Option<Caller>> {
        let Some(admin) = self.token else {
            return local::refusal(request).map_or(Ok(None), Err);
        };
        let Some(sent) = bearer(request.headers()) else {
            let is_absent = !request.headers().contains_key(AUTHORIZATION);
            let anonymous = || Some(Caller(Arc::new(User::anonymous())));
            let is_served = is_absent && self.authorizer.admits_anonymous();
            return if is_served { Ok(anonymous()) } else { Err(Failure::unauthorized()) };
        };
        if sent.as_bytes().ct_eq(admin.as_bytes()).into() {
            return Ok(None);
        }
        let verified = self.tokens.verify(self.core, sent, &[]);
        verified.map(|verified| Some(Caller(Arc::new(verified.user)))).map_err(|_| Failure::unauthorized())
    }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, sent) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| sent.trim()).filter(|sent| !sent.is_empty())
}
