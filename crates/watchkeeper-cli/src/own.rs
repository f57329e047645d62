//! `watchkeeper up` for kinds of one's own: a control plane with their definitions, and a view of their objects.

use std::future::ready;

use sample_controller::Program;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::Pages;
use watchkeeper::{Client, Env};

use crate::args::UpArgs;
use crate::front::{self, DIM};
use crate::manifests::{self, Manifest};
use crate::plane::{Plane, PlaneError};
use crate::screen::Screen;
use crate::up::{Cluster, UpError, create_crd, is_meant, run_sample};
use crate::watch;

/// Runs until `stop`, then stops the view and the control plane, in this order.
pub(crate) async fn run(
    args: &UpArgs,
    screen: &Screen,
    env: &Env,
    stop: &CancellationToken,
) -> Result<(), UpError> {
    let mut created = Vec::new();
    if is_meant(&args.client) {
        let Cluster { clients, kubectl } = Cluster::connect(args, env).await?;
        let view = View { names: args.watch.clone(), commands: vec![get(&kubectl, &args.watch)] };
        if args.sample {
            front::creates(!args.no_example);
        }
        let result = view.run(args, &clients, screen, &mut created, stop).await;
        front::left(&kubectl, &created);
        return result;
    }
    let manifests = manifests::read(&args.serve.crds).map_err(PlaneError::from)?;
    let names = names(args, &manifests)?;
    let plane = Plane::start(&args.serve, &manifests, env).await?;
    let clients = Client::from_kube(plane.server.client(), env);
    // The operator is started in its own folder, so the path is absolute.
    let commands = vec![format!("{} cargo run", plane.environment()), get(&plane.kubectl(), &names)];
    let result = View { names, commands }.run(args, &clients, screen, &mut created, stop).await;
    plane.stop().await;
    result
}

/// The kinds to show: those of `--watch`, or else those that `--crds` defines.
fn names(args: &UpArgs, manifests: &[Manifest]) -> Result<Vec<String>, UpError> {
    if !args.watch.is_empty() {
        return Ok(args.watch.clone());
    }
    // A definition is named after its kind: the plural and the group.
    let names: Vec<_> =
        manifests.iter().filter(|it| it.is_definition()).map(|definition| definition.name.clone()).collect();
    if names.is_empty() { Err(UpError::NothingToShow) } else { Ok(names) }
}

fn get(kubectl: &str, names: &[String]) -> String {
    format!("{kubectl} get {} -A", names.join(","))
}

struct View {
    names: Vec<String>,
    commands: Vec<String>,
}

impl View {
    /// Shows the kinds; with `--sample`, the sample controller runs too.
    async fn run(
        self,
        args: &UpArgs,
        clients: &Client,
        screen: &Screen,
        created: &mut Vec<&'static str>,
        stop: &CancellationToken,
    ) -> Result<(), UpError> {
        match screen.is_live() {
            // The live view shows the commands.
            true => screen.line(&format!("{DIM}press Ctrl-C to stop{DIM:#}\n")),
            false => front::hint(self.commands.clone()),
        }
        // Whichever fails first stops the other.
        let stop = &stop.child_token();
        let view = async {
            let _stop = stop.clone().drop_guard();
            watch::run(clients, screen, &self.names, self.commands, stop).await
        };
        if !args.sample {
            return Ok(view.await?);
        }
        create_crd(clients, created).await?;
        let program = Program::new(clients, &args.options, &mut Pages::default())?;
        let sample = run_sample(program, args, clients, ready(()), created, stop);
        let (view, sample) = tokio::join!(view, sample);
        view?;
        sample
    }
}
