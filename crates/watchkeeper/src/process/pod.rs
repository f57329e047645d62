//! The configuration of a process in a pod: the mounted service account, as client-go reads it.

use std::fs;
use std::path::Path;

use kube_client::Config;
use kube_client::config::{AuthInfo, Cluster};

use super::credentials::{authority, usable};
use super::kubeconfig::server_url;

/// The folder of a service account.
pub(super) const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the namespace of the pod that this process runs in: from the variable `POD_NAMESPACE`, or from the mounted service account.
pub fn pod_namespace() -> Option<String> {
    namespace_of(|name| std::env::var(name).ok(), Path::new(FOLDER))
}

fn namespace_of(variable: impl Fn(&str) -> Option<String>, folder: &Path) -> Option<String> {
    let file = || fs::read_to_string(folder.join("namespace")).ok();
    let set = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    variable("POD_NAMESPACE").and_then(set).or_else(|| file().and_then(set))
}

/// Returns the configuration of a process with these variables and files; `None` if it is not in a pod; the problem if
/// it is unusable.
///
/// Only address and token are required. Without a valid `ca.crt` the authorities of the system are trusted; without a
/// `namespace` it is `default`.
pub(super) fn in_cluster(
    variable: impl Fn(&str) -> Option<String>,
    folder: &Path,
) -> Result<Option<Config>, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (set("KUBERNETES_SERVICE_HOST"), set("KUBERNETES_SERVICE_PORT")) else {
        return Ok(None);
    };
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let server = server_url(&address, true);
    let mut config = Config::new(server.ok_or_else(|| format!("{address:?} is no address of a server"))?);

    let file = |name: &str| folder.join(name).display().to_string();
    let user = AuthInfo { token_file: Some(file("token")), ..AuthInfo::default() };
    config.auth_info = usable(user).map_err(|(_, problem)| format!("the token {problem}"))?;
    let ca = file("ca.crt");
    match authority(&mut Cluster { certificate_authority: Some(ca.clone()), ..Cluster::default() }) {
        Ok((_, certificates)) => {
            config.root_cert = certificates;
            // Read again from time to time, as it is rotated.
            config.root_cert_file = Some(ca.into());
        }
        Err((_, problem)) => {
            tracing::error!(file = ca, problem, "the authorities of the system are trusted instead");
        }
    }
    let namespace = fs::read_to_string(folder.join("namespace")).unwrap_or_default();
    if !namespace.trim().is_empty() {
        namespace.trim().clone_into(&mut config.default_namespace);
    }
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the configuration in a pod with these files, at that address.
    fn pod(files: &[(&str, &str)], host: &str, port: &str) -> Result<Option<Config>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let variable = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
            _ => None,
        };
        in_cluster(variable, folder.path())
            .map_err(|problem| problem.replace(&folder.path().display().to_string(), ""))
    }

    #[test]
    fn a_pod_has_an_address_a_token_an_authority_and_a_namespace() {
        let pair = rcgen::generate_simple_self_signed(["k".to_owned()]).unwrap();
        let files = [("token", "t"), ("ca.crt", &*pair.cert.pem()), ("namespace", "mine\n")];
        let config = pod(&files, "10.0.0.1", "443").unwrap().unwrap();
        assert_eq!(config.cluster_url, "https://10.0.0.1:443");
        assert_eq!(config.root_cert, Some(vec![pair.cert.der().to_vec()]));
        assert!(config.root_cert_file.is_some() && config.auth_info.token_file.is_some());
        assert_eq!(config.default_namespace, "mine");
        let config = pod(&files, "fd00::1", "6443").unwrap().unwrap();
        assert_eq!(config.cluster_url, "https://[fd00::1]:6443");
    }

    #[test]
    fn the_namespace_of_a_pod_is_in_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = |variable: Option<&str>| {
            namespace_of(
                |name| variable.filter(|_| name == "POD_NAMESPACE").map(str::to_owned),
                folder.path(),
            )
        };
        assert_eq!((namespace(None), namespace(Some(""))), (None, None));
        fs::write(folder.path().join("namespace"), "mine\n").unwrap();
        assert_eq!(namespace(None).as_deref(), Some("mine"));
        assert_eq!(namespace(Some("")).as_deref(), Some("mine"));
        assert_eq!(namespace(Some("other")).as_deref(), Some("other"));
    }

    #[test]
    fn a_pod_needs_no_namespace_and_no_good_authority() {
        for files in [&[("token", "t")][..], &[("token", "t"), ("ca.crt", "x"), ("namespace", "\n")]] {
            let config = pod(files, "10.0.0.1", "443").unwrap().unwrap();
            assert!(config.root_cert.is_none() && config.root_cert_file.is_none());
            assert_eq!(config.default_namespace, "default");
        }
    }

    #[test]
    fn without_an_address_there_is_no_pod_and_without_a_token_it_cannot_be_used() {
        let token = [("token", "t")];
        assert!(pod(&token, "", "443").unwrap().is_none() && pod(&token, "h", "").unwrap().is_none());
        let problem = |files: &[_], port| pod(files, "h", port).unwrap_err();
        assert_eq!(
            problem(&[], "443"),
            "the token cannot read /token: No such file or directory (os error 2)"
        );
        assert_eq!(problem(&[("token", "\n")], "443"), "the token is empty");
        assert_eq!(problem(&token, "x"), "\"h:x\" is no address of a server");
    }
}
