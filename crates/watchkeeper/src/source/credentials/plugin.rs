//! Credential plugins: programs that print an `ExecCredential`.

use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube_client::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use serde::{Deserialize, Serialize};

use super::outside::Outside;
use super::problem::Problem;
use crate::clock::Clock;

/// A plugin that runs longer is killed, unless it may be asking somebody for a password. A provider is not waited for any longer,
/// either.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

const KIND: &str = "ExecCredential";

/// The versions of credentials that plugins print.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A credential plugin.
pub(super) struct Plugin(pub(super) ExecConfig);

/// What a plugin printed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<Printed>,
}

/// The credentials that a plugin gave.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Printed {
    pub(super) token: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// What a plugin is told, in the variable `KUBERNETES_EXEC_INFO`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecInfo<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a str>,
    kind: &'static str,
    spec: ExecSpec<'a>,
}

#[derive(Serialize)]
struct ExecSpec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

impl Printed {
    /// Returns when the credentials expire, if the plugin said so.
    pub(super) fn expires(&self) -> Result<Option<Timestamp>, Problem> {
        let parse =
            |text: &String| text.parse().map_err(|_| Problem::Printed("expirationTimestamp is no time"));
        self.expiration_timestamp.as_ref().map(parse).transpose()
    }
}

impl Plugin {
    /// Runs the program; dropped, it kills it. What it prints is never part of an error, as it may be a secret even then.
    pub(super) async fn run(&self, outside: &dyn Outside, clock: &Clock) -> Result<Printed, Problem> {
        let is_interactive = self.is_interactive(outside)?;
        let run = outside.run(self.command(is_interactive)?);
        let ended = if is_interactive {
            run.await
        } else {
            clock.timeout(LIMIT, run).await.map_err(|_| Problem::Hung(LIMIT))?
        };
        let output = ended.map_err(Problem::Start)?;
        if !output.status.success() {
            return Err(Problem::Failed(output.status));
        }
        self.parse(&output.stdout)
    }

    fn parse(&self, printed: &[u8]) -> Result<Printed, Problem> {
        let printed: ExecCredential = serde_saphyr::from_slice(printed)
            .map_err(|_| Problem::Printed("what the program printed is no ExecCredential"))?;
        if printed.kind.as_deref() != Some(KIND) {
            return Err(Problem::Printed("the kind of what the program printed is not ExecCredential"));
        }
        let is_known = match (&self.0.api_version, &printed.api_version) {
            (Some(wanted), Some(version)) => wanted == version,
            (None, Some(version)) => VERSIONS.contains(&&**version),
            (_, None) => false,
        };
        if !is_known {
            return Err(Problem::Printed(
                "the apiVersion of what the program printed is not that of the plugin",
            ));
        }
        let mut status = printed.status.ok_or(Problem::Printed("what the program printed has no status"))?;
        // As for client-go, what is empty is not there.
        for field in [&mut status.token, &mut status.client_certificate_data, &mut status.client_key_data] {
            field.take_if(|text| text.is_empty());
        }
        let has_pair = match (&status.client_certificate_data, &status.client_key_data) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            _ => {
                return Err(Problem::Printed(
                    "the program gave a certificate without its key, or a key alone",
                ));
            }
        };
        if status.token.is_none() && !has_pair {
            return Err(Problem::Printed("the program gave neither a token nor a certificate"));
        }
        Ok(status)
    }

    fn is_interactive(&self, outside: &dyn Outside) -> Result<bool, Problem> {
        match self.0.interactive_mode {
            Some(ExecInteractiveMode::Never) => Ok(false),
            Some(ExecInteractiveMode::Always) if !outside.has_terminal() => Err(Problem::NoTerminal),
            _ => Ok(outside.has_terminal()),
        }
    }

    fn command(&self, is_interactive: bool) -> Result<Command, Problem> {
        let exec = &self.0;
        let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
        command.args(exec.args.iter().flatten());
        let pairs =
            exec.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
        command.envs(pairs);
        let spec = ExecSpec {
            interactive: is_interactive,
            cluster: exec.cluster.as_ref().filter(|_| exec.provide_cluster_info),
        };
        let info = ExecInfo { api_version: exec.api_version.as_deref(), kind: KIND, spec };
        let info =
            serde_json::to_string(&info).map_err(|_| Problem::Printed("the cluster cannot be described"))?;
        command.env("KUBERNETES_EXEC_INFO", info);
        for name in exec.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        if is_interactive {
            command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
        } else {
            command.stdin(Stdio::null()).stderr(Stdio::null());
            // So that what it starts is killed with it.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        command.stdout(Stdio::piped());
        Ok(command)
    }
}
