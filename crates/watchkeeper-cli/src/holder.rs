//! The pods that lead by a Lease, and how to reach their admin servers.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube_client::Api;
use kube_client::api::ListParams;
use watchkeeper::Env;
use watchkeeper::process::ClientArgs;

/// The namespaces whose Leases are those of the cluster itself.
const OF_THE_CLUSTER: [&str; 2] = ["kube-system", "kube-node-lease"];
/// The number of pods that are named.
const NAMED: usize = 5;
/// The port of an admin server by default.
const PORT: u16 = 8080;

/// A pod that leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) lease: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    port: u16,
    is_secure: bool,
}

impl Holder {
    /// The command that leads to its admin server.
    pub(crate) fn forward(&self) -> String {
        format!("kubectl port-forward -n {} pod/{} {}:{}", self.namespace, self.pod, self.port, self.port)
    }

    /// The address of the admin server once that command runs.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
}

/// Finds pods that hold a Lease in the cluster of the kubeconfig; none if it cannot be asked.
pub(crate) async fn find(client: &ClientArgs, env: &Env) -> Vec<Holder> {
    let search = async {
        let client = kube_client::Client::try_from(client.config().await.ok()?).ok()?;
        let leases = Api::<Lease>::all(client.clone()).list(&ListParams::default()).await.ok()?;
        let mut holders = Vec::new();
        for lease in leases.items {
            let (namespace, name) = (lease.metadata.namespace?, lease.metadata.name?);
            let identity = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            // An identity is the name of the pod, and something after it that makes it unique.
            let pod = identity.split('_').next().unwrap_or_default();
            if pod.is_empty() || OF_THE_CLUSTER.contains(&namespace.as_str()) || holders.len() >= NAMED {
                continue;
            }
            if let Ok(found) = Api::<Pod>::namespaced(client.clone(), &namespace).get(pod).await {
                holders.push(holder(&found, &format!("{namespace}/{name}"), &namespace));
            }
        }
        Some(holders)
    };
    env.clock.timeout(std::time::Duration::from_secs(5), search).await.ok().flatten().unwrap_or_default()
}

fn holder(pod: &Pod, lease: &str, namespace: &str) -> Holder {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let (port, is_secure) = containers.iter().find_map(bound).unwrap_or((PORT, false));
    let pod = pod.metadata.name.clone().unwrap_or_default();
    Holder { lease: lease.to_owned(), namespace: namespace.to_owned(), pod, port, is_secure }
}

/// The port of `--metrics-bind-address`, and whether it is another than a loopback address, and so protected.
fn bound(container: &Container) -> Option<(u16, bool)> {
    let arguments = container.command.iter().chain(&container.args).flatten();
    let address = arguments.filter_map(|argument| argument.strip_prefix("--metrics-bind-address=")).next()?;
    let (host, port) = address.rsplit_once(':')?;
    let is_local = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    Some((port.parse().ok()?, !is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_pod_tell_its_port_and_whether_it_is_protected() {
        let pod = |flag: &str| {
            let json = serde_json::json!({"metadata": {"name": "web-1"}, "spec": {"containers": [{"name": "a", "args": [flag]}]}});
            holder(&serde_json::from_value(json).unwrap(), "ops/web", "ops")
        };
        let secure = pod("--metrics-bind-address=0.0.0.0:8443");
        assert_eq!(secure.forward(), "kubectl port-forward -n ops pod/web-1 8443:8443");
        assert_eq!(secure.address(), "https://127.0.0.1:8443");
        assert_eq!(pod("--metrics-bind-address=127.0.0.1:9000").address(), "http://127.0.0.1:9000");
        assert_eq!(pod("--leader-elect").address(), "http://127.0.0.1:8080");
    }
}
