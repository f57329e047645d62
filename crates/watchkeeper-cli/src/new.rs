//! `watchkeeper new`: a project with an operator that compiles, passes its tests and runs on `watchkeeper serve`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anstream::println;
use kube_client::core::{ApiResource, GroupVersionKind};

use crate::args::NewArgs;
use crate::front::{CYAN, GREEN};

/// The files of a project: path and template.
const FILES: [(&str, &str); 18] = [
    ("Cargo.toml", include_str!("../templates/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../templates/src/lib.rs")),
    ("src/main.rs", include_str!("../templates/src/main.rs")),
    ("tests/operator.rs", include_str!("../templates/tests/operator.rs")),
    ("deploy/crd.yaml", include_str!("../templates/deploy/crd.yaml")),
    ("deploy/role.yaml", include_str!("../templates/deploy/role.yaml")),
    ("deploy/program-role.yaml", include_str!("../templates/deploy/program-role.yaml")),
    ("deploy/deployment.yaml", include_str!("../templates/deploy/deployment.yaml")),
    ("deploy/pod-disruption-budget.yaml", include_str!("../templates/deploy/pod-disruption-budget.yaml")),
    ("deploy/network-policy.yaml", include_str!("../templates/deploy/network-policy.yaml")),
    ("deploy/service.yaml", include_str!("../templates/deploy/service.yaml")),
    ("deploy/kustomization.yaml", include_str!("../templates/deploy/kustomization.yaml")),
    ("example.yaml", include_str!("../templates/example.yaml")),
    ("Containerfile", include_str!("../templates/Containerfile")),
    ("README.md", include_str!("../templates/README.md")),
    ("rustfmt.toml", "max_width = 110\nuse_small_heuristics = \"Max\"\n"),
    (".gitignore", include_str!("../templates/gitignore")),
    // The results of builds are not sent to the builder of the image.
    (".dockerignore", "/target\n"),
];

/// Names of types that the template uses.
const TYPES: &str = " Action Arc Args BTreeMap BTreeSet Box Command Condition Conditions ConfigMap Context Controller CustomResource \
    CustomResourceExt Default Deserialize Err Error ExitCode JsonSchema Kind Manager ManagerArgs None ObjectMeta Ok \
    Option Parser Result Self Serialize SetupError Some String TestCluster Value Vec Watch ";

/// Names that a package cannot have, or that the template uses for other crates.
const CRATES: &str = " abstract alloc as async await become box break build clap const continue core crate deps do dyn \
    else enum examples extern false final fn for gen if impl in incremental k8s-openapi kube-core kube-derive let loop \
    macro match mod move mut override priv proc-macro pub ref return schemars self serde serde-json serde-saphyr static \
    std struct super test tokio trait true try type typeof unsafe unsized use virtual watchkeeper watchkeeper-test \
    where while yield ";

/// Why there is no new project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NewError {
    #[error("{name:?} cannot be the name of a project: {problem}")]
    Name { name: String, problem: &'static str },
    #[error("{kind:?} cannot be a kind: {problem}")]
    Kind { kind: String, problem: &'static str },
    #[error("{0:?} cannot be a group: use a domain name in lower case, such as example.dev")]
    Group(String),
    #[error("{} exists already: choose another name, or remove it", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The names in a project.
struct Names {
    name: String,
    kind: String,
    plural: String,
    group: String,
}

/// Writes the project into a new folder of its name, and prints what to do with it.
pub(crate) fn run(args: &NewArgs) -> Result<(), NewError> {
    let names = Names::new(&args.name, args.kind.as_deref(), &args.group)?;
    let folder = Path::new(&names.name);
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |source| NewError::Write { file, source }
    };
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => NewError::Exists(folder.to_owned()),
        _ => failed(folder)(error),
    })?;
    for (path, template) in FILES {
        let file = folder.join(path);
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(failed(parent))?;
        fs::write(&file, names.fill(template, args.path.as_deref())).map_err(failed(&file))?;
    }
    let Names { name, kind, plural, group } = &names;
    println!("{GREEN}created{GREEN:#} {name}: an operator for {kind} ({plural}.{group})");
    println!("\nnext:");
    for command in [&format!("cd {name}"), "cargo test", "watchkeeper up --crds deploy"] {
        println!("  {CYAN}{command}{CYAN:#}");
    }
    println!("{name}/README.md says how to go on");
    Ok(())
}

impl Names {
    fn new(name: &str, kind: Option<&str>, group: &str) -> Result<Self, NewError> {
        let refuse = |problem| Err(NewError::Name { name: name.to_owned(), problem });
        if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            return refuse("use at most 63 lower-case letters, digits and hyphens, a letter first");
        }
        if CRATES.contains(&format!(" {name} ")) {
            return refuse("it has a meaning in Rust, or in this project");
        }
        let kind = kind.map_or_else(|| derived(name), str::to_owned);
        let refuse = |problem| Err(NewError::Kind { kind: kind.clone(), problem });
        let is_first = |c: char| c.is_ascii_uppercase();
        if !kind.starts_with(is_first) || !kind.chars().all(|c| c.is_ascii_alphanumeric()) || kind.len() > 60
        {
            return refuse("use letters and digits, a capital first, such as --kind Website");
        }
        if TYPES.contains(&format!(" {kind} ")) {
            return refuse("the code of the project uses this name: choose another with --kind");
        }
        let labels: Vec<_> = group.split('.').collect();
        if labels.len() < 2 || !labels.iter().all(|label| is_label(label)) || group.len() > 190 {
            return Err(NewError::Group(group.to_owned()));
        }
        let plural = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", &kind)).plural;
        Ok(Self { name: name.to_owned(), kind, plural, group: group.to_owned() })
    }

    /// A template with all names filled in. The crates are those of `workspace`, or else the published ones.
    fn fill(&self, template: &str, workspace: Option<&Path>) -> String {
        let dependency = |package: &str| match workspace {
            Some(workspace) => {
                let folder = workspace.join("crates").join(package).display().to_string();
                format!("{{ path = {folder:?} }}")
            }
            None => format!("{:?}", env!("CARGO_PKG_VERSION")),
        };
        let snake = self.name.replace('-', "_");
        let values = [
            ("{{watchkeeper-test}}", dependency("watchkeeper-test")),
            ("{{watchkeeper}}", dependency("watchkeeper")),
            ("{{rust}}", env!("CARGO_PKG_RUST_VERSION").to_owned()),
            ("{{crate}}", snake),
            ("{{name}}", self.name.clone()),
            ("{{Kind}}", self.kind.clone()),
            ("{{kind}}", self.kind.to_lowercase()),
            ("{{plural}}", self.plural.clone()),
            ("{{group}}", self.group.clone()),
        ];
        values.iter().fold(template.to_owned(), |text, (mark, value)| text.replace(mark, value))
    }
}

/// Whether it is a DNS label.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// The kind that the name of a project suggests: `web-site-operator` looks after a WebSite.
fn derived(name: &str) -> String {
    let base = ["-operator", "-controller"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    base.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, kind: Option<&str>, group: &str) -> Result<String, String> {
        let names = Names::new(name, kind, group).map_err(|error| error.to_string())?;
        Ok(format!("{} {}.{}", names.kind, names.plural, names.group))
    }

    #[test]
    fn the_kind_follows_from_the_name() {
        let derived = |name| names(name, None, "example.dev").unwrap();
        assert_eq!(derived("website-operator"), "Website websites.example.dev");
        assert_eq!(derived("git-repository-controller"), "GitRepository gitrepositories.example.dev");
        assert_eq!(derived("queue"), "Queue queues.example.dev");
        assert_eq!(names("ops", Some("Proxy"), "net.acme.io").unwrap(), "Proxy proxies.net.acme.io");
    }

    #[test]
    fn names_that_rust_or_kubernetes_would_refuse_are_refused() {
        for name in ["", "Web", "a_b", "1st", "-a", "a-", "a.b", "../a", "type", "tokio", &"a".repeat(64)] {
            assert!(
                names(name, None, "example.dev").is_err_and(|it| it.contains("the name of a project")),
                "{name}"
            );
        }
        for kind in ["", "website", "Web-Site", "Watch", "Wébsite"] {
            assert!(
                names("a", Some(kind), "example.dev").is_err_and(|it| it.contains("cannot be a kind")),
                "{kind}"
            );
        }
        assert!(names("watch-operator", None, "example.dev").is_err_and(|it| it.contains("--kind")));
        for group in ["", "example", "Example.dev", "a..b", "example.dev/v1"] {
            assert!(names("a", None, group).is_err_and(|it| it.contains("cannot be a group")), "{group}");
        }
    }

    #[test]
    fn every_mark_of_the_templates_is_filled_in() {
        let names = Names::new("website-operator", None, "example.dev").unwrap();
        for (path, template) in FILES {
            let text = names.fill(template, None);
            assert!(!text.contains("{{"), "{path}: {text}");
        }
        assert!(names.fill(FILES[0].1, None).contains(concat!(
            "watchkeeper = \"",
            env!("CARGO_PKG_VERSION"),
            "\""
        )));
    }
}
