use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use kube_client::config::{AuthInfo, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use tokio::time::advance;
use tower::BoxError;

use super::*;
use crate::env::Env;

/// A machine of a test.
#[derive(Default)]
struct Desk {
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
    /// What the plugin prints; without it, it fails.
    printed: Mutex<Option<String>>,
    runs: Mutex<u32>,
    /// What the plugin was told.
    told: Mutex<Vec<serde_json::Value>>,
    has_terminal: Mutex<bool>,
    /// How often the plugin was killed.
    kills: Arc<Mutex<u32>>,
    /// How long the plugin and the provider take.
    delay: Mutex<Option<(Clock, Duration)>>,
    /// What the identity provider was asked, and what it answers: the life of the next token, if it issues one.
    asked: Mutex<Vec<String>>,
    lives: Mutex<Vec<u64>>,
}

impl Desk {
    fn write(&self, file: &str, text: &str) {
        self.files.lock().insert(file.into(), text.into());
    }

    fn print(&self, status: &str) {
        let head = "apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential";
        *self.printed.lock() = Some(format!("{{{head}, status: {{{status}}}}}"));
    }

    /// Makes the plugin and the provider take that long.
    fn delay(&self, credentials: &Credentials, seconds: u64) {
        *self.delay.lock() = Some((credentials.0.core.clock.clone(), Duration::from_secs(seconds)));
    }
}

/// Returns a token that expires at a time in seconds.
fn jwt(expires: i64) -> String {
    format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{expires}}}")))
}

/// The time at which a simulated clock starts.
const NEW_YEAR: i64 = 1_767_225_600;

/// A plugin that runs: dropped before its end, it is killed.
struct Running(Option<Arc<Mutex<u32>>>);

impl Running {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(kills) = &self.0 {
            *kills.lock() += 1;
        }
    }
}

impl Outside for Desk {
    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        self.files.lock().get(file).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn run(&self, program: Command) -> BoxFuture<'static, io::Result<Output>> {
        *self.runs.lock() += 1;
        let mut variables = program.get_envs();
        let info = variables.find_map(|(name, value)| (name == "KUBERNETES_EXEC_INFO").then_some(value?));
        self.told.lock().push(serde_json::from_str(info.unwrap().to_str().unwrap()).unwrap());
        let printed = self.printed.lock().clone();
        let status = ExitStatus::from_raw(if printed.is_some() { 0 } else { 3 << 8 });
        let stdout = printed.unwrap_or("hunter2".into()).into_bytes();
        let (delay, running) = (self.delay.lock().clone(), Running(Some(self.kills.clone())));
        Box::pin(async move {
            if let Some((clock, delay)) = delay {
                clock.sleep(delay).await;
            }
            running.ended();
            Ok(Output { status, stdout, stderr: Vec::new() })
        })
    }

    fn has_terminal(&self) -> bool {
        *self.has_terminal.lock()
    }

    fn ask(
        &self,
        provider: Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, BoxError>> {
        assert_eq!(provider.cluster_url.host(), Some("idp.test"));
        let (code, body) = if request.method() == http::Method::GET {
            (200, r#"{"token_endpoint":"https://idp.test/token"}"#.to_owned())
        } else if self.lives.lock().is_empty() {
            (400, "{}".to_owned())
        } else {
            let expires = NEW_YEAR + self.lives.lock().remove(0) as i64;
            let asked = self.asked.lock().len();
            (200, format!(r#"{{"id_token":"{}","refresh_token":"r{asked}"}}"#, jwt(expires)))
        };
        let head = request.headers().get(http::header::AUTHORIZATION);
        let head = head.map(|head| head.to_str().unwrap().to_owned()).unwrap_or_default();
        let form = request.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        self.asked.lock().push(format!("{head} {}", String::from_utf8_lossy(&form)).trim().to_owned());
        let delay = self.delay.lock().clone();
        Box::pin(async move {
            if let Some((clock, delay)) = delay {
                clock.sleep(delay).await;
            }
            Ok(Response::builder().status(code).body(Bytes::from(body)).unwrap())
        })
    }
}

fn config(user: AuthInfo) -> Config {
    let mut config = Config::new("https://api.test".parse().unwrap());
    config.auth_info = user;
    config.root_cert = Some(Vec::new());
    config
}

fn credentials(user: AuthInfo, desk: &Arc<Desk>) -> Result<Credentials, Error> {
    Credentials::new(&config(user), &Env::simulated(1).clock, desk.clone())
}

fn plugin() -> AuthInfo {
    let exec = ExecConfig {
        api_version: None,
        command: Some("login".into()),
        args: None,
        env: None,
        drop_env: None,
        install_hint: None,
        interactive_mode: Some(ExecInteractiveMode::Never),
        provide_cluster_info: false,
        cluster: None,
        other: BTreeMap::new(),
    };
    AuthInfo { exec: Some(exec), ..AuthInfo::default() }
}

fn header(presented: &Presented) -> String {
    let header = presented.authorization().unwrap();
    assert!(header.is_sensitive());
    header.to_str().unwrap().to_owned()
}

/// The token that a request is sent with.
async fn sent(credentials: &Credentials) -> String {
    header(&credentials.fresh().await.unwrap())
}

/// The token that requests are sent with after one that may have caused a renewal.
async fn token(credentials: &Credentials) -> String {
    credentials.fresh().await.unwrap();
    if let Some(renewal) = credentials.under_way() {
        let _reported = renewal.wait().await;
    }
    header(&credentials.current())
}

async fn pass(seconds: u64) {
    advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_file_is_trimmed_and_read_again_and_the_last_token_is_kept() {
    let desk = Arc::new(Desk::default());
    let user = AuthInfo { token_file: Some("/token".into()), ..AuthInfo::default() };
    let problem = |desk: &Arc<Desk>| credentials(user.clone(), desk).map(drop).unwrap_err().to_string();
    assert!(problem(&desk).contains("cannot read /token"), "{}", problem(&desk));
    desk.write("/token", " \n");
    assert!(problem(&desk).contains("/token is empty"), "{}", problem(&desk));
    desk.write("/token", "a\nb");
    assert!(problem(&desk).contains("what no header may hold"), "{}", problem(&desk));

    desk.write("/token", " one\r\n");
    let credentials = credentials(user, &desk).unwrap();
    assert_eq!(token(&credentials).await, "Bearer one");
    desk.write("/token", "two\n");
    pass(29).await;
    assert_eq!(token(&credentials).await, "Bearer one");
    pass(1).await;
    assert_eq!(token(&credentials).await, "Bearer two");
    pass(7).await;
    assert_eq!(credentials.status().age.as_secs(), 7);
    desk.files.lock().clear();
    pass(23).await;
    assert_eq!(token(&credentials).await, "Bearer two");
    let status = credentials.status();
    assert_eq!((status.reloads, status.failures, status.age.as_secs()), (1, 1, 30));
    assert!(status.problem.unwrap().starts_with("cannot read /token"));
    desk.write("/token", "three");
    pass(10).await;
    assert_eq!(token(&credentials).await, "Bearer three");
    assert!(credentials.status().problem.is_none());
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_files_are_read_at_once() {
    let desk = Arc::new(Desk::default());
    desk.write("/token", "one");
    let user = AuthInfo { token_file: Some("/token".into()), ..AuthInfo::default() };
    let credentials = credentials(user, &desk).unwrap();
    let refused = credentials.current();
    assert!(!credentials.after_refusal(&refused).await, "there is no other token");
    desk.write("/token", "two");
    assert!(credentials.after_refusal(&refused).await);
    assert_eq!(token(&credentials).await, "Bearer two");
    assert!(credentials.after_refusal(&refused).await, "others were read already");
    assert_eq!(credentials.status().reloads, 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_beside_a_file_is_the_first_one_and_the_file_has_the_next() {
    let desk = Arc::new(Desk::default());
    desk.write("/token", "file");
    let user =
        AuthInfo { token: Some("given".into()), token_file: Some("/token".into()), ..AuthInfo::default() };
    let rotated = credentials(user.clone(), &desk).unwrap();
    pass(29).await;
    assert_eq!(token(&rotated).await, "Bearer given");
    pass(1).await;
    assert_eq!(token(&rotated).await, "Bearer file");
    desk.write("/token", "later");
    pass(30).await;
    assert_eq!(token(&rotated).await, "Bearer later");
    assert_eq!(rotated.status().expires, None);
    // A refusal does not wait for that.
    let refused = credentials(user, &desk).unwrap();
    assert!(refused.after_refusal(&refused.current()).await);
    assert_eq!(token(&refused).await, "Bearer later");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_token_in_a_file_is_told_though_it_is_read_again_much_earlier() {
    let desk = Arc::new(Desk::default());
    desk.write("/token", &jwt(NEW_YEAR + 3600));
    let user = AuthInfo { token_file: Some("/token".into()), ..AuthInfo::default() };
    let credentials = credentials(user, &desk).unwrap();
    assert_eq!(credentials.status().expires, Some(Timestamp::from_second(NEW_YEAR + 3600).unwrap()));
    pass(3600).await;
    // The server is asked, which may accept it for a while.
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 3600)));
}

#[tokio::test(start_paused = true)]
async fn fixed_credentials_are_never_read_again() {
    let desk = Arc::new(Desk::default());
    let user = AuthInfo { token: Some("fixed".into()), ..AuthInfo::default() };
    let credentials = credentials(user, &desk).unwrap();
    assert_eq!(token(&credentials).await, "Bearer fixed");
    assert!(!credentials.can_change());
    let refused = credentials.current();
    assert!(!credentials.after_refusal(&refused).await);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_runs_again_before_its_token_expires_and_not_before() {
    let desk = Arc::new(Desk::default());
    desk.print("token: one, expirationTimestamp: '2026-01-01T01:00:00Z'");
    let credentials = credentials(plugin(), &desk).unwrap();
    pass(3600 - 61).await;
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer one", 1));
    desk.print("token: two, expirationTimestamp: '2026-01-01T01:03:20Z'");
    pass(1).await;
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer two", 2));
    // Of the 260 seconds left, a fifth is less than a minute.
    pass(207).await;
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer two", 2));
    *desk.printed.lock() = None;
    pass(1).await;
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer two", 3));
    // Once it has expired, a request says why there is no other.
    pass(60).await;
    let problem = credentials.fresh().await.map(drop).unwrap_err();
    assert_eq!(problem.to_string(), "the program failed: exit status: 3");
    assert_eq!(credentials.status().failures, 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_given_again_is_asked_for_when_it_expires_and_after_a_refusal() {
    let given_again = "token: one, expirationTimestamp: '2026-01-01T01:00:00Z'";
    let next = "token: two, expirationTimestamp: '2026-01-01T02:00:00Z'";
    let begin = async |desk: &Arc<Desk>| {
        desk.print(given_again);
        let credentials = credentials(plugin(), desk).unwrap();
        pass(3540).await;
        assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer one", 2));
        credentials
    };
    let desk = Arc::new(Desk::default());
    let unrefused = begin(&desk).await;
    for (seconds, runs) in [(48, 3), (10, 4)] {
        pass(seconds).await;
        assert_eq!((token(&unrefused).await.as_str(), *desk.runs.lock()), ("Bearer one", runs));
    }
    desk.print(next);
    pass(2).await;
    assert_eq!((token(&unrefused).await.as_str(), *desk.runs.lock()), ("Bearer two", 5));

    let desk = Arc::new(Desk::default());
    let refused = begin(&desk).await;
    desk.print(next);
    assert!(refused.after_refusal(&refused.current()).await, "its last run was before the refusal");
    assert_eq!((token(&refused).await.as_str(), *desk.runs.lock()), ("Bearer two", 3));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_plugin_while_the_last_token_is_valid() {
    let desk = Arc::new(Desk::default());
    desk.print("token: one, expirationTimestamp: '2026-01-01T01:00:00Z'");
    let credentials = credentials(plugin(), &desk).unwrap();
    let clock = credentials.0.core.clock.clone();
    desk.print("token: two, expirationTimestamp: '2026-01-01T02:00:00Z'");
    desk.delay(&credentials, 30);
    clock.sleep(Duration::from_secs(3600 - 60)).await;
    let began = clock.now();
    for _ in 0..3 {
        assert_eq!(sent(&credentials).await, "Bearer one");
    }
    assert_eq!(clock.now(), began);
    clock.sleep(Duration::from_secs(29)).await;
    assert_eq!(sent(&credentials).await, "Bearer one");
    clock.sleep(Duration::from_secs(2)).await;
    assert_eq!((sent(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer two", 2));
    // After the end of the token, all requests wait for the same run.
    desk.print("token: three, expirationTimestamp: '2026-01-01T03:00:00Z'");
    clock.sleep(Duration::from_secs(3700)).await;
    let began = clock.now();
    let (first, second) = tokio::join!(sent(&credentials), sent(&credentials));
    assert_eq!((first.as_str(), second.as_str(), *desk.runs.lock()), ("Bearer three", "Bearer three", 3));
    assert_eq!((clock.now() - began).as_secs(), 30);
    assert_eq!(*desk.kills.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_is_started_once_and_killed_after_a_minute() {
    let desk = Arc::new(Desk::default());
    desk.print("token: one, expirationTimestamp: '2026-01-01T01:00:00Z'");
    let credentials = credentials(plugin(), &desk).unwrap();
    let clock = credentials.0.core.clock.clone();
    desk.delay(&credentials, 86_400);
    clock.sleep(Duration::from_secs(3600)).await;
    let began = clock.now();
    // Requests with a deadline, also after a refusal, of which none ends the run or begins another.
    let refused = credentials.current();
    for _ in 0..5 {
        let given_up = clock.timeout(Duration::from_secs(5), credentials.fresh()).await;
        assert!(given_up.is_err());
        let given_up = clock.timeout(Duration::from_secs(5), credentials.after_refusal(&refused)).await;
        assert!(given_up.is_err());
    }
    assert_eq!((*desk.runs.lock(), *desk.kills.lock()), (2, 0));
    let problem = credentials.fresh().await.map(drop).unwrap_err();
    assert_eq!(problem.to_string(), "the program has not ended after 60s, and was killed");
    assert_eq!((clock.now() - began).as_secs(), 60);
    assert_eq!((*desk.runs.lock(), *desk.kills.lock(), credentials.status().failures), (2, 1, 1));
    // The next try may do better, and one without anybody is given up.
    clock.sleep(RETRY).await;
    assert!(clock.timeout(Duration::from_secs(5), credentials.fresh()).await.is_err());
    assert_eq!((*desk.runs.lock(), *desk.kills.lock()), (3, 1));
    drop(credentials);
    clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(*desk.kills.lock(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_an_expiry_runs_again_after_a_refusal_and_not_too_often() {
    let desk = Arc::new(Desk::default());
    desk.print("token: one");
    let credentials = credentials(plugin(), &desk).unwrap();
    pass(86_400).await;
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer one", 1));
    let refused = credentials.current();
    assert!(!credentials.after_refusal(&refused).await);
    assert!(!credentials.after_refusal(&refused).await);
    assert_eq!(*desk.runs.lock(), 2, "it has just run in vain");
    desk.print("token: two");
    pass(10).await;
    assert!(credentials.after_refusal(&refused).await);
    assert_eq!((token(&credentials).await.as_str(), *desk.runs.lock()), ("Bearer two", 3));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_does_not_run_because_a_file_is_read_again() {
    let pair = || rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
    let desk = Arc::new(Desk::default());
    desk.print("token: one");
    desk.write("/ca", &pair().cert.pem());
    let mut config = config(plugin());
    config.root_cert_file = Some("/ca".into());
    let credentials = Credentials::new(&config, &Env::simulated(1).clock, desk.clone()).unwrap();
    desk.print("token: two");
    desk.write("/ca", &pair().cert.pem());
    pass(30).await;
    assert_eq!(token(&credentials).await, "Bearer one");
    assert_eq!((credentials.status().reloads, *desk.runs.lock()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_may_give_certificates_and_must_give_something() {
    let pair = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
    let indented = |pem: String| pem.replace('\n', "\\n");
    let (certificate, key) = (indented(pair.cert.pem()), indented(pair.signing_key.serialize_pem()));
    let desk = Arc::new(Desk::default());
    desk.print(&format!("clientCertificateData: \"{certificate}\", clientKeyData: \"{key}\""));
    let credentials_now = credentials(plugin(), &desk).unwrap();
    let tls = credentials_now.current().tls.clone().unwrap();
    assert!(tls.client_auth_cert_resolver.has_certs());
    assert!(credentials_now.current().authorization().is_none());
    for (status, problem) in [
        ("", "the program gave neither a token nor a certificate"),
        ("clientKeyData: hunter2", "the program gave a certificate without its key, or a key alone"),
        ("clientCertificateData: hunter2, clientKeyData: hunter2", "the certificate is none"),
        ("token: t, expirationTimestamp: hunter2", "expirationTimestamp is no time"),
    ] {
        desk.print(status);
        let error = credentials(plugin(), &desk).map(drop).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    let v1 = "client.authentication.k8s.io/v1";
    let mut configured = plugin();
    configured.exec.as_mut().unwrap().api_version = Some(v1.to_owned());
    for (user, head, problem) in [
        (&configured, format!("apiVersion: {v1}, kind: ExecCredential"), None),
        (&plugin(), format!("apiVersion: {v1}beta1, kind: ExecCredential"), None),
        (&configured, format!("apiVersion: {v1}beta1, kind: ExecCredential"), Some("apiVersion")),
        (&plugin(), format!("apiVersion: {v1}alpha1, kind: ExecCredential"), Some("apiVersion")),
        (&plugin(), "kind: ExecCredential".to_owned(), Some("apiVersion")),
        (&plugin(), format!("apiVersion: {v1}, kind: Secret"), Some("kind")),
        (&plugin(), format!("apiVersion: {v1}"), Some("kind")),
    ] {
        *desk.printed.lock() = Some(format!("{{{head}, status: {{token: hunter2}}}}"));
        let error = credentials(user.clone(), &desk).map(drop).err().map(|error| error.to_string());
        let named = problem.map(|field| format!("the {field} of what the program printed is not"));
        assert_eq!(error.is_some(), named.is_some(), "{head}: {error:?}");
        assert!(error.unwrap_or_default().contains(&named.unwrap_or_default()), "{head}");
    }
    let mut asking = plugin();
    asking.exec.as_mut().unwrap().interactive_mode = Some(ExecInteractiveMode::Always);
    let error = credentials(asking, &desk).map(drop).unwrap_err().to_string();
    assert!(error.contains("asks for a terminal"), "{error}");
}

// client-go: TestRefreshCreds
#[tokio::test(start_paused = true)]
async fn a_plugin_is_told_whether_it_may_ask_and_about_which_cluster() {
    use ExecInteractiveMode::{Always, IfAvailable, Never};
    let desk = Arc::new(Desk::default());
    desk.print("token: t");
    for (mode, has_terminal, is_interactive) in [
        (Some(Never), true, false),
        (Some(IfAvailable), true, true),
        (Some(IfAvailable), false, false),
        (Some(Always), true, true),
        (None, true, true),
        (None, false, false),
    ] {
        *desk.has_terminal.lock() = has_terminal;
        let mut user = plugin();
        let exec = user.exec.as_mut().unwrap();
        (exec.api_version, exec.interactive_mode) = (Some("client.authentication.k8s.io/v1".into()), mode);
        exec.cluster =
            Some(ExecAuthCluster { server: Some("https://k".into()), ..ExecAuthCluster::default() });
        exec.provide_cluster_info = has_terminal;
        credentials(user, &desk).unwrap();
        let told = desk.told.lock().pop().unwrap();
        assert_eq!(told["apiVersion"], "client.authentication.k8s.io/v1");
        assert_eq!(told["kind"], "ExecCredential");
        assert_eq!(told["spec"]["interactive"], is_interactive);
        let server = told["spec"]["cluster"]["server"].as_str();
        assert_eq!(server, has_terminal.then_some("https://k"), "{told}");
    }
}

// client-go: TestAuthorizationHeaderPresentCancelsExecAction
#[tokio::test(start_paused = true)]
async fn a_plugin_does_not_run_for_a_user_with_other_credentials() {
    let pair = rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
    let encoded = |pem: String| BASE64_STANDARD.encode(pem);
    let certificate = AuthInfo {
        client_certificate_data: Some(encoded(pair.cert.pem())),
        client_key_data: Some(encoded(pair.signing_key.serialize_pem()).into()),
        ..plugin()
    };
    let password =
        AuthInfo { username: Some("u".to_owned()), password: Some("p".to_owned().into()), ..plugin() };
    let token = AuthInfo { token: Some("t".to_owned().into()), ..plugin() };
    let desk = Arc::new(Desk::default());
    for user in [certificate, password, token] {
        credentials(user, &desk).unwrap();
    }
    assert_eq!(*desk.runs.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn certificates_and_authorities_in_files_are_read_again() {
    let pair = || rcgen::generate_simple_self_signed(["me".to_owned()]).unwrap();
    let (first, second) = (pair(), pair());
    let desk = Arc::new(Desk::default());
    desk.write("/crt", &first.cert.pem());
    desk.write("/key", &first.signing_key.serialize_pem());
    desk.write("/ca", &first.cert.pem());
    let (certificate, key) = (Some("/crt".to_owned()), Some("/key".to_owned()));
    let user = AuthInfo { client_certificate: certificate, client_key: key, ..AuthInfo::default() };
    let mut config = config(user);
    config.root_cert_file = Some("/ca".into());
    let credentials = Credentials::new(&config, &Env::simulated(1).clock, desk.clone()).unwrap();
    assert!(credentials.current().tls.as_ref().unwrap().client_auth_cert_resolver.has_certs());

    // Between the two files of a new pair, the old pair stays.
    desk.write("/crt", &second.cert.pem());
    pass(30).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 0);
    assert_eq!(credentials.status().failures, 1);
    desk.write("/key", &second.signing_key.serialize_pem());
    pass(10).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 1);
    desk.write("/ca", &second.cert.pem());
    pass(30).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 2);
    desk.write("/ca", "nothing");
    pass(30).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 2);
    assert_eq!((credentials.status().reloads, credentials.status().failures), (2, 2));
    desk.write("/ca", "");
    pass(10).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 2);
    desk.files.lock().remove(Path::new("/ca"));
    pass(10).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 2);
    desk.write("/ca", &first.cert.pem());
    pass(10).await;
    assert_eq!(credentials.fresh().await.unwrap().number, 3);
    assert_eq!((credentials.status().reloads, credentials.status().failures), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn an_id_token_is_renewed_with_the_last_refresh_token() {
    let desk = Arc::new(Desk::default());
    let credentials = credentials(oidc(), &desk).unwrap();
    pass(539).await;
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 600)));
    desk.lives.lock().extend([1200, 1800]);
    assert_eq!(credentials.status().expires, Some(Timestamp::from_second(NEW_YEAR + 600).unwrap()));
    pass(1).await;
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 1200)));
    assert_eq!(credentials.status().expires, Some(Timestamp::from_second(NEW_YEAR + 1200).unwrap()));
    pass(600).await;
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 1800)));
    let basic = format!("Basic {}", BASE64_STANDARD.encode("me:hunter2"));
    let form = |refresh: &str| format!("{basic} grant_type=refresh_token&refresh_token={refresh}");
    assert_eq!(desk.asked.lock()[..], [String::new(), form("r"), String::new(), form("r1")]);
    // Refused: the token is used to its end, then the request fails.
    pass(600).await;
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 1800)));
    pass(60).await;
    assert!(credentials.fresh().await.is_err());
    assert_eq!(
        credentials.status().problem.unwrap(),
        "cannot use the identity provider: it refused the refresh token"
    );
}

/// A user with the refresh token "r" and an ID token for ten minutes.
fn oidc() -> AuthInfo {
    let config = serde_json::json!({
        "idp-issuer-url": "https://idp.test/",
        "client-id": "me",
        "client-secret": "hunter2",
        "refresh-token": "r",
        "id-token": jwt(NEW_YEAR + 600),
    });
    let provider = serde_json::from_value(serde_json::json!({"name": "oidc", "config": config})).unwrap();
    AuthInfo { auth_provider: Some(provider), ..AuthInfo::default() }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_answer_is_asked_again_after_a_minute() {
    let desk = Arc::new(Desk::default());
    let credentials = credentials(oidc(), &desk).unwrap();
    let clock = credentials.0.core.clock.clone();
    desk.delay(&credentials, 86_400);
    clock.sleep(Duration::from_secs(600)).await;
    let began = clock.now();
    let problem = credentials.fresh().await.map(drop).unwrap_err();
    assert_eq!(problem.to_string(), "cannot use the identity provider: it has not answered for a minute");
    assert_eq!((clock.now() - began).as_secs(), 60);
    assert_eq!(credentials.status().failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_does_not_lose_the_next_refresh_token() {
    let desk = Arc::new(Desk::default());
    let credentials = credentials(oidc(), &desk).unwrap();
    let clock = credentials.0.core.clock.clone();
    desk.lives.lock().extend([1200, 1800]);
    desk.delay(&credentials, 2);
    clock.sleep(Duration::from_secs(600)).await;
    // The provider has been found and has issued both tokens, but the answer is on its way.
    assert!(clock.timeout(Duration::from_secs(3), credentials.fresh()).await.is_err());
    assert_eq!(desk.asked.lock().len(), 2);
    clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(sent(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 1200)));
    clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(token(&credentials).await, format!("Bearer {}", jwt(NEW_YEAR + 1800)));
    let asked = desk.asked.lock();
    assert!(asked[1].ends_with("refresh_token=r") && asked[3].ends_with("refresh_token=r1"), "{asked:?}");
    assert_eq!(asked.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_other_credentials_renews_them_in_time() {
    let desk = Arc::new(Desk::default());
    desk.write("/token", "one");
    let user = AuthInfo { token_file: Some("/token".into()), ..AuthInfo::default() };
    let credentials = credentials(user, &desk).unwrap();
    let clock = credentials.0.core.clock.clone();
    let began = clock.now();
    let rotation = async {
        clock.sleep(Duration::from_secs(100)).await;
        desk.write("/token", "two");
    };
    tokio::join!(credentials.renewal(0), credentials.renewal(0), rotation);
    assert_eq!((clock.now() - began).as_secs(), 120);
    assert_eq!(credentials.current().number, 1);
    // A refusal of another request is noticed at once.
    desk.write("/token", "three");
    let presented = credentials.current();
    let (_, changed) = tokio::join!(credentials.renewal(1), credentials.after_refusal(&presented));
    assert!(changed && (clock.now() - began).as_secs() == 120);
}
