//! Credential plugins: programs that print an `ExecCredential`.

use std::process::{Command, Stdio};

use jiff::Timestamp;
use kube_client::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use serde::{Deserialize, Serialize};

use super::Problem;
use super::outside::Outside;

/// A credential plugin.
pub(super) struct Plugin(pub(super) ExecConfig);

/// What a plugin printed.
#[derive(Deserialize)]
struct ExecCredential {
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
    /// Runs the program. Blocks. What it prints is never part of an error, as it may be a secret even then.
    pub(super) fn run(&self, outside: &dyn Outside) -> Result<Printed, Problem> {
        let output = outside.run(self.command(outside)?).map_err(Problem::Start)?;
        if !output.status.success() {
            return Err(Problem::Failed(output.status));
        }
        let printed: ExecCredential = serde_saphyr::from_slice(&output.stdout)
            .map_err(|_| Problem::Printed("what the program printed is no ExecCredential"))?;
        let status = printed.status.ok_or(Problem::Printed("what the program printed has no status"))?;
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

    fn command(&self, outside: &dyn Outside) -> Result<Command, Problem> {
        let exec = &self.0;
        let is_interactive = match exec.interactive_mode {
            Some(ExecInteractiveMode::Never) => false,
            Some(ExecInteractiveMode::Always) if !outside.has_terminal() => return Err(Problem::NoTerminal),
            _ => outside.has_terminal(),
        };
        let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
        command.args(exec.args.iter().flatten());
        let pairs =
            exec.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
        command.envs(pairs);
        let spec = ExecSpec {
            interactive: is_interactive,
            cluster: exec.cluster.as_ref().filter(|_| exec.provide_cluster_info),
        };
        let info = ExecInfo { api_version: exec.api_version.as_deref(), kind: "ExecCredential", spec };
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
        }
        command.stdout(Stdio::piped());
        Ok(command)
    }
}
