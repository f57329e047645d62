//! Messages around a run: where the control plane is, what to type next, and why a command failed.

use std::error::Error;
use std::path::Path;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use watchkeeper::process::ClientArgs;

use crate::advice::advice;
use crate::faults::FaultArgs;
use crate::manifests::Manifest;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();

/// Prints that the control plane listens and the kubeconfig is written.
pub(crate) fn ready(url: &str, kubeconfig: &Path, data_dir: Option<&Path>) {
    println!("{GREEN}ready{GREEN:#} {BOLD}{url}{BOLD:#}  kubeconfig {}", kubeconfig.display());
    let kept = match data_dir {
        Some(folder) => format!("kept in {}", folder.display()),
        None => "in memory and lost on exit".to_owned(),
    };
    println!("{DIM}for development and tests: all state is {kept}{DIM:#}");
}

/// Prints how many objects were installed, and the kinds that they define.
pub(crate) fn installed(manifests: &[Manifest]) {
    let (definitions, others): (Vec<_>, Vec<_>) = manifests.iter().partition(|it| it.is_definition());
    for definition in definitions {
        println!("{GREEN}installed{GREEN:#} {}  from {}", definition.name, definition.origin);
    }
    match others.len() {
        0 => {}
        1 => println!("{GREEN}installed{GREEN:#} 1 other object"),
        number => println!("{GREEN}installed{GREEN:#} {number} other objects"),
    }
}

/// Prints where the sample controller explains itself.
pub(crate) fn explains(address: &std::net::SocketAddr) {
    println!(
        "{GREEN}explains{GREEN:#} {BOLD}http://{address}/{BOLD:#}  or watchkeeper explain foo example-foo"
    );
}

/// Prints which faults there are, if there are any.
pub(crate) fn faults(args: &FaultArgs) {
    if let Some(summary) = args.summary() {
        println!("{YELLOW}faults{YELLOW:#} {summary}");
    }
}

/// The setting of `KUBECONFIG` for a shell, with an absolute path.
pub(crate) fn environment(kubeconfig: &Path) -> String {
    let absolute = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    format!("KUBECONFIG={}", quoted(&absolute.display().to_string()))
}

/// Prints which existing cluster is used.
pub(crate) fn on_cluster(server: &str, context: Option<&str>) {
    let context = context.map(|context| format!(" (context {context})")).unwrap_or_default();
    println!("{GREEN}on{GREEN:#} {BOLD}{server}{BOLD:#}{context}");
}

/// Prints what will stay on an existing cluster.
pub(crate) fn creates(has_example: bool) {
    let (example, them) = if has_example { (" and default/example-foo", "them") } else { ("", "it") };
    println!("creates the Foo CRD{example} if missing, and leaves {them} there");
}

/// Prints how to remove what was created on an existing cluster.
pub(crate) fn left(kubectl: &str, created: &[&str]) {
    if !created.is_empty() {
        println!("\ncreated objects stay in the cluster; to remove them:");
    }
    for what in created.iter().rev() {
        println!("  {CYAN}{kubectl} delete {what}{CYAN:#}");
    }
}

/// Prints what to type next, in another terminal.
pub(crate) fn hint(commands: impl IntoIterator<Item = String>) {
    println!("\nin another terminal:");
    for command in commands {
        println!("  {CYAN}{command}{CYAN:#}");
    }
    println!("{DIM}press Ctrl-C to stop{DIM:#}\n");
}

/// The kubectl command with the flags that select the cluster, and the namespace `default` if the context has another.
pub(crate) fn kubectl(client: &ClientArgs, namespace: &str) -> String {
    let flags = [
        ("--kubeconfig", client.kubeconfig.as_ref().map(|file| file.display().to_string())),
        ("--context", client.context.clone()),
        ("--server", client.master.clone()),
        ("-n", (namespace != "default").then(|| "default".to_owned())),
    ];
    let given = flags.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
    std::iter::once("kubectl".to_owned()).chain(given).collect()
}

/// Prints why the command failed, and what to do about it.
#[allow(clippy::print_stderr, reason = "errors of a command go there")]
pub(crate) fn fail(error: &(dyn Error + 'static)) {
    eprintln!("{RED}error{RED:#}: {}", reason(error));
    if let Some(advice) = advice(error) {
        eprintln!("{CYAN}help{CYAN:#}: {advice}");
    }
}

/// The error and its causes, without repetition.
pub(crate) fn reason(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message += &format!(": {text}");
        }
        source = cause.source();
    }
    message
}

/// A path, quoted for a shell if necessary.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_when_a_shell_would_take_it_apart() {
        assert_eq!(quoted("a/b-1.kubeconfig"), "a/b-1.kubeconfig");
        assert_eq!(quoted("my file"), "'my file'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn kubectl_is_told_what_this_command_was_told() {
        let (file, context) = (Some("a b".into()), Some("arn:dev".to_owned()));
        let client = ClientArgs { kubeconfig: file, context, master: Some("https://a:1".to_owned()) };
        assert_eq!(
            kubectl(&client, "mine"),
            "kubectl --kubeconfig 'a b' --context arn:dev --server https://a:1 -n default"
        );
        assert_eq!(kubectl(&ClientArgs::default(), "default"), "kubectl");
    }
}
