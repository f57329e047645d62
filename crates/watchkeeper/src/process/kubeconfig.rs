//! Kubeconfig files: lookup of a context, with errors that name the file and the field.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use http::Uri;
use kube_client::Config;
use kube_client::config::{Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext};

use super::client_args::ConnectError;
use super::credentials::{Problem, authority, usable};
use super::proxy::proxy_url;
use crate::source::without_userinfo;

/// Kubeconfig files. The first wins: an entry is taken as a whole from the first file that has its name.
#[derive(Debug)]
pub(super) struct Kubeconfigs(Vec<(PathBuf, Kubeconfig)>);

/// The entries of one list in all files.
type Entries<'a, T> = fn(&'a Kubeconfig) -> &'a [T];

impl Kubeconfigs {
    /// Reads `files`, all of which must exist.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, ConnectError> {
        let read = |file: &PathBuf| {
            let kubeconfig = read(file)?;
            check_names(file, &kubeconfig)?;
            Ok((file.clone(), kubeconfig))
        };
        files.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the configuration of `context`, or of the current one, with the server `master` if it is set.
    pub(super) fn config(&self, context: Option<&str>, master: Option<&str>) -> Result<Config, ConnectError> {
        let (named, context) = self.context(context)?;
        let at = |field: &str| format!("contexts[{}].context.{field}", context.name);
        let chosen = context.context.as_ref();
        let chosen = chosen
            .ok_or_else(|| field(named, &format!("contexts[{}].context", context.name), "is missing"))?;

        let (cluster_file, cluster) = self
            .find(|file| &file.clusters, |cluster: &NamedCluster| &cluster.name, &chosen.cluster)
            .ok_or_else(|| field(named, &at("cluster"), unknown("cluster", &chosen.cluster)))?;
        let in_cluster = |part: &str| format!("clusters[{}].cluster{part}", cluster.name);
        let mut cluster_info =
            cluster.cluster.clone().ok_or_else(|| field(cluster_file, &in_cluster(""), "is missing"))?;
        if master.is_some() {
            // That name belonged to the other server.
            cluster_info.tls_server_name = None;
        }

        let user_name = chosen.user.as_deref().filter(|user| !user.is_empty());
        let user = user_name.map(|user| {
            self.find(|file| &file.auth_infos, |named: &NamedAuthInfo| &named.name, user)
                .ok_or_else(|| field(named, &at("user"), unknown("user", user)))
        });
        let user = user.transpose()?;
        let user = user.and_then(|(file, user)| Some((file, &user.name, user.auth_info.clone()?)));
        let user = user.map(|(file, name, user)| {
            let at = |part: &str| format!("users[{name}].user.{part}");
            usable(user).map_err(|(part, problem)| field(file, &at(part), problem))
        });
        let user = user.transpose()?.unwrap_or_default();

        // Built here, as kube reads the variables for proxies in its own way.
        let in_cluster =
            |(part, problem): Problem| field(cluster_file, &in_cluster(&format!(".{part}")), problem);
        let (mut info, authority) = authority(&mut cluster_info).map_err(in_cluster)?;
        let is_secure = authority.is_some()
            || cluster_info.insecure_skip_tls_verify == Some(true)
            || user.client_certificate.is_some()
            || user.client_certificate_data.is_some();
        let server = match (master, &cluster_info.server) {
            (Some(master), _) => master_url(master, is_secure)?,
            (None, Some(server)) => server_url(server, is_secure).ok_or_else(|| {
                let shown = without_userinfo(server);
                in_cluster(("server", format!("is {shown:?}, and not a URL such as https://127.0.0.1:6443")))
            })?,
            (None, None) => {
                return Err(in_cluster(("server", "is missing: give the URL of the API server".to_owned())));
            }
        };
        info.server = Some(server.to_string());
        let mut config = Config::new(server);
        config.root_cert = authority;
        config.root_cert_file = cluster_info.certificate_authority.map(PathBuf::from);
        let proxy = cluster_info.proxy_url.as_deref().filter(|url| !url.is_empty()).map(proxy_url);
        config.proxy_url = proxy.transpose().map_err(|problem| in_cluster(("proxy-url", problem)))?;
        config.accept_invalid_certs = cluster_info.insecure_skip_tls_verify.unwrap_or_default();
        config.disable_compression = cluster_info.disable_compression.unwrap_or_default();
        config.tls_server_name = cluster_info.tls_server_name;
        config.auth_info = user;
        if let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
            exec.cluster = Some(info);
        }
        if let Some(namespace) = chosen.namespace.as_ref().filter(|namespace| !namespace.is_empty()) {
            config.default_namespace.clone_from(namespace);
        }
        Ok(config)
    }

    /// Returns the selected context, and its file.
    fn context(&self, wanted: Option<&str>) -> Result<(&Path, &NamedContext), ConnectError> {
        let current = self.0.iter().find_map(|(file, kubeconfig)| {
            let name = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty())?;
            Some((file, name))
        });
        let (asking, by, name) = match (wanted, current) {
            (Some(name), _) => (None, "--context", name),
            (None, Some((file, name))) => (Some(file), "current-context", name),
            (None, None) => {
                return Err(self.nowhere("current-context", "is not set: set it, or give --context"));
            }
        };
        let contexts: Entries<'_, NamedContext> = |file| &file.contexts;
        self.find(contexts, |context| &context.name, name).ok_or_else(|| {
            let all: Vec<_> = self.0.iter().flat_map(|(_, file)| contexts(file)).map(|c| &*c.name).collect();
            let there = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            let problem = format!("{}; there are: {there}", unknown("context", name));
            match asking {
                Some(file) => field(file, by, problem),
                None => self.nowhere(by, problem),
            }
        })
    }

    /// Returns the first entry of that name, and its file.
    fn find<'a, T>(
        &'a self,
        entries: Entries<'a, T>,
        name_of: fn(&T) -> &String,
        name: &str,
    ) -> Option<(&'a Path, &'a T)> {
        self.0.iter().find_map(|(path, file)| {
            let entry = entries(file).iter().find(|entry| name_of(entry) == name)?;
            Some((path.as_path(), entry))
        })
    }

    /// Returns the error of a problem that concerns all files together.
    fn nowhere(&self, at: &str, problem: impl fmt::Display) -> ConnectError {
        let files: Vec<_> = self.0.iter().map(|(path, _)| path.display().to_string()).collect();
        field(Path::new(&files.join(", ")), at, problem)
    }
}

/// Refuses two entries of one name in a file, as they are ambiguous.
fn check_names(file: &Path, kubeconfig: &Kubeconfig) -> Result<(), ConnectError> {
    let clusters = kubeconfig.clusters.iter().map(|cluster| ("clusters", &cluster.name));
    let users = kubeconfig.auth_infos.iter().map(|user| ("users", &user.name));
    let contexts = kubeconfig.contexts.iter().map(|context| ("contexts", &context.name));
    let mut seen = BTreeSet::new();
    match clusters.chain(users).chain(contexts).find(|entry| !seen.insert(*entry)) {
        Some((list, name)) => {
            Err(field(file, list, format!("has two entries of the name {name:?}: leave one out")))
        }
        None => Ok(()),
    }
}

fn field(file: &Path, field: &str, problem: impl fmt::Display) -> ConnectError {
    ConnectError::Field {
        file: file.display().to_string(),
        field: field.to_owned(),
        problem: problem.to_string(),
    }
}

fn unknown(what: &str, name: &str) -> String {
    format!("names the {what} {name:?}, which is not there")
}

/// Returns the URL of `--master`.
pub(super) fn master_url(text: &str, is_secure: bool) -> Result<Uri, ConnectError> {
    server_url(text, is_secure).ok_or_else(|| ConnectError::Master(without_userinfo(text)))
}

/// Returns the URL of a server that may be given as host and port only.
pub(super) fn server_url(text: &str, is_secure: bool) -> Option<Uri> {
    let scheme = if is_secure { "https" } else { "http" };
    let whole = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    let url: Uri = whole.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (is_http && has_host && has_usable_port(&url)).then_some(url)
}

/// Returns whether the port of a URL is valid, if it has one: a [`Uri`] accepts any text as a port, and then returns
/// none.
pub(super) fn has_usable_port(url: &Uri) -> bool {
    url.authority().is_none_or(|authority| {
        let address = authority.as_str().rsplit('@').next().unwrap_or_default();
        let port = address.strip_prefix(authority.host()).unwrap_or_default();
        matches!(port, "" | ":") || authority.port_u16().is_some()
    })
}

fn read(file: &Path) -> Result<Kubeconfig, ConnectError> {
    Kubeconfig::read_from(file).map_err(|error| match error {
        KubeconfigError::Parse(error) => {
            // After the first line, the message quotes lines of the file, and with them secrets.
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            let Some(at) = error.location() else { return field(file, "it", unquoted(message)) };
            let place = format!("line {} column {}", at.line(), at.column());
            let message = message.split_once(&format!("{place}: ")).map_or(message, |(_, problem)| problem);
            let text = fs::read_to_string(file).unwrap_or_default();
            let problem = format!("is not as it should be ({place}): {}", unquoted(message));
            field(file, &path_of_line(&text, at.line() as usize), problem)
        }
        KubeconfigError::ReadConfig(source, _) => unreadable(file, source),
        other => field(file, "it", other),
    })
}

fn unreadable(file: &Path, source: io::Error) -> ConnectError {
    ConnectError::Unreadable { file: file.display().to_string(), source }
}

/// Returns `message` without the text between its first and its last quotation mark, which may be a value.
fn unquoted(message: &str) -> String {
    match (message.split_once('"'), message.rsplit_once('"')) {
        (Some((before, _)), Some((_, after))) => format!("{before}...{after}"),
        _ => message.to_owned(),
    }
}

/// Returns the keys that lead to a line of YAML, such as `users.user.token`: that of the line, and each less indented
/// one above it.
fn path_of_line(text: &str, line: usize) -> String {
    let mut keys = Vec::new();
    let mut inner = usize::MAX;
    let above: Vec<_> = text.lines().take(line).collect();
    for line in above.into_iter().rev() {
        let indent = line.find(|c| c != ' ' && c != '-').unwrap_or(usize::MAX);
        if indent < inner
            && let Some((key, _)) = line[indent..].split_once(':')
            && key.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
        {
            keys.push(key);
            inner = indent;
        }
    }
    keys.reverse();
    if keys.is_empty() { "it".to_owned() } else { keys.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_keys() {
        let text =
            "apiVersion: v1\nusers:\n- name: a\n  user:\n    token: x\n- name: b\n  user: {token: y}\n";
        let paths = [2, 3, 5, 6, 7, 0].map(|line| path_of_line(text, line));
        assert_eq!(paths, ["users", "users.name", "users.user.token", "users.name", "users.user", "it"]);
    }

    #[test]
    fn a_server_is_a_url_or_host_and_port() {
        let url = |text: &str, is_secure| server_url(text, is_secure).map(|url| url.to_string());
        assert_eq!(url("https://h:1/p", false).unwrap(), "https://h:1/p");
        assert_eq!(url("h:1", false).unwrap(), "http://h:1/");
        assert_eq!(url("h:1", true).unwrap(), "https://h:1/");
        assert_eq!(url("[::1]:6443", true).unwrap(), "https://[::1]:6443/");
        assert_eq!(url("https://u:p@h:/", true).unwrap(), "https://u:p@h:/");
        for bad in ["", "ftp://h", "http://", "a b", "https:///path", "h:x", "[::1]:x", "https://u:1@h:65536"]
        {
            assert_eq!(url(bad, true), None, "{bad}");
        }
    }

    #[test]
    fn what_stands_in_quotes_is_not_told() {
        let shown = unquoted(r#"invalid type: string "hun\"ter2", expected a map"#);
        assert_eq!(shown, "invalid type: string ..., expected a map");
        assert_eq!(unquoted("expected a map"), "expected a map");
    }
}
