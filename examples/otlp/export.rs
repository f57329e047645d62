//! The program on an embedded API server, with a collector that keeps what it gets.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use watchkeeper::informer::on_change;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, ListenOptions};

/// A span: its name and its attributes.
type Span = (String, BTreeMap<String, Value>);

/// Answers the requests of one connection, and sends the spans in them.
async fn collect(mut connection: BufReader<TcpStream>, spans: mpsc::UnboundedSender<Span>) -> io::Result<()> {
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        let request = ExportTraceServiceRequest::decode(&*body)?;
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let attributes = span.attributes.into_iter();
            let attributes = attributes.filter_map(|it| Some((it.key, it.value?.value?))).collect();
            let _nobody_looks = spans.send((span.name, attributes));
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

/// Starts a collector: its address, and the spans that it gets.
async fn collector() -> io::Result<(String, mpsc::UnboundedReceiver<Span>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (sender, spans) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(collect(BufReader::new(connection), sender.clone()));
        }
    });
    Ok((address, spans))
}

/// Waits until there is a Secret called `web`.
async fn secret(client: &Client) {
    let (factory, stop) = (SharedInformerFactory::builder(client).build(), CancellationToken::new());
    let (sender, mut seen) = mpsc::unbounded_channel();
    let handler = on_change(move |change: Change<'_, Secret>| {
        let _nobody_waits = sender.send(change.last_known().is_some_and(|secret| secret.name() == "web"));
    });
    factory
        .informer::<Secret>()
        .add_handler(handler)
        .expect("an informer that has not been started takes handlers");
    factory.start(&stop);
    while seen.recv().await == Some(false) {}
    stop.cancel();
}

#[tokio::test]
async fn the_spans_of_reconciles_arrive_at_the_collector_before_the_program_has_ended() {
    let env = Env::system();
    let server = ApiServer::new(&env);
    let client = Client::from_kube(server.client(), &env);
    let listening = server.listen(ListenOptions::default()).await.expect("a free port");
    let kubeconfig = concat!(env!("CARGO_TARGET_TMPDIR"), "/otlp.kubeconfig");
    std::fs::write(kubeconfig, listening.kubeconfig()).expect("the folder is writable");
    let (endpoint, mut spans) = collector().await.expect("a free port");
    let mut program = Command::new(env!("CARGO_BIN_EXE_otlp"))
        .args(["--kubeconfig", kubeconfig, "--metrics-bind-address", "0"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        // Longer than the test: the spans come at the end.
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true)
        .spawn()
        .expect("the program is built");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("web".to_owned());
    map.metadata.namespace = Some("default".to_owned());
    client.api::<ConfigMap>().create(&map).await.expect("the server takes it");
    secret(&client).await;
    let id = program.id().expect("it runs").to_string();
    let killed = Command::new("kill").args(["-TERM", &id]).status().await.expect("there is a kill");
    assert!(killed.success());
    let status = program.wait().await.expect("it is a child");
    assert!(status.success(), "{status}");

    let mut seen = Vec::new();
    while let Ok((name, attributes)) = spans.try_recv() {
        seen.push((name, attributes));
    }
    let text = |value: &str| Value::StringValue(value.to_owned());
    let of_web = seen.iter().find(|(name, attributes)| {
        name == "reconcile" && attributes.get("key") == Some(&text("default/web"))
    });
    let (_, attributes) = of_web.expect("a span of the ConfigMap");
    assert_eq!(attributes.get("controller"), Some(&text("configmap")));
    assert_eq!(attributes.get("attempt"), Some(&Value::IntValue(0)));
    assert!(attributes.contains_key("trigger"), "{attributes:?}");
    listening.stop().await;
}
