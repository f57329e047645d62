//! Options of a list or watch, parsed from the query of the URL.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;

/// The query of a list or watch, as far as it is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) watch: bool,
    pub(super) limit: usize,
    pub(super) from: Option<Continue>,
    /// 0 when it is absent or `0`: both mean any state.
    pub(super) resource_version: u64,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
    /// Whether the objects that are there come before the changes of a watch; without it, the version decides.
    pub(super) initial_events: Option<bool>,
}

/// Where a list goes on, and in which state of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continue {
    pub(super) resource_version: u64,
    pub(super) start: usize,
}

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionsError {
    #[error("unable to parse {name}={value:?}: a number is needed")]
    Number { name: String, value: String },
    #[error("the continue token {0:?} is not one of this server")]
    Continue(String),
    #[error("specifying resource version is not allowed when using continue")]
    ContinueWithVersion,
    #[error("this server serves all Pods: leave {0} out")]
    Selector(String),
    #[error("ListOptions.meta.k8s.io \"\" is invalid: {0}")]
    Invalid(&'static str),
}

impl OptionsError {
    /// The HTTP code and the `reason` of the Status that says so.
    pub(super) fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            _ => (StatusCode::BAD_REQUEST, "BadRequest"),
        }
    }
}

impl Options {
    /// Reads a query. Options that do not change what a client sees here, such as `pretty`, are ignored.
    pub(super) fn parse(query: &str) -> Result<Self, OptionsError> {
        let (mut options, mut version_match) = (Self::default(), None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || {
                let error = || OptionsError::Number { name: name.to_string(), value: value.to_string() };
                if value.is_empty() { Ok(0) } else { value.parse::<u64>().map_err(|_| error()) }
            };
            let flag = matches!(&*value, "1" | "true" | "True");
            match &*name {
                "watch" => options.watch = flag,
                "limit" => options.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" if !value.is_empty() => options.from = Some(Continue::parse(&value)?),
                "resourceVersion" => options.resource_version = number()?,
                "allowWatchBookmarks" => options.bookmarks = flag,
                "timeoutSeconds" => options.timeout_seconds = Some(number()?).filter(|seconds| *seconds > 0),
                "sendInitialEvents" if !value.is_empty() => options.initial_events = Some(flag),
                "resourceVersionMatch" if !value.is_empty() => version_match = Some(value.into_owned()),
                "labelSelector" | "fieldSelector" if !value.is_empty() => {
                    return Err(OptionsError::Selector(name.into_owned()));
                }
                _ => {}
            }
        }
        if options.from.is_some() && options.resource_version != 0 {
            return Err(OptionsError::ContinueWithVersion);
        }
        options.check_initial_events(version_match.as_deref())?;
        Ok(options)
    }

    /// The combinations that an API server refuses.
    fn check_initial_events(&self, version_match: Option<&str>) -> Result<(), OptionsError> {
        let invalid = |reason| Err(OptionsError::Invalid(reason));
        match (self.watch, self.initial_events, version_match) {
            (false, Some(_), _) => {
                invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")
            }
            (true, Some(_), _) if self.from.is_some() => {
                invalid("continue: Forbidden: continue is forbidden when sendInitialEvents is provided")
            }
            (true, Some(_), Some("NotOlderThan")) | (true, None, None) | (false, None, _) => Ok(()),
            (true, Some(_), _) => invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (true, None, Some(_)) => invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        }
    }
}

impl Continue {
    fn parse(token: &str) -> Result<Self, OptionsError> {
        let read = || {
            let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
            let (version, start) = std::str::from_utf8(&bytes).ok()?.split_once('/')?;
            Some(Self { resource_version: version.parse().ok()?, start: start.parse().ok()? })
        };
        read().ok_or_else(|| OptionsError::Continue(token.to_owned()))
    }

    /// The token that [`Options::parse`] reads.
    pub(super) fn token(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}/{}", self.resource_version, self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_the_way_to_the_client_and_back() {
        let from = Continue { resource_version: 10_000_000, start: 500 };
        let options = Options::parse(&format!("limit=500&continue={}", from.token())).unwrap();
        assert_eq!(options, Options { limit: 500, from: Some(from), ..Options::default() });
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let code = |query| Options::parse(query).unwrap_err().code().0.as_u16();
        assert_eq!(code("watch=1&sendInitialEvents=true"), 422);
        assert_eq!(code("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact"), 422);
        assert_eq!(code("watch=1&resourceVersionMatch=NotOlderThan"), 422);
        assert_eq!(code("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), 422);
        assert_eq!(code("labelSelector=app%3Dweb"), 400);
        assert_eq!(code("limit=many"), 400);
        assert_eq!(code("continue=!"), 400);
        let token = Continue { resource_version: 1, start: 1 }.token();
        assert_eq!(code(&format!("continue={token}&resourceVersion=5")), 400);
    }
}
