//! An operator that exports the spans of its reconciles by OTLP.
//!
//! `cargo run --manifest-path examples/otlp/Cargo.toml` runs on the cluster of your kubeconfig until Ctrl-C, and sends to the collector at
//! `OTEL_EXPORTER_OTLP_ENDPOINT`, http://localhost:4318 by default.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use watchkeeper::clap::{self, Parser};
use watchkeeper::prelude::*;
use watchkeeper::tracing_subscriber::Layer;
use watchkeeper::tracing_subscriber::filter::LevelFilter;

/// Keeps a Secret for each ConfigMap, and exports traces
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    manager: ManagerArgs,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("map-operator").build())
        .with_batch_exporter(SpanExporter::builder().with_http().build()?)
        .build();
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("map-operator"))
        .with_filter(LevelFilter::INFO);
    let code = args.manager.run_with("map-operator", traces, register).await;
    // Sends what is not sent yet, after the last reconcile.
    provider.shutdown()?;
    Ok(code)
}

fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
        let mut secret = Secret::default();
        secret.metadata.name = map.metadata.name.clone();
        cx.apply(&secret).await?;
        Ok(Action::done())
    })
}
