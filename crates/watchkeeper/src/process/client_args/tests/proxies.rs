//! Requests through proxies.

use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Sends a request through the proxy of the kubeconfig of a plain server, answers it, and returns its head. `talk` is
/// the first part of the proxy's protocol, and `more` are further settings of the cluster.
async fn pass_on<S: AsyncRead + AsyncWrite + Unpin>(
    machine: &mut Machine,
    scheme: &str,
    more: &str,
    talk: impl AsyncFnOnce(TcpStream) -> S,
) {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("proxy-url: '{scheme}://alice:hunter2@{}'{more}", proxy.local_addr().unwrap());
    let text = simple("http://api.invalid:8080").replace("tls-server-name: t", &url);
    machine.args.kubeconfig = Some(machine.write("file", &text));
    let client = Client::from_config(machine.config().await, &Env::simulated(1)).unwrap();
    let serve = async {
        let (stream, _) = proxy.accept().await.unwrap();
        let mut stream = talk(stream).await;
        let request = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        request
    };
    let request = http::Request::get("/hello").body(Vec::new()).unwrap();
    let (answer, passed) = tokio::join!(client.kube().request_text(request), serve);
    assert_eq!(answer.unwrap(), "hi");
    assert!(passed.starts_with("get /hello http/1.1\r\n"), "{passed}");
    assert!(!passed.contains("proxy"), "{passed}");
}

/// The answer of an HTTP proxy before it forwards.
async fn agree<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> S {
    let connect = head(&mut stream).await;
    assert!(connect.starts_with("connect api.invalid:8080 http/1.1\r\n"), "{connect}");
    assert!(connect.contains("proxy-authorization: basic ywxpy2u6ahvudgvymg==\r\n"), "{connect}");
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    stream
}

#[tokio::test]
async fn requests_go_through_the_proxy_of_the_cluster() {
    let mut machine = Machine::new();
    // The proxy of a file is used whatever the variables are.
    machine.around.proxies = Proxies { no: "*".into(), ..Proxies::default() };
    pass_on(&mut machine, "http", "", agree).await;
}

#[tokio::test]
async fn a_proxy_may_be_reached_over_tls() {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![pair.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let authority = format!(", certificate-authority-data: {}", BASE64_STANDARD.encode(pair.cert.pem()));
    let talk = async |stream| agree(acceptor.accept(stream).await.unwrap()).await;
    pass_on(&mut Machine::new(), "https", &authority, talk).await;
}

#[tokio::test]
async fn a_proxy_may_be_of_socks() {
    // The messages of both sides: methods, user and password, the server's name and port.
    let said: [(&[u8], &[u8]); 3] = [
        (b"\x05\x01\x02", b"\x05\x02"),
        (b"\x01\x05alice\x07hunter2", b"\x01\x00"),
        (b"\x05\x01\x00\x03\x0bapi.invalid\x1f\x90", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"),
    ];
    let talk = async |mut stream: TcpStream| {
        for (asked, answer) in said {
            let mut received = vec![0; asked.len()];
            stream.read_exact(&mut received).await.unwrap();
            assert_eq!(received, asked);
            stream.write_all(answer).await.unwrap();
        }
        stream
    };
    pass_on(&mut Machine::new(), "socks5", "", talk).await;
}

#[tokio::test]
async fn servers_are_reached_through_the_proxy_of_the_variable() {
    for (server, asked) in
        [("https://api.invalid", "api.invalid:443"), ("http://api.invalid", "api.invalid:80")]
    {
        let mut machine = Machine::new();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap().to_string();
        machine.around.proxies =
            Proxies { https: address.clone(), http: address, no: "other.invalid".into() };
        machine.args.kubeconfig = Some(machine.write("file", &simple(server)));
        let client = Client::from_config(machine.config().await, &Env::simulated(1)).unwrap();
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
            answer = client.kube().request_text(request) => panic!("without the proxy: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_told_without_its_password() {
    let mut machine = Machine::new();
    machine.around.proxies.https = "ftp://alice:hunter2@proxy".into();
    machine.args.kubeconfig = Some(machine.write("file", &simple("https://k")));
    assert_eq!(machine.error().await, "HTTPS_PROXY has a scheme other than http, https and socks5");
    let text = simple("https://k").replace("tls-server-name: t", "proxy-url: 'ftp://alice:hunter2@proxy'");
    assert_eq!(
        machine.error_of(&text).await,
        "cannot use the kubeconfig /file: clusters[k].cluster.proxy-url has a scheme other than http, https and socks5"
    );
    let mut config = Config::new("https://u:hunter2@k".parse().unwrap());
    config.proxy_url = Some("ftp://alice:hunter2@proxy".parse().unwrap());
    let error = Client::from_config(config, &Env::simulated(1)).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}
