//! The User-Agent of every request: `name/version (os/arch) watchkeeper/version`.

use std::env::{self, consts};
use std::path::Path;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use parking_lot::RwLock;

/// The User-Agent of a process; clones share it.
#[derive(Clone, Debug)]
pub(super) struct UserAgent(Arc<RwLock<HeaderValue>>);

impl Default for UserAgent {
    /// Returns the name of the executable, with an unknown version.
    fn default() -> Self {
        let program = env::args_os().next().unwrap_or_default();
        let name = Path::new(&program).file_stem().unwrap_or_default().to_string_lossy();
        Self::from(header(&name, "unknown"))
    }
}

impl From<HeaderValue> for UserAgent {
    fn from(value: HeaderValue) -> Self {
        Self(Arc::new(RwLock::new(value)))
    }
}

impl UserAgent {
    pub(super) fn set(&self, name: &str, version: &str) {
        *self.0.write() = header(name, version);
    }

    pub(super) fn value(&self) -> HeaderValue {
        self.0.read().clone()
    }

    /// Adds the header to a request that has none.
    pub(super) fn sign<B>(&self, mut request: Request<B>) -> Request<B> {
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.value());
        request
    }
}

fn header(name: &str, version: &str) -> HeaderValue {
    let (name, version) = (product(name), product(version));
    let ours = env!("CARGO_PKG_VERSION");
    let text = format!("{name}/{version} ({}/{}) watchkeeper/{ours}", consts::OS, arch());
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("watchkeeper"))
}

/// Returns `part` in the characters of a header, with a bounded length.
fn product(part: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let text: String = part.chars().map(|c| if allowed(c) { c } else { '-' }).take(128).collect();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

/// Returns the architecture as Kubernetes names it.
fn arch() -> &'static str {
    match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(agent: &UserAgent, request: Request<()>) -> String {
        agent.sign(request).headers()[USER_AGENT].to_str().unwrap().to_owned()
    }

    #[test]
    fn it_names_program_system_and_library() {
        let agent = UserAgent::default();
        let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { arch() };
        let ours = format!("({}/{arch}) watchkeeper/{}", consts::OS, env!("CARGO_PKG_VERSION"));
        let default = signed(&agent, Request::new(()));
        assert!(default.starts_with("watchkeeper-"), "the test's own executable: {default}");
        assert!(default.ends_with(&format!("/unknown {ours}")), "{default}");
        agent.clone().set("my controller\r\n", "1.2.3+build");
        assert_eq!(signed(&agent, Request::new(())), format!("my-controller--/1.2.3+build {ours}"));
        agent.set("", "");
        assert_eq!(signed(&agent, Request::new(())), format!("unknown/unknown {ours}"));
    }

    #[test]
    fn a_request_that_has_one_keeps_it() {
        let request = Request::builder().header(USER_AGENT, "mine").body(()).unwrap();
        assert_eq!(signed(&UserAgent::default(), request), "mine");
    }
}
