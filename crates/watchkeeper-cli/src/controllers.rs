//! The built-in controllers of the control plane: which of them run, and their start and stop.

use std::collections::BTreeSet;
use std::future::Future;
use std::str::FromStr;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::Client;
use watchkeeper_controllers::{cluster, garbage_collector, namespace_controller, service_account};

/// The names of all controllers.
fn all() -> BTreeSet<&'static str> {
    let apart = [
        "clusterrole-aggregation",
        "garbage-collector",
        "namespace",
        "root-ca-certificate-publisher",
        "serviceaccount",
    ];
    cluster::names().chain(apart).collect()
}

/// The controllers that `--controllers` selects, in the manner of kube-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected(BTreeSet<&'static str>);

impl Default for Selected {
    fn default() -> Self {
        Self(all())
    }
}

impl FromStr for Selected {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let entries: Vec<_> = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        let mut selected = if entries.contains(&"*") { Self::default() } else { Self(BTreeSet::new()) };
        for entry in entries.into_iter().filter(|entry| *entry != "*") {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            let plain = name.strip_suffix("-controller").unwrap_or(name);
            let Some(known) = all().into_iter().find(|known| *known == plain) else {
                let all = all().into_iter().collect::<Vec<_>>().join(", ");
                return Err(format!("there is no controller {name}: expected one of {all}"));
            };
            match entry.starts_with('-') {
                true => selected.0.remove(known),
                false => selected.0.insert(known),
            };
        }
        Ok(selected)
    }
}

/// Built-in controllers at work.
pub(crate) struct Running {
    stop: CancellationToken,
    tasks: Vec<(&'static str, JoinHandle<()>)>,
}

impl Selected {
    /// No controller.
    pub(crate) fn none() -> Self {
        Self(BTreeSet::new())
    }

    pub(crate) fn runs(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Starts the controllers, and so many fake nodes. Those of workloads start only with nodes: without, Pods would stay pending.
    /// `authority` is the CA of the server as PEM, if it has one.
    pub(crate) fn start(&self, nodes: usize, clients: &Client, authority: &str) -> Running {
        let mut running = Running { stop: CancellationToken::new(), tasks: Vec::new() };
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        if self.runs("garbage-collector") {
            running.spawn("garbage collector", async move { garbage_collector::run(&theirs, stop).await });
        }
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        if self.runs("namespace") {
            running
                .spawn("namespace controller", async move { namespace_controller::run(&theirs, stop).await });
        }
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        let mut identity = service_account::Options::default();
        identity.aggregation = self.runs("clusterrole-aggregation");
        identity.accounts = nodes > 0 && self.runs("serviceaccount");
        if nodes > 0 && self.runs("root-ca-certificate-publisher") {
            identity.authority = authority.to_owned();
        }
        running.spawn("identity", async move { service_account::run(&theirs, &identity, stop).await });
        if nodes == 0 {
            return running;
        }
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        let mut workloads = cluster::Options::none();
        for name in &self.0 {
            // The others are not among the workloads.
            let _is_workload = workloads.select(name, true);
        }
        workloads.nodes = nodes;
        running.spawn("workloads", async move { cluster::run(&theirs, &workloads, stop).await });
        running
    }
}

impl Running {
    fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push((name, tokio::spawn(run)));
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for (controller, task) in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(controller, %error, "a built-in controller failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_selected_as_by_kube_controller_manager() {
        let parse = |list: &str| list.parse::<Selected>().map(|it| it.0.into_iter().collect::<Vec<_>>());
        let all: Vec<_> = all().into_iter().collect();
        assert_eq!(parse("*").unwrap(), all);
        let others: Vec<_> = all.iter().copied().filter(|name| *name != "namespace").collect();
        assert_eq!(parse("*,-namespace").unwrap(), others);
        assert_eq!(parse("-garbage-collector-controller,*").unwrap().len(), all.len() - 1);
        assert_eq!(parse("namespace-controller").unwrap(), ["namespace"]);
        assert_eq!(parse("-namespace").unwrap(), [""; 0]);
        assert_eq!(parse("").unwrap(), [""; 0]);
        assert!(parse("*,other").is_err_and(|error| error.contains("there is no controller other")));
    }
}
