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
        search(&client).await
    };
    env.clock.timeout(std::time::Duration::from_secs(5), search).await.ok().flatten().unwrap_or_default()
}

async fn search(client: &kube_client::Client) -> Option<Vec<Holder>> {
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
}

fn holder(pod: &Pod, lease: &str, namespace: &str) -> Holder {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let (port, is_secure) = containers.iter().find_map(bound).unwrap_or((PORT, false));
    let pod = pod.metadata.name.clone().unwrap_or_default();
    Holder { lease: lease.to_owned(), namespace: namespace.to_owned(), pod, port, is_secure }
}

/// The port of `--metrics-bind-address`, and whether it is protected: as `--metrics-secure` says, or as it is by default
/// at another than a loopback address.
fn bound(container: &Container) -> Option<(u16, bool)> {
    let arguments: Vec<&str> =
        container.command.iter().chain(&container.args).flatten().map(String::as_str).collect();
    let named = flag(&arguments, "--metrics-bind-address");
    let address = named.or_else(|| flag(&arguments, "--admin-address"))?;
    let (host, port) = address.rsplit_once(':')?;
    let is_local = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    let is_secure = match flag(&arguments, "--metrics-secure") {
        Some("false") => false,
        Some(_) => true,
        None => !is_local || flag(&arguments, "--metrics-cert-path").is_some(),
    };
    Some((port.parse().ok()?, is_secure))
}

/// The value of a flag, as `--flag=value` or in the argument after it; empty if it is the last argument.
fn flag<'a>(arguments: &[&'a str], name: &str) -> Option<&'a str> {
    arguments.iter().enumerate().find_map(|(at, argument)| match argument.strip_prefix(name)? {
        "" => Some(arguments.get(at + 1).copied().unwrap_or_default()),
        rest => rest.strip_prefix('='),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    fn pod(args: &[&str]) -> Value {
        json!({"metadata": {"name": "web-1"}, "spec": {"containers": [{"name": "a", "image": "a", "args": args}]}})
    }

    fn address(args: &[&str]) -> String {
        holder(&serde_json::from_value(pod(args)).unwrap(), "ops/web", "ops").address()
    }

    #[test]
    fn the_flags_of_a_pod_tell_its_port_and_whether_it_is_protected() {
        assert_eq!(address(&["--metrics-bind-address=0.0.0.0:8443"]), "https://127.0.0.1:8443");
        assert_eq!(address(&["--metrics-bind-address", "0.0.0.0:8443"]), "https://127.0.0.1:8443");
        let open = ["--metrics-secure=false", "--metrics-bind-address", "0.0.0.0:8081"];
        assert_eq!(address(&open), "http://127.0.0.1:8081");
        assert_eq!(address(&["--admin-address=127.0.0.1:9001"]), "http://127.0.0.1:9001");
        let protected = ["--metrics-bind-address=[::1]:9000", "--metrics-secure"];
        assert_eq!(address(&protected), "https://127.0.0.1:9000");
        let certified = ["--metrics-bind-address=127.0.0.1:9000", "--metrics-cert-path", "/certs"];
        assert_eq!(address(&certified), "https://127.0.0.1:9000");
        assert_eq!(address(&["--metrics-bind-address=127.0.0.1:9000"]), "http://127.0.0.1:9000");
        assert_eq!(address(&["--metrics-bind-address-of-another=0.0.0.0:1"]), "http://127.0.0.1:8080");
        assert_eq!(address(&["--leader-elect", "--metrics-bind-address"]), "http://127.0.0.1:8080");
    }

    #[tokio::test]
    async fn the_pods_that_hold_leases_are_found_and_no_others() {
        let server = ApiServer::new(&Env::simulated(1));
        let client = server.client();
        let lease = async |namespace: &str, name: &str, holder: &str| {
            let holder = (!holder.is_empty()).then_some(holder);
            let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}});
            let leases = Api::<Lease>::namespaced(client.clone(), namespace);
            leases.create(&Default::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
        };
        let namespace = json!({"metadata": {"name": "ops"}});
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
        namespaces.create(&Default::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let web = serde_json::from_value(pod(&["--metrics-bind-address", "0.0.0.0:8443"])).unwrap();
        Api::<Pod>::namespaced(client.clone(), "ops").create(&Default::default(), &web).await.unwrap();
        lease("ops", "web", "web-1_7d9c").await;
        lease("ops", "laptop", "laptop_1f2e").await;
        lease("ops", "free", "").await;
        lease("kube-system", "scheduler", "web-1_7d9c").await;
        let found = search(&client).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].lease.as_str(), found[0].pod.as_str()), ("ops/web", "web-1"));
        assert_eq!(found[0].forward(), "kubectl port-forward -n ops pod/web-1 8443:8443");
        assert_eq!(found[0].address(), "https://127.0.0.1:8443");
    }
}
