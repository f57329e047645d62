//! The admin pages of the sample controller that runs beside the control plane.

use tokio_util::sync::CancellationToken;
use watchkeeper::Env;
use watchkeeper::process::{AdminAddress, AdminServer, Pages};

use crate::args::ServeArgs;
use crate::ask::Announced;
use crate::front;
use crate::plane::KUBECONFIG;

/// The pages, and the file that tells other commands where they are. Without a port there are none.
pub(crate) struct Admin(Option<(AdminServer, Option<Announced>)>);

impl Admin {
    /// Listens on the default port, or on a free one, and says where.
    pub(crate) async fn open(args: &ServeArgs, pages: Pages, env: &Env) -> Self {
        let free = AdminAddress::At(([127, 0, 0, 1], 0).into());
        // The pages cannot be given twice, so the port is tried first.
        let is_free = match AdminAddress::default() {
            AdminAddress::At(address) => tokio::net::TcpListener::bind(address).await.is_ok(),
            AdminAddress::Off => false,
        };
        let address = if is_free { AdminAddress::default() } else { free };
        let Ok(server) = AdminServer::bind(address, pages, env).await else { return Self(None) };
        let announced = server.address().and_then(|address| {
            front::explains(&address);
            let kubeconfig = args.kubeconfig_out.clone().unwrap_or_else(|| KUBECONFIG.into());
            Announced::write(&kubeconfig, address).ok()
        });
        Self(Some((server, announced)))
    }

    /// Serves until `stop`.
    pub(crate) async fn run(self, stop: &CancellationToken) {
        if let Some((server, _announced)) = self.0 {
            server.run(stop.clone()).await;
        }
    }
}
