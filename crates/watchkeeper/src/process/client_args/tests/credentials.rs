//! Usable and unusable credentials of a kubeconfig.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn a_token_that_no_header_can_hold_is_told_and_does_not_panic() {
    let mut machine = Machine::new();
    let cases = [
        ("token: \"hunter2\\n\"", "users[u].user.token"),
        (
            "auth-provider: {name: oidc, config: {id-token: \"hunter2\\n\"}}",
            "users[u].user.auth-provider.config.id-token",
        ),
    ];
    for (user, field) in cases {
        let error = machine.error_of(&simple("https://k").replace("token: hunter2", user)).await;
        let problem = "holds what no header may, such as a line break";
        assert_eq!(error, format!("cannot use the kubeconfig /file: {field} {problem}"));
    }
    // The output of a plugin is known when it has run.
    let head = r#""apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential""#;
    let printed = format!(r#"{{{head}, "status": {{"token": "hunter2\\n"}}}}"#);
    let exec = format!("exec: {{command: printf, args: ['{printed}'], interactiveMode: Never}}");
    machine.write("file", &simple("https://k").replace("token: hunter2", &exec));
    let config = machine.config().await;
    let error = Client::from_config(config, &Env::simulated(1)).unwrap_err();
    assert!(error.to_string().contains("what no header may hold"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_named_with_their_field() {
    let mut machine = Machine::new();
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
        (
            "auth-provider: {name: gcp, config: {cmd-path: hunter2}}".to_owned(),
            "auth-provider.name is \"gcp\", which is not supported: use exec",
        ),
        ("auth-provider: {name: oidc}".to_owned(), "auth-provider.config.id-token is missing"),
        (
            "auth-provider: {name: oidc, config: {refresh-token: hunter2, client-id: a}}".to_owned(),
            "auth-provider.config.idp-issuer-url is missing: refresh-token needs it",
        ),
        (
            "auth-provider: {name: oidc, config: {refresh-token: hunter2, idp-issuer-url: 'http://i'}}"
                .to_owned(),
            "auth-provider.config.idp-issuer-url is not a URL of https",
        ),
        (
            "auth-provider: {name: oidc, config: {refresh-token: hunter2, idp-issuer-url: 'https://i'}}"
                .to_owned(),
            "auth-provider.config.client-id is missing: refresh-token needs it",
        ),
        (
            "exec: {command: a, apiVersion: client.authentication.k8s.io/v1alpha1}".to_owned(),
            "exec.apiVersion is \"client.authentication.k8s.io/v1alpha1\", which is not supported: \
             use client.authentication.k8s.io/v1",
        ),
        ("as: \"hunter2\\n\"".to_owned(), "as holds what no header may, such as a line break"),
        ("as-groups: [hunter2]".to_owned(), "as is missing: there is more to be said of that user"),
        ("as-uid: hunter2".to_owned(), "as is missing: there is more to be said of that user"),
        ("as-user-extra: {a: [hunter2]}".to_owned(), "as is missing: there is more to be said of that user"),
        ("token: hunter2, username: a".to_owned(), "token and username are both given: leave one out"),
        (
            "exec: {command: a}, auth-provider: {name: oidc, config: {id-token: hunter2}}".to_owned(),
            "exec and auth-provider are both given: leave one out",
        ),
        (
            format!("client-certificate: a, client-certificate-data: {certificate}, client-key-data: {key}"),
            "client-certificate and client-certificate-data are both given: leave one out",
        ),
        (
            format!("client-certificate-data: {certificate}, client-key: a, client-key-data: {key}"),
            "client-key and client-key-data are both given: leave one out",
        ),
    ];
    for (user, problem) in user_cases {
        let error = machine.error_of(&simple("https://k").replace("token: hunter2", &user)).await;
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
        (
            format!("certificate-authority-data: {certificate}, insecure-skip-tls-verify: true"),
            "insecure-skip-tls-verify and certificate-authority-data are both given: leave one out",
        ),
        (
            "certificate-authority: /ca, insecure-skip-tls-verify: true".to_owned(),
            "insecure-skip-tls-verify and certificate-authority are both given: leave one out",
        ),
    ];
    for (cluster, problem) in cluster_cases {
        let error = machine.error_of(&simple("https://k").replace("tls-server-name: t", &cluster)).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: clusters[k].cluster.{problem}"));
    }
    let error = machine.error_of(&simple("ftp://u:hunter2@k")).await;
    assert!(error.contains("server is \"ftp://k\", and"), "{error}");
    machine.args.master = Some("ftp://u:hunter2@k".into());
    assert!(machine.error().await.starts_with("--master \"ftp://k\" is not"));
    machine.args.master = None;

    let good = simple("https://k")
        .replace("tls-server-name: t", &format!("certificate-authority-data: {certificate}"))
        .replace(
            "token: hunter2",
            &format!("token: '', client-certificate-data: {certificate}, client-key-data: {key}"),
        );
    machine.write("file", &good);
    let config = machine.config().await;
    assert_eq!(config.root_cert.as_deref(), Some(&[mine.cert.der().to_vec()][..]));
    assert!(config.auth_info.token.is_none(), "what is empty is not there");
    assert!(Client::from_config(config, &Env::simulated(1)).is_ok());
    let both = format!("certificate-authority: /none, certificate-authority-data: {certificate}");
    machine.write("file", &simple("https://k").replace("tls-server-name: t", &both));
    let config = machine.config().await;
    assert_eq!(config.root_cert.as_deref(), Some(&[mine.cert.der().to_vec()][..]), "data wins");
    assert_eq!(config.root_cert_file, None);
    let empty = simple("https://k").replace("tls-server-name: t", "certificate-authority-data: ''");
    machine.write("file", &empty);
    assert!(machine.config().await.root_cert.is_none(), "what is empty is not there");
}

#[tokio::test]
async fn what_a_credential_program_prints_is_not_told() {
    let mut machine = Machine::new();
    let answer = machine.write("answer", "");
    let script = format!("cat {} && exit; echo hunter2; exit 3", answer.display());
    let exec = format!("exec: {{command: sh, args: ['-c', '{script}'], interactiveMode: Never}}");
    let text = simple("https://127.0.0.1:1").replace("token: hunter2", &exec);
    machine.args.kubeconfig = Some(machine.write("file", &text));
    let config = machine.config().await;
    let client = || Client::from_config(config.clone(), &Env::simulated(1));

    let head = "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential";
    machine.write("answer", &format!("{head}\nstatus: {{token: [hunter2]}}"));
    let error = client().unwrap_err();
    assert!(error.to_string().ends_with("what the program printed is no ExecCredential"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));

    let expired = "status: {token: t, expirationTimestamp: '2020-01-01T00:00:00Z'}";
    machine.write("answer", &format!("{head}\n{expired}"));
    let begun = client().unwrap();
    fs::remove_file(&answer).unwrap();
    let request = http::Request::get("/").body(Vec::new()).unwrap();
    let asked = begun.kube().request_text(request).await.unwrap_err();
    let error = client().unwrap_err();
    for text in [format!("{error} {error:?}"), format!("{asked} {asked:?}")] {
        assert!(text.contains("the program failed: exit status: 3") && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn a_credential_program_runs_once_at_the_start() {
    let mut machine = Machine::new();
    let runs = machine.path("runs");
    let head = "apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential";
    let script = format!("echo run >> {}; echo \"{{{head}, status: {{token: t}}}}\"", runs.display());
    let exec = format!("exec: {{command: sh, args: ['-c', '{script}'], interactiveMode: Never}}");
    let text = simple("https://127.0.0.1:1").replace("token: hunter2", &exec);
    machine.args.kubeconfig = Some(machine.write("file", &text));
    machine.args.connect(&Env::simulated(1)).await.unwrap();
    assert_eq!(fs::read_to_string(runs).unwrap().lines().count(), 1);
}

/// Returns the heads of the given number of requests of one client, at a plain server that replaces the one in
/// `config`.
async fn heads(mut config: Config, requests: usize) -> Vec<String> {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    config.cluster_url = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
    let client = Client::from_config(config, &Env::simulated(1)).unwrap();
    let mut heads = Vec::new();
    for _ in 0..requests {
        let serve = async {
            let (mut stream, _) = server.accept().await.unwrap();
            heads.push(head(&mut stream).await);
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
            stream.write_all(answer).await.unwrap();
        };
        let request = http::Request::get("/hello").body(Vec::new()).unwrap();
        let (answer, ()) = tokio::join!(client.kube().request_text(request), serve);
        assert_eq!(answer.unwrap(), "hi");
    }
    heads
}

#[tokio::test]
async fn a_credential_program_runs_again_when_its_token_has_expired_and_not_before() {
    for (expires, is_made_anew) in [("2020-01-01T00:00:00Z", true), ("2999-01-01T00:00:00Z", false)] {
        let mut machine = Machine::new();
        let runs = machine.path("runs");
        let script = format!(
            "echo run >> {runs}; printf \"{{apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential, \
             status: {{token: t%d, expirationTimestamp: {expires}}}}}\" $(wc -l < {runs})",
            runs = runs.display()
        );
        let exec = format!("exec: {{command: sh, args: ['-c', '{script}'], interactiveMode: Never}}");
        let text = simple("https://k").replace("token: hunter2", &exec);
        machine.args.kubeconfig = Some(machine.write("file", &text));
        let heads = heads(machine.config().await, 2).await;
        let tokens: Vec<u32> = heads
            .iter()
            .map(|head| head.split_once("authorization: bearer t").unwrap().1.lines().next().unwrap())
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(tokens[1] - tokens[0], u32::from(is_made_anew), "{expires}");
    }
}

// client-go: TestFullImpersonateConfig, TestBasicAuthData, TestPrecedenceTokenFile
#[tokio::test]
async fn what_a_user_has_is_sent_with_each_request() {
    let mut machine = Machine::new();
    machine.write("token", "of-the-file");
    let cases = [
        (
            "as: alice, as-uid: abc123, as-groups: [g1, g2], as-user-extra: {some-key: [v]}",
            &["user: alice", "uid: abc123", "group: g1", "group: g2", "extra-some-key: v"]
                .map(|h| format!("impersonate-{h}"))[..],
        ),
        ("username: alice, password: hunter2", &["authorization: basic ywxpy2u6ahvudgvymg==".to_owned()]),
        ("token: mine, tokenFile: token", &["authorization: bearer mine".to_owned()]),
    ];
    for (user, headers) in cases {
        let text = simple("https://k").replace("token: hunter2", user);
        machine.args.kubeconfig = Some(machine.write("file", &text));
        let head = heads(machine.config().await, 1).await.remove(0);
        for header in headers {
            assert!(head.lines().any(|line| line == header), "{header} is not in {head}");
        }
    }
}

#[tokio::test]
async fn the_token_of_a_file_is_sent_without_its_line_break() {
    let mut machine = Machine::new();
    let file = machine.write("token", "hunter2\n");
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("http://{}", server.local_addr().unwrap()).parse().unwrap());
    config.auth_info.token_file = Some(file.display().to_string());
    let client = Client::from_config(config, &Env::simulated(1)).unwrap();
    let serve = async {
        let (mut stream, _) = server.accept().await.unwrap();
        assert!(head(&mut stream).await.contains("authorization: bearer hunter2\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    };
    let request = http::Request::get("/hello").body(Vec::new()).unwrap();
    let asked = async { assert_eq!(client.kube().request_text(request).await.unwrap(), "hi") };
    tokio::select! {
        biased;
        () = asked => {}
        () = async { serve.await; std::future::pending().await } => {}
    }
    for (text, problem) in [("", "is empty"), ("a\nb", "holds what no header may, such as a line break")] {
        machine.write("token", text);
        let error =
            machine.error_of(&simple("https://k").replace("token: hunter2", "tokenFile: token")).await;
        assert_eq!(error, format!("cannot use the kubeconfig /file: users[u].user.tokenFile {problem}"));
    }
}

#[tokio::test]
async fn after_a_refusal_the_token_is_read_again_and_the_request_sent_once_more() {
    let machine = Machine::new();
    let file = machine.write("token", "old\n");
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("http://{}", server.local_addr().unwrap()).parse().unwrap());
    config.auth_info.token_file = Some(file.display().to_string());
    let client = Client::from_config(config, &Env::simulated(1)).unwrap();
    // Each request: what the server sees, the file from then on, and the answer.
    let refusal = "401 Unauthorized";
    let requests = [
        &[("old", "new", refusal), ("new", "newer", "200 OK")][..],
        &[("new", "newest", "200 OK")],
        &[("new", "last", refusal), ("last", "", refusal)],
        &[("last", "", refusal)],
    ];
    for exchanges in requests {
        let serve = async {
            for (token, next, answer) in exchanges {
                let (mut stream, _) = server.accept().await.unwrap();
                let head = head(&mut stream).await;
                assert!(head.contains(&format!("authorization: bearer {token}\r\n")), "{head}");
                machine.write("token", next);
                let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let request = http::Request::put("/hello").body(b"{}".to_vec()).unwrap();
        let (asked, ()) = tokio::join!(client.kube().request_text(request), serve);
        assert_eq!(asked.is_ok(), exchanges.last().unwrap().2 == "200 OK");
    }
}
