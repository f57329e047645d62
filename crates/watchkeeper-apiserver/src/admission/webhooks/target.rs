//! Where a webhook is reached: a URL, or a Service of the cluster.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::failure::quoted;
use crate::kinds::cells::text;
use crate::state::core::Core;
use crate::state::store::Key;

/// The `clientConfig` of a webhook.
#[derive(Clone, Debug)]
pub(super) struct Target {
    place: Place,
    /// The path with its query, if any.
    path: String,
    /// The trusted certificates, as PEM.
    authority: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Place {
    Host { name: String, port: u16 },
    Service { namespace: String, name: String, port: u16 },
}

impl Target {
    /// Reads a `clientConfig`, which has been validated.
    pub(super) fn read(config: &Value) -> Self {
        let authority = STANDARD.decode(text(&config["caBundle"])).unwrap_or_default();
        let service = &config["service"];
        if service.is_object() {
            let place = Place::Service {
                namespace: text(&service["namespace"]).to_owned(),
                name: text(&service["name"]).to_owned(),
                port: port(&service["port"]),
            };
            let path = text(&service["path"]).trim_start_matches('/');
            return Self { place, path: format!("/{path}"), authority };
        }
        let url = text(&config["url"]);
        let rest = url.strip_prefix("https://").unwrap_or(url);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().unwrap_or(443)),
            _ => (host, 443),
        };
        let path = if path.is_empty() { "/" } else { path };
        let place = Place::Host { name: name.to_owned(), port };
        Self { place, path: path.to_owned(), authority }
    }

    /// Host and port as they stand in a URL.
    pub(super) fn host(&self) -> String {
        match &self.place {
            Place::Host { name, port: 443 } => name.clone(),
            Place::Host { name, port } => format!("{name}:{port}"),
            Place::Service { namespace, name, port } => format!("{name}.{namespace}.svc:{port}"),
        }
    }

    /// The name that the server's certificate must have.
    pub(super) fn server_name(&self) -> String {
        match &self.place {
            Place::Host { name, .. } => name.trim_matches(['[', ']']).to_owned(),
            Place::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// The path of a call, with its timeout.
    pub(super) fn path(&self, timeout: Duration) -> String {
        format!("{}?timeout={}s", self.path, timeout.as_secs())
    }

    /// The URL of a call, as messages name it.
    pub(super) fn url(&self, timeout: Duration) -> String {
        format!("https://{}{}", self.host(), self.path(timeout))
    }

    /// The certificates that are trusted.
    pub(super) fn roots(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let found: Result<_, _> = CertificateDer::pem_slice_iter(&self.authority).collect();
        found.map_err(|error| format!("unable to load root certificates: {error}"))
    }

    /// Returns the host and port to connect to. There is no network of Services here: their EndpointSlices say where
    /// they are.
    pub(super) fn address(&self, core: &Core) -> Result<(String, u16), String> {
        match &self.place {
            Place::Host { port, .. } => Ok((self.server_name(), *port)),
            Place::Service { namespace, name, port } => endpoint(core, namespace, name, *port),
        }
    }
}

fn port(value: &Value) -> u16 {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443)
}

/// Returns an endpoint of a Service that is not known to be unready.
fn endpoint(core: &Core, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let list = |group: &str, plural: &str| {
        let kind = core.registry.find(group, "v1", plural);
        let found = kind.into_iter().flat_map(|kind| core.store.range(&kind.storage, Some(namespace), None));
        found.map(|stored| (stored.key.clone(), stored.value())).collect::<Vec<_>>()
    };
    let services = list("", "services");
    let service = services.iter().find(|(key, _)| *key == Key::new(namespace, name));
    let Some((_, service)) = service else { return Err(format!("service {} not found", quoted(name))) };
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(served) = ports.find(|served| served["port"] == port) else {
        return Err(format!("no service port {port} found for service {}", quoted(name)));
    };
    let wanted = text(&served["name"]);
    for (_, slice) in list("discovery.k8s.io", "endpointslices") {
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| text(&port["name"]) == wanted).map(|found| &found["port"]);
        let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let ready = endpoints.find(|endpoint| endpoint["conditions"]["ready"] != false);
        if let (Some(number), Some(address)) = (port, ready.and_then(|it| it["addresses"][0].as_str())) {
            return Ok((address.to_owned(), self::port(number)));
        }
    }
    Err(format!("no endpoints available for service {}", quoted(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_target_is_named_as_on_the_real_server() {
        let url = |config: Value| Target::read(&config).url(Duration::from_secs(10));
        assert_eq!(url(json!({"url": "https://a.dev"})), "https://a.dev/?timeout=10s");
        assert_eq!(url(json!({"url": "https://[::1]:8443/x/y"})), "https://[::1]:8443/x/y?timeout=10s");
        let service = json!({"namespace": "n", "name": "s", "path": "p"});
        assert_eq!(url(json!({"service": service})), "https://s.n.svc:443/p?timeout=10s");
        assert_eq!(Target::read(&json!({"url": "https://[::1]:8443"})).server_name(), "::1");
    }
}
