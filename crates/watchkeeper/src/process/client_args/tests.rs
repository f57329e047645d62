mod credentials;
mod proxies;
mod rotation;

use std::error::Error;
use std::fs;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use super::*;

/// A folder of kubeconfig files, and the environment of the process.
struct Machine {
    folder: tempfile::TempDir,
    around: Surroundings,
    args: ClientArgs,
}

fn no_pod() -> Result<Option<Config>, String> {
    Ok(None)
}

fn pod() -> Result<Option<Config>, String> {
    Ok(Some(Config::new("https://pod".parse().unwrap())))
}

fn unusable_pod() -> Result<Option<Config>, String> {
    Err("the token is empty".to_owned())
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let around =
            Surroundings { kubeconfig: None, home: None, in_cluster: no_pod, proxies: Proxies::default() };
        Self { folder, around, args: ClientArgs::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    async fn config(&self) -> Config {
        self.args.config_in(&self.around).unwrap()
    }

    async fn server(&self) -> String {
        self.config().await.cluster_url.to_string()
    }

    /// Returns the error, without the path of the folder.
    async fn error(&self) -> String {
        let error = self.args.config_in(&self.around).map(drop).unwrap_err();
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}").replace(&self.folder.path().display().to_string(), "")
    }

    /// Returns the error of a file with that text.
    async fn error_of(&mut self, text: &str) -> String {
        self.args.kubeconfig = Some(self.write("file", text));
        self.error().await
    }
}

/// Returns a file with one context, of the cluster at `server`.
fn simple(server: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: ns}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}', tls-server-name: t}}}}]\n\
         users: [{{name: u, user: {{token: hunter2}}}}]\n"
    )
}

/// Returns the head of the next request on `stream`.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

fn list(files: &[&Path]) -> Option<OsString> {
    Some(env::join_paths(files).unwrap())
}

#[tokio::test]
async fn flag_then_variable_then_pod_then_home() {
    let mut machine = Machine::new();
    assert_eq!(machine.error().await, ConnectError::Nothing.to_string());
    machine.write(".kube/config", &simple("https://home"));
    machine.around.home = Some(machine.folder.path().to_owned());
    assert_eq!(machine.server().await, "https://home/");
    machine.around.in_cluster = pod;
    assert_eq!(machine.server().await, "https://pod/");
    machine.args.context = Some("c".into());
    assert_eq!(machine.server().await, "https://home/", "a context is one of a file");
    machine.args.context = None;
    machine.around.kubeconfig = list(&[&machine.write("variable", &simple("https://variable"))]);
    assert_eq!(machine.server().await, "https://variable/");
    machine.args.kubeconfig = Some(machine.write("flag", &simple("https://flag")));
    let config = machine.config().await;
    assert_eq!((config.cluster_url.to_string(), &*config.default_namespace), ("https://flag/".into(), "ns"));
    assert!(config.auth_info.token.is_some());
}

#[tokio::test]
async fn a_home_without_a_file_and_an_empty_variable_are_none() {
    let mut machine = Machine::new();
    machine.around.home = Some(machine.folder.path().to_owned());
    machine.around.kubeconfig = Some("".into());
    assert_eq!(machine.error().await, ConnectError::Nothing.to_string());
}

#[tokio::test]
async fn of_several_files_the_first_that_says_something_wins() {
    let mut machine = Machine::new();
    let first = machine.write("first", "contexts: [{name: c, context: {cluster: k, user: u}}]\n");
    let second = machine.write("second", &simple("https://second"));
    let third =
        machine.write("third", &simple("https://third").replace("current-context: c", "current-context: x"));
    let empty = machine.write("empty", "");
    let missing = machine.path("missing");
    machine.around.kubeconfig = list(&[Path::new(""), &missing, &empty, &first, &second, &second, &third]);
    let config = machine.config().await;
    assert_eq!(config.cluster_url.to_string(), "https://second/");
    assert_eq!(config.default_namespace, "default", "an entry is taken whole, or not at all");
}

#[tokio::test]
async fn a_variable_that_names_no_file_is_told() {
    let mut machine = Machine::new();
    machine.around.kubeconfig = list(&[&machine.path("a"), &machine.path("b")]);
    assert_eq!(machine.error().await, "KUBECONFIG names no file that exists: /a:/b");
}

#[tokio::test]
async fn a_pod_without_a_usable_service_account_is_told() {
    let mut machine = Machine::new();
    machine.around.in_cluster = unusable_pod;
    assert_eq!(machine.error().await, "cannot use the service account of the pod: the token is empty");
}

#[tokio::test]
async fn a_master_is_talked_to_with_the_credentials_of_the_file() {
    let mut machine = Machine::new();
    machine.args.master = Some("https://master:6443".into());
    machine.around.in_cluster = pod;
    let config = machine.config().await;
    assert_eq!(
        (config.cluster_url.to_string(), config.auth_info.token.is_some()),
        ("https://master:6443/".into(), false)
    );
    machine.args.kubeconfig = Some(machine.write("file", &simple("https://file")));
    let config = machine.config().await;
    assert_eq!(config.cluster_url.to_string(), "https://master:6443/");
    assert!(config.auth_info.token.is_some() && config.tls_server_name.is_none());
    // A file without a server is enough.
    machine.write("file", &simple("").replace("server: '', ", ""));
    assert_eq!(machine.server().await, "https://master:6443/");
    machine.args.master = Some("a b".into());
    assert_eq!(machine.error().await, "--master \"a b\" is not a URL such as https://127.0.0.1:6443");
}

#[tokio::test]
async fn no_credentials_are_sent_over_plain_http() {
    let mut machine = Machine::new();
    machine.args.kubeconfig = Some(machine.write("file", &simple("http://file")));
    assert!(machine.config().await.auth_info.token.is_none());
    machine.args.master = Some("127.0.0.1:8080".into());
    let config = machine.config().await;
    assert_eq!(
        (config.cluster_url.to_string(), config.auth_info.token.is_none()),
        ("http://127.0.0.1:8080/".into(), true)
    );
}

#[tokio::test]
async fn relative_paths_are_those_of_the_file() {
    let mut machine = Machine::new();
    let text = simple("https://k").replace("token: hunter2", "tokenFile: secrets/token");
    machine.write("deep/secrets/token", "t");
    machine.args.kubeconfig = Some(machine.write("deep/file", &text));
    let token = machine.config().await.auth_info.token_file.unwrap();
    assert_eq!(Path::new(&token), machine.path("deep/secrets/token"));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let mut machine = Machine::new();
    machine.args.kubeconfig = Some(machine.path("nothing"));
    let error = machine.error().await;
    assert!(error.starts_with("cannot read the kubeconfig /nothing: No such file"), "{error}");
    machine.args.kubeconfig = Some(machine.folder.path().to_owned());
    let error = machine.error().await;
    assert!(error.starts_with("cannot read the kubeconfig : Is a directory"), "{error}");
}

#[tokio::test]
async fn a_file_that_makes_no_sense_is_named_with_the_field() {
    let mut machine = Machine::new();
    let good = simple("https://k");
    let context = "contexts: [{name: c, context: {cluster: k, user: u, namespace: ns}}]\n";
    let cases = [
        ("", "current-context is not set: set it, or give --context"),
        (
            "current-context: c",
            "current-context names the context \"c\", which is not there; there are: none",
        ),
        (
            &*good.replace("current-context: c", "current-context: x"),
            "current-context names the context \"x\", which is not there; there are: c",
        ),
        (&*good.replace(context, "contexts: [{name: c}]\n"), "contexts[c].context is missing"),
        (
            &*good.replace("cluster: k, user", "cluster: x, user"),
            "contexts[c].context.cluster names the cluster \"x\", which is not there",
        ),
        (
            &*good.replace("user: u,", "user: x,"),
            "contexts[c].context.user names the user \"x\", which is not there",
        ),
        (
            &*good.replace("server: 'https://k', ", ""),
            "clusters[k].cluster.server is missing: give the URL of the API server",
        ),
        (
            &*simple("ftp://k"),
            "clusters[k].cluster.server is \"ftp://k\", and not a URL such as https://127.0.0.1:6443",
        ),
        (
            &*good.replace("token: hunter2", "client-certificate: x.pem"),
            "users[u].user.client-certificate cannot read /x.pem: No such file or directory (os error 2)",
        ),
        (
            &*good.replace("tls-server-name: t", "certificate-authority: x.pem"),
            "clusters[k].cluster.certificate-authority failed to load certificate authority: failed to read file '\"/x.pem\"': \
             No such file or directory (os error 2)",
        ),
        (
            &*good.replace("tls-server-name: t", "proxy-url: 'a b'"),
            "clusters[k].cluster.proxy-url failed to parse proxy url: invalid uri character",
        ),
        (
            "users:\n- name: a\n  user:\n    token: {hunter2: 1}\n",
            "users.user.token is not as it should be (line 4 column 12): expected string scalar",
        ),
        (
            "contexts:\n- name: c\n  context:\n    user: hunter2\n",
            "contexts.context.user is not as it should be (line 4 column 5): missing field `cluster`",
        ),
    ];
    for (text, problem) in cases {
        let error = machine.error_of(text).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: {problem}"));
        assert!(!error.contains("hunter2"));
    }
    machine.args.context = Some("y".into());
    let error = machine.error_of(&good).await;
    assert_eq!(
        error,
        "cannot use the kubeconfig /file: --context names the context \"y\", which is not there; there are: c"
    );
}

// client-go: TestDuplicateClusterName, TestDuplicateContextName, TestDuplicateUserName
#[tokio::test]
async fn two_entries_of_one_name_are_told() {
    let mut machine = Machine::new();
    let good = simple("https://k");
    for (list, name) in [("contexts", "c"), ("clusters", "k"), ("users", "u")] {
        let twice = good.replace(&format!("{list}: ["), &format!("{list}: [{{name: {name}}}, "));
        assert_ne!(twice, good);
        let problem = format!("{list} has two entries of the name {name:?}: leave one out");
        assert_eq!(machine.error_of(&twice).await, format!("cannot use the kubeconfig /file: {problem}"));
    }
}

// client-go: TestConfirmUsableBadInfoButOkConfig
#[tokio::test]
async fn what_another_context_uses_may_be_wrong() {
    let mut machine = Machine::new();
    let text = simple("https://k")
        .replace("contexts: [", "contexts: [{name: bad, context: {cluster: bad, user: bad}}, ")
        .replace("clusters: [", "clusters: [{name: bad, cluster: {certificate-authority: missing}}, ")
        .replace("users: [", "users: [{name: bad, user: {client-certificate: missing}}, ");
    machine.args.kubeconfig = Some(machine.write("file", &text));
    assert_eq!(machine.server().await, "https://k/");
    machine.args.context = Some("bad".into());
    assert!(machine.error().await.contains("[bad]"));
}

#[tokio::test]
async fn a_user_may_have_no_name_and_a_context_of_a_later_file_names_that_file() {
    let mut machine = Machine::new();
    machine.args.kubeconfig =
        Some(machine.write("file", &simple("https://k").replace("user: u,", "user: '',")));
    assert!(machine.config().await.auth_info.token.is_none());
    machine.args.kubeconfig = None;
    let first = machine.write("first", "current-context: c\n");
    let second = machine.write("second", "contexts: [{name: c, context: {cluster: x}}]\n");
    machine.around.kubeconfig = list(&[&first, &second]);
    assert!(
        machine.error().await.starts_with("cannot use the kubeconfig /second: contexts[c].context.cluster")
    );
    machine.args.context = Some("z".into());
    assert!(machine.error().await.starts_with("cannot use the kubeconfig /first, /second: --context"));
}

#[tokio::test]
async fn a_cluster_that_is_found_gives_clients() {
    let mut machine = Machine::new();
    machine.args.kubeconfig = Some(machine.write("file", &simple("https://127.0.0.1:1")));
    assert!(machine.args.connect(&Env::simulated(1)).await.is_ok());
}

#[tokio::test]
async fn a_server_without_a_scheme_is_https_where_anything_says_so() {
    let mut machine = Machine::new();
    let data = |text: &str| BASE64_STANDARD.encode(text);
    let pair = rcgen::generate_simple_self_signed(["k".to_owned()]).unwrap();
    let authority = format!("certificate-authority-data: {}", data(&pair.cert.pem()));
    let certificate = format!(
        "client-certificate-data: {}, client-key-data: {}",
        data(&pair.cert.pem()),
        data(&pair.signing_key.serialize_pem())
    );
    let plain = simple("k:6443");
    let cases = [
        (plain.clone(), "http"),
        (plain.replace("tls-server-name: t", "certificate-authority-data: ''"), "http"),
        (plain.replace("tls-server-name: t", &authority), "https"),
        (plain.replace("tls-server-name: t", "insecure-skip-tls-verify: true"), "https"),
        (plain.replace("token: hunter2", &certificate), "https"),
    ];
    for (text, scheme) in cases {
        machine.args.kubeconfig = Some(machine.write("file", &text));
        machine.args.master = None;
        assert_eq!(machine.server().await, format!("{scheme}://k:6443/"), "{text}");
        machine.args.master = Some("10.0.0.1:6443".into());
        let config = machine.config().await;
        assert_eq!(config.cluster_url.to_string(), format!("{scheme}://10.0.0.1:6443/"), "{text}");
        let info = config.auth_info;
        assert_eq!(info.token.is_some() || info.client_key_data.is_some(), scheme == "https", "{text}");
    }
    // With a scheme, the scheme decides.
    machine.args.master = Some("http://10.0.0.1:8080".into());
    assert_eq!(machine.server().await, "http://10.0.0.1:8080/");
}

#[tokio::test]
async fn a_pod_without_a_usable_service_account_uses_the_file_at_home() {
    let mut machine = Machine::new();
    machine.around.in_cluster = unusable_pod;
    machine.write(".kube/config", &simple("https://home"));
    machine.around.home = Some(machine.folder.path().to_owned());
    assert_eq!(machine.server().await, "https://home/");
}
