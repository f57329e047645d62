//! What does a person see first? Where the control plane is, and what to type next.

use std::error::Error;
use std::path::Path;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use watchkeeper::process::ClientArgs;

use crate::advice::advice;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();

/// The control plane listens, and the kubeconfig is written.
pub(crate) fn ready(url: &str, kubeconfig: &Path, data_dir: Option<&Path>) {
    println!("{GREEN}ready{GREEN:#} {BOLD}{url}{BOLD:#}  kubeconfig {}", kubeconfig.display());
    let kept = match data_dir {
        Some(folder) => format!("kept in {}", folder.display()),
        None => "in memory, and gone when this ends".to_owned(),
    };
    println!("{DIM}for development and tests: everything is {kept}{DIM:#}");
}

/// Work begins on somebody's cluster: on which, and what stays there.
pub(crate) fn on_cluster(server: &str, context: Option<&str>, has_example: bool) {
    let context = context.map(|context| format!(" (context {context})")).unwrap_or_default();
    let (example, them) = if has_example { (" and default/example-foo", "them") } else { ("", "it") };
    println!("{GREEN}on{GREEN:#} {BOLD}{server}{BOLD:#}{context}");
    println!("creates the CRD of Foos{example} where missing, and leaves {them} there");
}

/// Work on somebody's cluster is over: how to remove what was created.
pub(crate) fn left(commands: &[String]) {
    if !commands.is_empty() {
        println!("\nwhat it created stays; to remove it:");
    }
    for command in commands {
        println!("  {CYAN}{command}{CYAN:#}");
    }
}

/// What to type next, in another terminal.
pub(crate) fn hint(commands: impl IntoIterator<Item = String>) {
    println!("\nin another terminal:");
    for command in commands {
        println!("  {CYAN}{command}{CYAN:#}");
    }
    println!("{DIM}Ctrl-C stops{DIM:#}\n");
}

/// How kubectl is told which cluster is meant, and that the namespace is `default` where the context's is another.
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

/// The command has failed: why, and what to do next.
#[allow(clippy::print_stderr, reason = "the last word of a command goes there")]
pub(crate) fn fail(error: &(dyn Error + 'static)) {
    eprintln!("{RED}error{RED:#}: {}", reason(error));
    if let Some(advice) = advice(error) {
        eprintln!("{CYAN}help{CYAN:#}: {advice}");
    }
}

/// The error and its causes, each said once.
fn reason(error: &dyn Error) -> String {
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

/// A word as a shell takes it.
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
