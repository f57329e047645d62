//! The admin pages of a program: `/metrics`, `/healthz` and `/readyz`.

mod checks;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

pub use checks::{Alarm, Checks, Gate};
pub use server::{AdminError, AdminServer, Pages};

use crate::env::Env;

/// Flags for the address of the admin pages, for `#[command(flatten)]`.
///
/// The default is the loopback interface, which only processes of the machine or pod can reach. For probes and
/// scrapers, use `0.0.0.0:8080` and a network policy.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
// Else this text would be the description of a program that has none.
#[cfg_attr(feature = "clap", command(about = None, long_about = None))]
pub struct AdminArgs {
    /// Address to serve /metrics, /healthz and /readyz on; `off` disables them
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDR:PORT", default_value_t))]
    pub admin_address: AdminAddress,
}

impl AdminArgs {
    /// Listens at the address; [`AdminServer::run`] serves `pages`.
    pub async fn bind(&self, pages: Pages, env: &Env) -> Result<AdminServer, AdminError> {
        AdminServer::bind(self.admin_address, pages, env).await
    }
}

/// The address of the admin pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// The pages are disabled.
    Off,
    /// An address; port 0 selects a free port.
    At(SocketAddr),
}

impl Default for AdminAddress {
    fn default() -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            // The same values as in controller-runtime.
            "off" | "0" | "" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::At)
                .map_err(|_| "expected an address such as 127.0.0.1:8080, or off".to_owned()),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}
