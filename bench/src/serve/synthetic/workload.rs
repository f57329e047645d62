//! Workloads: what their replicas share, which is everything in the Pod template.

use watchkeeper::clock::Generator;

use super::super::pod::time;
use super::draw::{happens, hex, letters, one, phrase, skewed, word};

/// Who made the Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    ReplicaSet,
    DaemonSet,
    Job,
}

/// A workload: its owner and its Pod template.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) owner: Owner,
    pub(super) namespace: String,
    /// The name of the owner, which is the first part of its Pods' names.
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) service_account: String,
    pub(super) containers: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
    pub(super) node_pool: Option<String>,
    pub(super) critical: bool,
}

/// A container of the template.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) digest: String,
    pub(super) args: Vec<String>,
    pub(super) ports: Vec<(&'static str, u64)>,
    pub(super) env: Vec<Env>,
    /// Requests and limits of cpu (millicores) and memory (MiB).
    pub(super) resources: Option<[u64; 4]>,
    /// The volume's index and the path.
    pub(super) mounts: Vec<(usize, String)>,
    pub(super) liveness: bool,
    pub(super) readiness: bool,
    pub(super) locked_down: bool,
}

/// A variable of a container's environment.
#[derive(Debug)]
pub(super) enum Env {
    Value(String, String),
    Field(&'static str, &'static str),
    Secret { name: String, secret: String, key: &'static str },
}

impl Env {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Value(name, _) | Self::Secret { name, .. } => name,
            Self::Field(name, _) => name,
        }
    }
}

/// A volume beside the service account's token.
#[derive(Debug)]
pub(super) enum Volume {
    ConfigMap(String),
    Secret(String),
    EmptyDir(String),
}

impl Volume {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::ConfigMap(name) | Self::Secret(name) | Self::EmptyDir(name) => name,
        }
    }
}

impl Workload {
    /// Workload `index`, in one of `namespaces` namespaces.
    pub(super) fn draw(index: u32, namespaces: u32, chance: &Generator) -> Self {
        let team = skewed(chance, u64::from(namespaces), 2.5);
        let namespace = match team {
            0 => "default".into(),
            1 => "kube-system".into(),
            _ => format!("{}-{}", WORDS_OF_TEAMS[team as usize % WORDS_OF_TEAMS.len()], team),
        };
        let owner = match chance.below(100) {
            0..=77 => Owner::ReplicaSet,
            78..=89 => Owner::DaemonSet,
            _ => Owner::Job,
        };
        // The index keeps two workloads of one namespace from sharing a name.
        let app = format!("{}-{}-{index}", word(chance), word(chance));
        let name = match owner {
            Owner::ReplicaSet => format!("{app}-{}", letters(chance, 10)),
            Owner::DaemonSet => app.clone(),
            Owner::Job => format!("{app}-{}", 29_500_000 + chance.below(40_000)),
        };
        let volumes: Vec<_> =
            (0..skewed(chance, 4, 3.0)).map(|number| volume(&app, number, chance)).collect();
        let containers = (0..1 + skewed(chance, 3, 4.0)).map(|n| Container::draw(n, &app, &volumes, chance));
        Self {
            owner,
            uid: chance.uuid(),
            labels: labels(&app, &name, owner, chance),
            annotations: annotations(chance),
            service_account: if happens(chance, 60) { app.clone() } else { "default".into() },
            containers: containers.collect(),
            volumes,
            node_pool: happens(chance, 25).then(|| format!("pool-{}", word(chance))),
            critical: owner == Owner::DaemonSet && happens(chance, 50),
            namespace,
            name,
        }
    }
}

const WORDS_OF_TEAMS: [&str; 9] =
    ["shop", "platform", "growth", "risk", "staging", "prod", "ml-serving", "observability", "data-eng"];

fn volume(app: &str, number: u64, chance: &Generator) -> Volume {
    match chance.below(3) {
        0 => Volume::ConfigMap(format!("{app}-config-{number}")),
        1 => Volume::Secret(format!("{app}-certs-{number}")),
        _ => Volume::EmptyDir(format!("{}-scratch-{number}", word(chance))),
    }
}

fn labels(app: &str, name: &str, owner: Owner, chance: &Generator) -> Vec<(String, String)> {
    let mut labels = vec![("app.kubernetes.io/name".to_owned(), app.to_owned())];
    let mut add = |key: &str, value: String| labels.push((key.to_owned(), value));
    if happens(chance, 70) {
        add("app.kubernetes.io/instance", format!("{app}-{}", one(chance, &["blue", "green", "eu", "us"])));
    }
    if happens(chance, 50) {
        add(
            "app.kubernetes.io/version",
            format!("{}.{}.{}", chance.below(4), chance.below(30), chance.below(9)),
        );
    }
    if happens(chance, 50) {
        add("app.kubernetes.io/managed-by", "Helm".into());
    }
    match owner {
        Owner::ReplicaSet => add("pod-template-hash", name.rsplit('-').next().unwrap_or_default().to_owned()),
        Owner::DaemonSet => {
            add("controller-revision-hash", hex(chance, 10));
            add("pod-template-generation", format!("{}", 1 + chance.below(20)));
        }
        Owner::Job => add("batch.kubernetes.io/job-name", name.to_owned()),
    }
    for number in 0..skewed(chance, 6, 3.6) {
        add(&format!("{}.example.com/{}-{number}", word(chance), word(chance)), word(chance).to_owned());
    }
    labels.sort();
    labels
}

fn annotations(chance: &Generator) -> Vec<(String, String)> {
    let mut annotations = Vec::new();
    let mut add = |key: &str, value: String| annotations.push((key.to_owned(), value));
    if happens(chance, 40) {
        add("checksum/config", hex(chance, 64));
    }
    if happens(chance, 25) {
        add("prometheus.io/path", "/metrics".into());
        add("prometheus.io/port", format!("{}", 8000 + chance.below(2000)));
        add("prometheus.io/scrape", "true".into());
    }
    if happens(chance, 20) {
        add("kubectl.kubernetes.io/restartedAt", time(-(chance.below(9_000_000) as i64)).to_string());
    }
    for number in 0..skewed(chance, 4, 2.0) {
        let words = 2 + chance.below(12);
        add(&format!("{}.example.com/note-{number}", word(chance)), phrase(chance, words));
    }
    annotations.sort();
    annotations
}

impl Container {
    fn draw(number: u64, app: &str, volumes: &[Volume], chance: &Generator) -> Self {
        let sidecar = number > 0;
        let name = if sidecar {
            format!("{}-{number}", one(chance, &["proxy", "agent", "exporter", "sync"]))
        } else {
            app.into()
        };
        let registry = one(
            chance,
            &["registry.example.com/team", "ghcr.io/example", "quay.io/example", "docker.io/library"],
        );
        let image = format!(
            "{registry}/{}-{}:{}.{}.{}",
            word(chance),
            word(chance),
            chance.below(9),
            chance.below(40),
            chance.below(20)
        );
        let serves = happens(chance, if sidecar { 30 } else { 45 });
        let ports: &[(&str, u64)] = match chance.below(9) {
            0..=3 => &[("http", 8080)],
            4..=5 => &[("http", 8080), ("metrics", 9090)],
            6 => &[("grpc", 50051), ("http", 8080), ("metrics", 9102)],
            _ => &[("https", 8443)],
        };
        let args = 1 + skewed(chance, 5, 2.0);
        Self {
            name,
            image,
            digest: hex(chance, 64),
            args: (0..args)
                .map(|_| format!("--{}-{}={}", word(chance), word(chance), chance.below(1000)))
                .collect(),
            ports: if serves {
                ports.iter().map(|(name, port)| (*name, port + number * 100)).collect()
            } else {
                Vec::new()
            },
            env: env(app, chance),
            resources: happens(chance, 35).then(|| {
                let (cpu, memory) = (10 + 10 * chance.below(100), 32 + 32 * chance.below(64));
                [cpu, memory, cpu * 2, memory + 128]
            }),
            mounts: (0..volumes.len())
                .filter(|_| happens(chance, 70))
                .map(|v| (v, format!("/etc/{}/{v}", word(chance))))
                .collect(),
            liveness: serves && happens(chance, 20),
            readiness: serves && happens(chance, 20),
            locked_down: happens(chance, 30),
        }
    }
}

fn env(app: &str, chance: &Generator) -> Vec<Env> {
    let mut env = Vec::new();
    if happens(chance, 15) {
        env.push(Env::Field("POD_NAME", "metadata.name"));
        env.push(Env::Field("POD_NAMESPACE", "metadata.namespace"));
    }
    for number in 0..skewed(chance, 12, 4.6) {
        let name = format!("{}_{}_{number}", word(chance), word(chance)).to_uppercase();
        env.push(match chance.below(4) {
            0 => Env::Secret { name, secret: format!("{app}-secrets"), key: "password" },
            1 => Env::Value(
                name,
                format!(
                    "http://{}.{}.svc.cluster.local:{}",
                    word(chance),
                    word(chance),
                    80 + chance.below(9000)
                ),
            ),
            _ => Env::Value(name, format!("{}-{}", word(chance), chance.below(100_000))),
        });
    }
    env
}
