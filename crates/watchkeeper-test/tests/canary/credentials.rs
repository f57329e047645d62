//! Marked credentials of every kind: refused, unusable, and in files that cannot be read.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::ClientArgs;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::{Client, Env, ObjectName, SharedInformer};

use crate::marks::{CLIENT_SECRET, EXEC, ID_TOKEN, KEY, PASSWORD, REFRESH, REFUSED, encoded};
use crate::operator::server;
use crate::show;

/// The folder of a client certificate and its key, whose marks the parent knows.
pub(crate) fn pair() -> PathBuf {
    std::env::var_os(crate::PAIR).unwrap().into()
}

/// Users of a kubeconfig, as YAML, by name. `FOLDER` is where files are; `pair` has a client certificate and its key.
pub(crate) fn users(pair: &Path) -> Vec<(&'static str, String)> {
    let issued = |name: &str| encoded(&std::fs::read_to_string(pair.join(name)).unwrap_or_default());
    let exec = |script: String| {
        let script = script.replace('"', "\\\"");
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never, \
             args: [-c, \"{script}\"], env: [{{name: PLUGIN_SECRET, value: {EXEC}}}]}}"
        )
    };
    let oidc = |fields: &str| format!("auth-provider: {{name: oidc, config: {{{fields}}}}}");
    let issuer = "client-id: c, idp-issuer-url: 'https://127.0.0.1:1'";
    let printed = |status: &str| {
        let head = r#""apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential""#;
        format!("echo '{{{head}, \"status\": {{{status}}}}}'")
    };
    let certificate = issued("client.crt");
    vec![
        ("with a token that is refused", format!("token: {REFUSED}")),
        ("with a token that no header may hold", format!("token: \"{REFUSED}\\n\"")),
        ("with a token that is a list", format!("token: [{REFUSED}]")),
        ("with a token file", "tokenFile: FOLDER/refused".to_owned()),
        ("with a token file that does not exist", format!("{{tokenFile: FOLDER/none, token: {REFUSED}}}")),
        ("with a password", format!("{{username: u, password: {PASSWORD}}}")),
        ("with a token and a password", format!("{{token: {REFUSED}, username: u, password: {PASSWORD}}}")),
        (
            "with a certificate and its key",
            format!("{{client-certificate-data: {certificate}, client-key-data: {}}}", issued("client.key")),
        ),
        (
            "with files of a certificate and its key",
            format!("{{client-certificate: {0}/client.crt, client-key: {0}/client.key}}", pair.display()),
        ),
        (
            "with a plugin that prints a certificate and its key",
            exec(format!("cat {}/printed", pair.display())),
        ),
        (
            "with a key that is none",
            format!("{{client-certificate-data: {certificate}, client-key-data: {}}}", encoded(KEY)),
        ),
        (
            "with a key that is not base64",
            format!("{{client-certificate-data: {certificate}, client-key-data: '{KEY}!'}}"),
        ),
        ("with a key and no certificate", format!("client-key-data: {}", encoded(KEY))),
        (
            "with a key file that is none",
            "{client-certificate: FOLDER/crt, client-key: FOLDER/key}".to_owned(),
        ),
        ("with a plugin", exec(printed(&format!("\"token\": \"{EXEC}\"")))),
        ("with a plugin that fails", exec(format!("echo {EXEC}; echo {EXEC} >&2; exit 3"))),
        ("with a plugin that prints something else", exec(format!("echo {EXEC}"))),
        (
            "with a plugin that prints a broken key",
            exec(printed(&format!("\"clientKeyData\": \"{EXEC}\", \"clientCertificateData\": \"{EXEC}\""))),
        ),
        (
            "with a plugin that prints no time",
            exec(printed(&format!("\"token\": \"{EXEC}\", \"expirationTimestamp\": \"{EXEC}\""))),
        ),
        (
            "with a plugin that does not exist",
            format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, command: FOLDER/none, args: [{EXEC}], env: [{{name: A, value: {EXEC}}}]}}"
            ),
        ),
        ("of a provider", oidc(&format!("{issuer}, id-token: h.e30.{ID_TOKEN}"))),
        (
            "of a provider, renewed",
            oidc(&format!(
                "{issuer}, client-secret: {CLIENT_SECRET}, refresh-token: {REFRESH}, id-token: h.eyJleHAiOjF9.{ID_TOKEN}"
            )),
        ),
        (
            "of a provider without a URL",
            oidc(&format!("refresh-token: {REFRESH}, idp-issuer-url: '{REFRESH}'")),
        ),
        (
            "of an unknown provider",
            format!("auth-provider: {{name: other, config: {{access-token: {REFRESH}}}}}"),
        ),
        ("in a broken file", format!("{{token: {REFUSED}")),
    ]
}

/// Settings of a cluster that have a password in them.
fn clusters(port: u16) -> Vec<String> {
    vec![
        format!("{{server: 'https://user:{PASSWORD}@127.0.0.1:{port}'}}"),
        format!("{{server: 'https://127.0.0.1:{port}', proxy-url: 'http://user:{PASSWORD}@127.0.0.1:1'}}"),
        format!("{{server: 'https://127.0.0.1:{port}', proxy-url: 'ftp://user:{PASSWORD}@127.0.0.1:1'}}"),
        format!("{{server: 'https://127.0.0.1:{port}', proxy-url: 'socks5://user:{PASSWORD}@127.0.0.1:1'}}"),
        format!("{{server: 'nonsense://user:{PASSWORD}@127.0.0.1:{port}'}}"),
    ]
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    let mut text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n".to_owned();
    write!(text, "clusters: [{{name: k, cluster: {cluster}}}]\nusers:\n- name: u\n  user:\n    {user}\n")
        .unwrap();
    text
}

/// Uses a kubeconfig for everything that a program does with one.
async fn use_file(what: &str, folder: &Path, text: &str) {
    let (env, file) = (Env::system(), folder.join("used"));
    env.reporter.add_hook(|report| println!("report: {report:?} {}", report.incident));
    std::fs::write(&file, text).unwrap();
    let args = ClientArgs { kubeconfig: Some(file), ..ClientArgs::default() };
    let client = match args.connect(&env).await {
        Ok(client) => client,
        Err(error) => return show(what, &error),
    };
    println!("{what}: {client:?} {:?}", client.requests());
    match client.api::<Secret>().get(&ObjectName::namespaced("default", "none")).await {
        Ok(_) => panic!("there is none"),
        Err(error) => show(what, &error),
    }
    println!("{what}: {:?}", client.credentials());
    watch(&client).await;
}

/// Lets an informer fail.
async fn watch(client: &Client) {
    let source = ApiSource::new::<Secret>(client, &(), &Scope::Cluster);
    let informer = SharedInformer::<Secret>::builder(source, client.env()).build();
    let stop = CancellationToken::new();
    let (running, token) = (informer.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    let problem = async {
        while informer.health().degraded.is_none() {
            client.env().clock.sleep(Duration::from_millis(5)).await;
        }
    };
    client.env().clock.timeout(Duration::from_secs(20), problem).await.unwrap();
    println!("{:?}", informer.health());
    stop.cancel();
    run.await.unwrap();
}

pub(crate) async fn run() {
    let (env, folder) = (Env::system(), tempfile::tempdir().unwrap());
    let (_server, listening, _) = server(&env, folder.path()).await;
    let pair = pair();
    std::fs::write(folder.path().join("refused"), REFUSED).unwrap();
    std::fs::copy(pair.join("client.crt"), folder.path().join("crt")).unwrap();
    std::fs::write(folder.path().join("key"), KEY).unwrap();
    let config = listening.kubeconfig();
    let authority = config.lines().find(|line| line.contains("certificate-authority-data")).unwrap().trim();
    let cluster = format!("{{server: '{}', {authority}}}", listening.url());
    let place = folder.path().display().to_string();
    for (name, user) in users(&pair) {
        let user = user.replace("FOLDER", &place);
        use_file(&format!("user {name}"), folder.path(), &kubeconfig(&cluster, &user)).await;
    }
    for cluster in clusters(listening.address().port()) {
        use_file("cluster", folder.path(), &kubeconfig(&cluster, "{}")).await;
    }
    listening.stop().await;
}
