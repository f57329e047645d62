use std::error::Error;
use std::fs;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A folder of kubeconfig files, and what is around the process.
struct World {
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

impl World {
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

    /// What is wrong, with the folder left out.
    async fn error(&self) -> String {
        let error = self.args.config_in(&self.around).map(drop).unwrap_err();
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}").replace(&self.folder.path().display().to_string(), "")
    }

    /// What is wrong with a file of that text.
    async fn error_of(&mut self, text: &str) -> String {
        self.args.kubeconfig = Some(self.write("file", text));
        self.error().await
    }
}

/// A file with one context, of the cluster at `server`.
fn simple(server: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: ns}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}', tls-server-name: t}}}}]\n\
         users: [{{name: u, user: {{token: hunter2}}}}]\n"
    )
}

fn list(files: &[&Path]) -> Option<OsString> {
    Some(env::join_paths(files).unwrap())
}

#[tokio::test]
async fn flag_then_variable_then_pod_then_home() {
    let mut world = World::new();
    assert_eq!(world.error().await, ConnectError::Nothing.to_string());
    world.write(".kube/config", &simple("https://home"));
    world.around.home = Some(world.folder.path().to_owned());
    assert_eq!(world.server().await, "https://home/");
    world.around.in_cluster = pod;
    assert_eq!(world.server().await, "https://pod/");
    world.args.context = Some("c".into());
    assert_eq!(world.server().await, "https://home/", "a context is one of a file");
    world.args.context = None;
    world.around.kubeconfig = list(&[&world.write("variable", &simple("https://variable"))]);
    assert_eq!(world.server().await, "https://variable/");
    world.args.kubeconfig = Some(world.write("flag", &simple("https://flag")));
    let config = world.config().await;
    assert_eq!((config.cluster_url.to_string(), &*config.default_namespace), ("https://flag/".into(), "ns"));
    assert!(config.auth_info.token.is_some());
}

#[tokio::test]
async fn a_home_without_a_file_and_an_empty_variable_are_none() {
    let mut world = World::new();
    world.around.home = Some(world.folder.path().to_owned());
    world.around.kubeconfig = Some("".into());
    assert_eq!(world.error().await, ConnectError::Nothing.to_string());
}

#[tokio::test]
async fn of_several_files_the_first_that_says_something_wins() {
    let mut world = World::new();
    let first = world.write("first", "contexts: [{name: c, context: {cluster: k, user: u}}]\n");
    let second = world.write("second", &simple("https://second"));
    let third =
        world.write("third", &simple("https://third").replace("current-context: c", "current-context: x"));
    let empty = world.write("empty", "");
    let missing = world.path("missing");
    world.around.kubeconfig = list(&[Path::new(""), &missing, &empty, &first, &second, &second, &third]);
    let config = world.config().await;
    assert_eq!(config.cluster_url.to_string(), "https://second/");
    assert_eq!(config.default_namespace, "default", "an entry is taken whole, or not at all");
}

#[tokio::test]
async fn a_variable_that_names_no_file_is_told() {
    let mut world = World::new();
    world.around.kubeconfig = list(&[&world.path("a"), &world.path("b")]);
    assert_eq!(world.error().await, "KUBECONFIG names no file that exists: /a:/b");
}

#[tokio::test]
async fn a_pod_without_a_usable_service_account_is_told() {
    let mut world = World::new();
    world.around.in_cluster = unusable_pod;
    assert_eq!(world.error().await, "cannot use the service account of the pod: the token is empty");
}

#[tokio::test]
async fn a_master_is_talked_to_with_the_credentials_of_the_file() {
    let mut world = World::new();
    world.args.master = Some("https://master:6443".into());
    world.around.in_cluster = pod;
    let config = world.config().await;
    assert_eq!(
        (config.cluster_url.to_string(), config.auth_info.token.is_some()),
        ("https://master:6443/".into(), false)
    );
    world.args.kubeconfig = Some(world.write("file", &simple("https://file")));
    let config = world.config().await;
    assert_eq!(config.cluster_url.to_string(), "https://master:6443/");
    assert!(config.auth_info.token.is_some() && config.tls_server_name.is_none());
    // A file without a server will do.
    world.write("file", &simple("").replace("server: '', ", ""));
    assert_eq!(world.server().await, "https://master:6443/");
    world.args.master = Some("a b".into());
    assert_eq!(world.error().await, "--master \"a b\" is not a URL such as https://127.0.0.1:6443");
}

#[tokio::test]
async fn no_credentials_are_sent_over_plain_http() {
    let mut world = World::new();
    world.args.kubeconfig = Some(world.write("file", &simple("http://file")));
    assert!(world.config().await.auth_info.token.is_none());
    world.args.master = Some("127.0.0.1:8080".into());
    let config = world.config().await;
    assert_eq!(
        (config.cluster_url.to_string(), config.auth_info.token.is_none()),
        ("http://127.0.0.1:8080/".into(), true)
    );
}

#[tokio::test]
async fn relative_paths_are_those_of_the_file() {
    let mut world = World::new();
    let text = simple("https://k").replace("token: hunter2", "tokenFile: secrets/token");
    world.write("deep/secrets/token", "t");
    world.args.kubeconfig = Some(world.write("deep/file", &text));
    let token = world.config().await.auth_info.token_file.unwrap();
    assert_eq!(Path::new(&token), world.path("deep/secrets/token"));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let mut world = World::new();
    world.args.kubeconfig = Some(world.path("nothing"));
    let error = world.error().await;
    assert!(error.starts_with("cannot read the kubeconfig /nothing: No such file"), "{error}");
}

#[tokio::test]
async fn a_file_that_makes_no_sense_is_named_with_the_field() {
    let mut world = World::new();
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
        let error = world.error_of(text).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: {problem}"));
        assert!(!error.contains("hunter2"));
    }
    world.args.context = Some("y".into());
    let error = world.error_of(&good).await;
    assert_eq!(
        error,
        "cannot use the kubeconfig /file: --context names the context \"y\", which is not there; there are: c"
    );
}

#[tokio::test]
async fn a_user_may_have_no_name_and_a_context_of_a_later_file_names_that_file() {
    let mut world = World::new();
    world.args.kubeconfig = Some(world.write("file", &simple("https://k").replace("user: u,", "user: '',")));
    assert!(world.config().await.auth_info.token.is_none());
    world.args.kubeconfig = None;
    let first = world.write("first", "current-context: c\n");
    let second = world.write("second", "contexts: [{name: c, context: {cluster: x}}]\n");
    world.around.kubeconfig = list(&[&first, &second]);
    assert!(
        world.error().await.starts_with("cannot use the kubeconfig /second: contexts[c].context.cluster")
    );
    world.args.context = Some("z".into());
    assert!(world.error().await.starts_with("cannot use the kubeconfig /first, /second: --context"));
}

#[tokio::test]
async fn a_cluster_that_is_found_gives_clients() {
    let mut world = World::new();
    world.args.kubeconfig = Some(world.write("file", &simple("https://127.0.0.1:1")));
    assert!(world.args.connect(&Env::simulated(1)).await.is_ok());
}

/// The head of the next request on `stream`.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test]
async fn requests_go_through_the_proxy_of_the_cluster() {
    let mut world = World::new();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("proxy-url: 'http://alice:hunter2@{}'", proxy.local_addr().unwrap());
    // The proxy of a file is asked whatever the variables say.
    world.around.proxies = Proxies { no: "*".into(), ..Proxies::default() };
    let text = simple("http://api.invalid:8080").replace("tls-server-name: t", &url);
    world.args.kubeconfig = Some(world.write("file", &text));
    let clients = Clients::from_config(world.config().await, &Env::simulated(1)).unwrap();
    let serve = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let connect = head(&mut stream).await;
        assert!(connect.starts_with("connect api.invalid:8080 http/1.1\r\n"), "{connect}");
        assert!(connect.contains("proxy-authorization: basic ywxpy2u6ahvudgvymg==\r\n"), "{connect}");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let request = head(&mut stream).await;
        assert!(request.starts_with("get /hello http/1.1\r\n") && !request.contains("proxy"), "{request}");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    };
    let request = http::Request::get("/hello").body(Vec::new()).unwrap();
    let (answer, ()) = tokio::join!(clients.watch().request_text(request), serve);
    assert_eq!(answer.unwrap(), "hi");
}

#[tokio::test]
async fn a_proxy_may_be_of_socks() {
    let mut world = World::new();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("proxy-url: 'socks5://alice:hunter2@{}'", proxy.local_addr().unwrap());
    let text = simple("http://api.invalid:8080").replace("tls-server-name: t", &url);
    world.args.kubeconfig = Some(world.write("file", &text));
    let clients = Clients::from_config(world.config().await, &Env::simulated(1)).unwrap();
    let serve = async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        // What each side says: methods, user and password, the server's name and port.
        let talk: [(&[u8], &[u8]); 3] = [
            (b"\x05\x01\x02", b"\x05\x02"),
            (b"\x01\x05alice\x07hunter2", b"\x01\x00"),
            (b"\x05\x01\x00\x03\x0bapi.invalid\x1f\x90", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"),
        ];
        for (asked, answer) in talk {
            let mut heard = vec![0; asked.len()];
            stream.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, asked);
            stream.write_all(answer).await.unwrap();
        }
        assert!(head(&mut stream).await.starts_with("get /hello http/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    };
    let request = http::Request::get("/hello").body(Vec::new()).unwrap();
    let (answer, ()) = tokio::join!(clients.watch().request_text(request), serve);
    assert_eq!(answer.unwrap(), "hi");
}

#[tokio::test]
async fn servers_are_reached_through_the_proxy_of_the_variable() {
    for (server, asked) in
        [("https://api.invalid", "api.invalid:443"), ("http://api.invalid", "api.invalid:80")]
    {
        let mut world = World::new();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap().to_string();
        world.around.proxies = Proxies { https: address.clone(), http: address, no: "other.invalid".into() };
        world.args.kubeconfig = Some(world.write("file", &simple(server)));
        let clients = Clients::from_config(world.config().await, &Env::simulated(1)).unwrap();
        let serve = async {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let connect = head(&mut stream).await;
            assert!(connect.starts_with(&format!("connect {asked} http/1.1\r\n")), "{connect}");
            assert!(!connect.contains("proxy-authorization"), "{connect}");
        };
        let request = http::Request::get("/hello").body(Vec::new()).unwrap();
        tokio::select! {
            biased;
            () = serve => {}
            answer = clients.watch().request_text(request) => panic!("without the proxy: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_told_without_its_password() {
    let mut world = World::new();
    world.around.proxies.https = "ftp://alice:hunter2@proxy".into();
    world.args.kubeconfig = Some(world.write("file", &simple("https://k")));
    assert_eq!(world.error().await, "HTTPS_PROXY has a scheme other than http, https and socks5");
    let text = simple("https://k").replace("tls-server-name: t", "proxy-url: 'ftp://alice:hunter2@proxy'");
    assert_eq!(
        world.error_of(&text).await,
        "cannot use the kubeconfig /file: clusters[k].cluster.proxy-url has a scheme other than http, https and socks5"
    );
    let mut config = Config::new("https://u:hunter2@k".parse().unwrap());
    config.proxy_url = Some("ftp://alice:hunter2@proxy".parse().unwrap());
    let error = Clients::from_config(config, &Env::simulated(1)).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_token_that_no_header_can_hold_is_told_and_does_not_panic() {
    let mut world = World::new();
    let cases = [
        ("token: \"hunter2\\n\"", "users[u].user.token"),
        (
            "auth-provider: {name: oidc, config: {id-token: \"hunter2\\n\"}}",
            "users[u].user.auth-provider.config.id-token",
        ),
    ];
    for (user, field) in cases {
        let error = world.error_of(&simple("https://k").replace("token: hunter2", user)).await;
        let problem = "holds what no header may, such as a line break";
        assert_eq!(error, format!("cannot use the kubeconfig /file: {field} {problem}"));
    }
    // What a program prints is known when it has run.
    let printed = r#"{"status": {"token": "hunter2\\n"}}"#;
    let exec = format!("exec: {{command: printf, args: ['{printed}'], interactiveMode: Never}}");
    world.write("file", &simple("https://k").replace("token: hunter2", &exec));
    let config = world.config().await;
    let error = Clients::from_config(config, &Env::simulated(1)).unwrap_err();
    assert!(error.to_string().contains("what no header may hold"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_named_with_their_field() {
    let mut world = World::new();
    let data = |text: &str| BASE64_STANDARD.encode(text);
    let pair = || rcgen::generate_simple_self_signed(["k".to_owned()]).unwrap();
    let (mine, other) = (pair(), pair());
    let (certificate, key) = (data(&mine.cert.pem()), data(&mine.signing_key.serialize_pem()));
    let (other, secret) = (data(&other.signing_key.serialize_pem()), data("hunter2"));
    let garbled = data("-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n");
    let user_cases = [
        ("client-certificate-data: '!!'".to_owned(), "client-certificate-data is not base64"),
        (
            format!("client-certificate-data: {certificate}"),
            "client-key is missing: there is a client certificate",
        ),
        (format!("client-key-data: {key}"), "client-certificate is missing: there is a client key"),
        (
            format!("client-certificate-data: {secret}, client-key-data: {key}"),
            "client-certificate-data holds no certificate",
        ),
        (
            format!("client-certificate-data: {garbled}, client-key-data: {key}"),
            "client-certificate-data holds no certificate",
        ),
        (
            format!("client-certificate-data: {certificate}, client-key-data: {secret}"),
            "client-key-data holds no private key",
        ),
        (
            format!("client-certificate-data: {certificate}, client-key-data: {other}"),
            "client-key-data is not the key of the client certificate",
        ),
        ("exec: {args: [hunter2]}".to_owned(), "exec.command is missing: give the program to run"),
        (
            "auth-provider: {name: azure, config: {access-token: hunter2}}".to_owned(),
            "auth-provider.name is \"azure\", which is not supported: use exec",
        ),
        ("auth-provider: {name: oidc}".to_owned(), "auth-provider.config.id-token is missing"),
        ("as: \"hunter2\\n\"".to_owned(), "as holds what no header may, such as a line break"),
    ];
    for (user, problem) in user_cases {
        let error = world.error_of(&simple("https://k").replace("token: hunter2", &user)).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: users[u].user.{problem}"));
    }
    let cluster_cases = [
        (
            "certificate-authority-data: '!!'".to_owned(),
            "certificate-authority-data failed to load certificate authority: failed to decode base64 data: \
             Invalid symbol 33, offset 0.",
        ),
        (format!("certificate-authority-data: {secret}"), "certificate-authority-data holds no certificate"),
        (format!("certificate-authority-data: {garbled}"), "certificate-authority-data holds no certificate"),
        ("tls-server-name: 'a b'".to_owned(), "tls-server-name is no name of a server"),
    ];
    for (cluster, problem) in cluster_cases {
        let error = world.error_of(&simple("https://k").replace("tls-server-name: t", &cluster)).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: clusters[k].cluster.{problem}"));
    }
    let error = world.error_of(&simple("ftp://u:hunter2@k")).await;
    assert!(error.contains("server is \"ftp://k\", and"), "{error}");
    world.args.master = Some("ftp://u:hunter2@k".into());
    assert!(world.error().await.starts_with("--master \"ftp://k\" is not"));
    world.args.master = None;

    let good = simple("https://k")
        .replace("tls-server-name: t", &format!("certificate-authority-data: {certificate}"))
        .replace(
            "token: hunter2",
            &format!("token: '', client-certificate-data: {certificate}, client-key-data: {key}"),
        );
    world.write("file", &good);
    let config = world.config().await;
    assert_eq!(config.root_cert.as_deref(), Some(&[mine.cert.der().to_vec()][..]));
    assert!(config.auth_info.token.is_none(), "what is empty is not there");
    assert!(Clients::from_config(config, &Env::simulated(1)).is_ok());
    let empty = simple("https://k").replace("tls-server-name: t", "certificate-authority-data: ''");
    world.write("file", &empty);
    assert!(world.config().await.root_cert.is_none(), "what is empty is not there");
}

#[tokio::test]
async fn what_a_credential_program_prints_is_not_told() {
    let mut world = World::new();
    let answer = world.write("answer", "");
    let script = format!("cat {} && exit; echo hunter2; exit 3", answer.display());
    let exec = format!("exec: {{command: sh, args: ['-c', '{script}'], interactiveMode: Never}}");
    let text = simple("https://127.0.0.1:1").replace("token: hunter2", &exec);
    world.args.kubeconfig = Some(world.write("file", &text));
    let config = world.config().await;
    let clients = || Clients::from_config(config.clone(), &Env::simulated(1));

    world.write("answer", "status: {token: [hunter2]}");
    let error = clients().unwrap_err();
    assert!(error.to_string().ends_with("what the program printed is no ExecCredential"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));

    world.write("answer", "status: {token: t, expirationTimestamp: '2020-01-01T00:00:00Z'}");
    let begun = clients().unwrap();
    fs::remove_file(&answer).unwrap();
    let request = http::Request::get("/").body(Vec::new()).unwrap();
    let asked = begun.watch().request_text(request).await.unwrap_err();
    let error = clients().unwrap_err();
    for told in [format!("{error} {error:?}"), format!("{asked} {asked:?}")] {
        assert!(told.contains("the program failed: exit status: 3") && !told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_credential_program_runs_once_for_a_token_and_once_for_a_certificate() {
    let mut world = World::new();
    let runs = world.path("runs");
    let script = format!("echo run >> {}; echo {{status: {{token: t}}}}", runs.display());
    let exec = format!("exec: {{command: sh, args: ['-c', '{script}'], interactiveMode: Never}}");
    let text = simple("https://127.0.0.1:1").replace("token: hunter2", &exec);
    world.args.kubeconfig = Some(world.write("file", &text));
    world.args.connect(&Env::simulated(1)).await.unwrap();
    assert_eq!(fs::read_to_string(runs).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_server_without_a_scheme_is_https_where_anything_says_so() {
    let mut world = World::new();
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
        world.args.kubeconfig = Some(world.write("file", &text));
        world.args.master = None;
        assert_eq!(world.server().await, format!("{scheme}://k:6443/"), "{text}");
        world.args.master = Some("10.0.0.1:6443".into());
        let config = world.config().await;
        assert_eq!(config.cluster_url.to_string(), format!("{scheme}://10.0.0.1:6443/"), "{text}");
        let info = config.auth_info;
        assert_eq!(info.token.is_some() || info.client_key_data.is_some(), scheme == "https", "{text}");
    }
    // With a scheme it is as it says.
    world.args.master = Some("http://10.0.0.1:8080".into());
    assert_eq!(world.server().await, "http://10.0.0.1:8080/");
}

#[tokio::test]
async fn a_pod_without_a_usable_service_account_uses_the_file_at_home() {
    let mut world = World::new();
    world.around.in_cluster = unusable_pod;
    world.write(".kube/config", &simple("https://home"));
    world.around.home = Some(world.folder.path().to_owned());
    assert_eq!(world.server().await, "https://home/");
}

#[tokio::test]
async fn the_token_of_a_file_is_sent_without_its_line_break() {
    let mut world = World::new();
    let file = world.write("token", "hunter2\n");
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("http://{}", server.local_addr().unwrap()).parse().unwrap());
    config.auth_info.token_file = Some(file.display().to_string());
    let clients = Clients::from_config(config, &Env::simulated(1)).unwrap();
    let serve = async {
        let (mut stream, _) = server.accept().await.unwrap();
        assert!(head(&mut stream).await.contains("authorization: bearer hunter2\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    };
    let request = http::Request::get("/hello").body(Vec::new()).unwrap();
    let asked = async { assert_eq!(clients.watch().request_text(request).await.unwrap(), "hi") };
    tokio::select! {
        biased;
        () = asked => {}
        () = async { serve.await; std::future::pending().await } => {}
    }
    for (text, problem) in [("", "is empty"), ("a\nb", "holds what no header may, such as a line break")] {
        world.write("token", text);
        let error = world.error_of(&simple("https://k").replace("token: hunter2", "tokenFile: token")).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: users[u].user.tokenFile {problem}"));
    }
}

#[tokio::test]
async fn after_a_refusal_the_token_is_read_again() {
    let world = World::new();
    let file = world.write("token", "old\n");
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("http://{}", server.local_addr().unwrap()).parse().unwrap());
    config.auth_info.token_file = Some(file.display().to_string());
    let clients = Clients::from_config(config, &Env::simulated(1)).unwrap();
    for (token, next, answer) in
        [("old", "new", "401 Unauthorized"), ("new", "newer", "200 OK"), ("new", "", "200 OK")]
    {
        let serve = async {
            let (mut stream, _) = server.accept().await.unwrap();
            let head = head(&mut stream).await;
            assert!(head.contains(&format!("authorization: bearer {token}\r\n")), "{head}");
            world.write("token", next);
            let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let request = http::Request::get("/hello").body(Vec::new()).unwrap();
        let (asked, ()) = tokio::join!(clients.watch().request_text(request), serve);
        assert_eq!(asked.is_ok(), answer == "200 OK");
    }
}
