//! The life of the program: its readiness, and its end when a part of it dies.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::client::Body;
use sample_controller::{Options, Program, RunError, api};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};
use watchkeeper::process::Pages;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;

#[tokio::test(start_paused = true)]
async fn an_informer_that_dies_ends_the_program_with_its_name_before_and_after_the_caches_are_filled() {
    for dies_late in [false, true] {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let user = Client::from_kube(server.client(), &env);
        user.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
        let (service, deadly) = (server.service(), Arc::new(AtomicBool::new(!dies_late)));
        let kills = deadly.clone();
        let fragile = service_fn(move |request: Request<Body>| {
            let (service, kills) =
                (service.clone(), kills.load(SeqCst) && request.uri().path().ends_with("/foos"));
            async move {
                assert!(!kills, "below");
                service.oneshot(request).await
            }
        });
        let client = Client::from_kube(kube_client::Client::new(fragile, "default"), &env);
        let (mut pages, stop) = (Pages::default(), CancellationToken::new());
        let program = Program::new(&client, &Options::default(), &mut pages).unwrap();
        assert_eq!(pages.ready.failing(), ["caches"]);
        let kill = async {
            if dies_late {
                env.clock.sleep(Duration::from_secs(10)).await;
                assert!(pages.ready.failing().is_empty());
                deadly.store(true, SeqCst);
                server.end_watches();
            }
        };
        let life = async { tokio::join!(program.run(stop.clone()), kill).0 };
        let error = env.clock.timeout(Duration::from_secs(3600), life).await.unwrap().unwrap_err();
        assert!(matches!(&error, RunError::Panicked(panicked) if panicked.name == "foos"), "{error}");
        assert!(error.to_string().ends_with(": below"), "{error}");
        assert_eq!((pages.ready.failing(), stop.is_cancelled()), (vec!["caches".to_owned()], false));
    }
}
