//! The built-in controllers of the control plane: which of them run, and their start and stop.

use std::future::Future;
use std::str::FromStr;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::Client;
use watchkeeper_controllers::{garbage_collector, namespace_controller};

/// The controllers that `--controllers` selects, in the manner of kube-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    garbage_collector: bool,
    namespace: bool,
}

impl Default for Selected {
    fn default() -> Self {
        Self { garbage_collector: true, namespace: true }
    }
}

impl FromStr for Selected {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let entries: Vec<_> = list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        let others = entries.contains(&"*");
        let mut selected = Self { garbage_collector: others, namespace: others };
        for entry in entries.into_iter().filter(|entry| *entry != "*") {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            let runs = match name.strip_suffix("-controller").unwrap_or(name) {
                "garbage-collector" => &mut selected.garbage_collector,
                "namespace" => &mut selected.namespace,
                _ => {
                    return Err(format!(
                        "there is no controller {name}: expected garbage-collector or namespace"
                    ));
                }
            };
            *runs = !entry.starts_with('-');
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
    pub(crate) fn start(self, clients: &Client) -> Running {
        let mut running = Running { stop: CancellationToken::new(), tasks: Vec::new() };
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        if self.garbage_collector {
            running.spawn("garbage collector", async move { garbage_collector::run(&theirs, stop).await });
        }
        let (theirs, stop) = (clients.clone(), running.stop.clone());
        if self.namespace {
            running
                .spawn("namespace controller", async move { namespace_controller::run(&theirs, stop).await });
        }
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
        let parse = |list: &str| list.parse::<Selected>().map(|it| (it.garbage_collector, it.namespace));
        assert_eq!(parse("*"), Ok((true, true)));
        assert_eq!(parse("*,-namespace"), Ok((true, false)));
        assert_eq!(parse("-garbage-collector-controller,*"), Ok((false, true)));
        assert_eq!(parse("namespace-controller"), Ok((false, true)));
        assert_eq!(parse("-namespace"), Ok((false, false)));
        assert_eq!(parse(""), Ok((false, false)));
        assert!(parse("*,other").is_err_and(|error| error.contains("there is no controller other")));
    }
}
