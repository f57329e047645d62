//! Proxies from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, which are read nearly as Go reads them.

use std::env;
use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use super::kubeconfig::has_usable_port;

/// The variables that select a proxy.
#[derive(Default)]
pub(super) struct Proxies {
    /// The proxy of all servers with TLS.
    pub(super) https: String,
    /// The proxy of all others.
    pub(super) http: String,
    /// The servers without a proxy, separated by commas.
    pub(super) no: String,
}

impl Proxies {
    /// Returns those of this process.
    pub(super) fn of_process() -> Self {
        Self::read(|name| env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| set(name).or_else(|| set(&name.to_lowercase())).unwrap_or_default();
        // In a CGI program, that variable is a header of the request.
        let http = if set("REQUEST_METHOD").is_some() { String::new() } else { either("HTTP_PROXY") };
        Self { https: either("HTTPS_PROXY"), http, no: either("NO_PROXY") }
    }

    /// Returns the proxy of `server`, or the variable and its problem. The machine itself needs none.
    pub(super) fn of(&self, server: &Uri) -> Result<Option<Uri>, String> {
        let (name, proxy, port) = match server.scheme_str() {
            Some("https") => ("HTTPS_PROXY", &self.https, 443),
            _ => ("HTTP_PROXY", &self.http, 80),
        };
        let port = server.port_u16().unwrap_or(port);
        if proxy.is_empty() || is_loopback(server) || self.is_excepted(server, port) {
            return Ok(None);
        }
        proxy_url(proxy).map(Some).map_err(|problem| format!("{name} {problem}"))
    }

    fn is_excepted(&self, server: &Uri, port: u16) -> bool {
        let port = port.to_string();
        let mut hosts = self.no.split(',').map(str::trim).filter_map(|entry| match entry.rsplit_once(':') {
            Some((host, only)) if !host.contains(':') || host.ends_with(']') => {
                (only == port).then(|| host.trim_matches(['[', ']']))
            }
            _ => Some(entry),
        });
        hosts.any(|host| {
            let host = if host.starts_with("*.") { &host[1..] } else { host };
            // Only whether there is a proxy matters here, not which one.
            host == "*" || Matcher::builder().all("http://p").no(host).build().intercept(server).is_none()
        })
    }
}

/// Returns the URL of a proxy that may be given as host and port only, or its problem, without the password that may be
/// in it.
pub(super) fn proxy_url(text: &str) -> Result<Uri, String> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = whole.parse().map_err(|error| format!("failed to parse proxy url: {error}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https" | "socks5" | "socks5h")) {
        return Err("has a scheme other than http, https and socks5".to_owned());
    }
    if !has_usable_port(&url) {
        return Err("has a port that is not a number below 65536".to_owned());
    }
    Ok(url)
}

fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_excepted_by_name_address_network_and_port() {
        let proxies = |no: &str| {
            let proxy = "http://proxy:3128".to_owned();
            Proxies { https: proxy.clone(), http: proxy, no: no.into() }
        };
        let is_proxied = |no: &str, server: &str| proxies(no).of(&server.parse().unwrap()).unwrap().is_some();
        let far = "https://10.1.2.3:6443";
        for (no, server) in [
            ("", far),
            ("10.1.2.4, 10.2.0.0/16,,", far),
            ("10.1.2.3:443", far),
            ("k.example", "https://xk.example"),
            ("proxy", far),
            ("[fd00::1]:443", "https://[fd00::1]:6443"),
            ("", "http://10.1.2.3"),
            ("10.1.2.3:443", "http://10.1.2.3"),
        ] {
            assert!(is_proxied(no, server), "{no} {server}");
        }
        for (no, server) in [
            ("", "https://127.0.0.1:6443"),
            ("", "https://127.9.9.9"),
            ("", "https://[::1]:6443"),
            ("", "https://localhost:6443"),
            ("", "http://127.0.0.1:8080"),
            ("10.1.2.3:80", "http://10.1.2.3"),
            ("*", far),
            ("a, 10.1.2.3 ,,", far),
            ("10.1.0.0/16", far),
            ("10.1.2.3:6443", far),
            ("fd00::1", "https://[fd00::1]:6443"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
            ("k.example", "https://K.example:6443"),
            ("k.example", "https://a.k.example"),
            ("*.example", "https://k.example"),
            ("*.example:443", "https://k.example"),
            (".example:443", "https://k.example"),
        ] {
            assert!(!is_proxied(no, server), "{no} {server}");
        }
    }

    #[test]
    fn each_scheme_has_its_variable_in_large_letters_or_small() {
        let of = |variables: &[(&str, &str)], server: &str| {
            let value = |name: &str| {
                let (_, value) = variables.iter().find(|(key, _)| *key == name)?;
                Some((*value).to_owned())
            };
            Proxies::read(value).of(&server.parse().unwrap()).map(|url| url.map(|url| url.to_string()))
        };
        let (plain, secure) = ("http://10.1.2.3", "https://10.1.2.3");
        let proxy = |url: &str| Ok(Some(url.to_owned()));
        let both = [("HTTP_PROXY", "p"), ("HTTPS_PROXY", "s"), ("http_proxy", "x")];
        assert_eq!(of(&both, plain), proxy("http://p/"));
        assert_eq!(of(&both, secure), proxy("http://s/"));
        let small = [("HTTP_PROXY", ""), ("http_proxy", "p"), ("no_proxy", "10.1.2.3:80")];
        assert_eq!(of(&small[..2], plain), proxy("http://p/"));
        assert_eq!((of(&small[..2], secure), of(&small, plain)), (Ok(None), Ok(None)));
        let in_cgi = [("HTTP_PROXY", "p"), ("HTTPS_PROXY", "s"), ("REQUEST_METHOD", "GET")];
        assert_eq!((of(&in_cgi, plain), of(&in_cgi, secure)), (Ok(None), proxy("http://s/")));
        let bad = "has a scheme other than http, https and socks5";
        assert_eq!(of(&[("HTTP_PROXY", "ftp://p")], plain), Err(format!("HTTP_PROXY {bad}")));
        let bad = "has a port that is not a number below 65536";
        assert_eq!(of(&[("HTTP_PROXY", "u:pass@p:x")], plain), Err(format!("HTTP_PROXY {bad}")));
    }

    #[test]
    fn a_proxy_is_a_url_or_host_and_port() {
        let url = |text: &str| proxy_url(text).map(|url| url.to_string());
        assert_eq!(url("p:3128").unwrap(), "http://p:3128/");
        assert_eq!(url("https://u:p@p").unwrap(), "https://u:p@p/");
        assert_eq!(url("socks5://p:1080").unwrap(), "socks5://p:1080/");
        for bad in ["ftp://p", "a b", "http://"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
