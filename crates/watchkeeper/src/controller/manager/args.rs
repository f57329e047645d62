//! The flags of a program with a manager, and its `main`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::{Layer, Registry};

use super::{AccessCheck, Manager};
use crate::controller::setup::SetupError;
use crate::controller::stale::OnStale;
use crate::env::Env;
use crate::leader::{LeaderElection, LeaseTimes};
use crate::process::{AdminArgs, ClientArgs, LogArgs, pod_namespace, signals};
use crate::report::WithCauses;
use crate::source::Client;

/// The flags of a program with a manager, for `#[command(flatten)]`. They have controller-runtime's names.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use watchkeeper::clap::{self, Parser};
/// use watchkeeper::controller::{Manager, ManagerArgs, SetupError};
///
/// /// An operator of Websites.
/// #[derive(Parser)]
/// struct Args {
///     #[command(flatten)]
///     manager: ManagerArgs,
/// }
///
/// fn register(manager: &mut Manager) -> Result<(), SetupError> {
///     // Controller::<Website>::new(manager) ...
/// #   let _ = manager;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ExitCode {
/// Args::parse().manager.run("website-operator", register).await
/// # }
/// ```
#[derive(Clone, Debug, clap::Args)]
// Else this text would be the description of a program that has none.
#[command(about = None, long_about = None)]
pub struct ManagerArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Namespaces to look at, separated by commas; all by default
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    namespace: Vec<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Work only while this replica leads, so that several can run; the others stand by
    #[arg(long)]
    leader_elect: bool,
    /// Name of the Lease of the leader election; that of the program by default
    #[arg(long, value_name = "NAME")]
    leader_election_id: Option<String>,
    /// Namespace of the Lease; that of the pod by default
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// How long standbys wait after the last renewal before one takes over
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew before it gives up
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    leader_elect_renew_deadline: Duration,
    /// Pause between renewals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    leader_elect_retry_period: Duration,
    /// Compare the caches with the server within each such time, and mend them where it has lost events; 0s is never
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s")]
    verify_every: Duration,
    /// What becomes of a controller while a cache that it reads is out of date
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    on_stale: OnStale,
    /// How long a cache must have been out of date for that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    stale_after: Duration,
    /// What to do at the start if permissions are missing; all that are missing are named
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = AccessCheck::Warn)]
    access_check: AccessCheck,
    /// Print the permissions that the controllers need as rules of a role, and exit
    #[arg(long)]
    print_role: bool,
    #[command(flatten)]
    log: LogArgs,
}

impl ManagerArgs {
    /// Runs a manager called `name` with the controllers that `register` registers, until a signal stops it.
    ///
    /// Returns success after a signal, and failure, with the causes in the log, if the program could not start or a part of it died.
    /// A second signal ends the process at once. Must be called on a tokio runtime.
    pub async fn run(
        self,
        name: &str,
        register: impl FnOnce(&mut Manager) -> Result<(), SetupError>,
    ) -> ExitCode {
        match self.log.install("info") {
            Ok(()) => self.logged(name, register).await,
            Err(error) => fail(&error),
        }
    }

    /// Runs as [`run`](Self::run) does, and passes spans and events to `layer` too, which has a filter of its own: for traces, such as
    /// those of OpenTelemetry. Each reconcile is a span of level INFO with controller, key, attempt and trigger.
    ///
    /// ```no_run
    /// # use std::process::ExitCode;
    /// # use watchkeeper::clap::{self, Parser};
    /// # use watchkeeper::controller::{Manager, ManagerArgs, SetupError};
    /// use watchkeeper::tracing_subscriber::Layer;
    /// use watchkeeper::tracing_subscriber::filter::LevelFilter;
    /// use watchkeeper::tracing_subscriber::layer::Identity;
    ///
    /// # #[derive(Parser)]
    /// # struct Args {
    /// #     #[command(flatten)]
    /// #     manager: ManagerArgs,
    /// # }
    /// # fn register(manager: &mut Manager) -> Result<(), SetupError> {
    /// #     let _ = manager;
    /// #     Ok(())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> ExitCode {
    /// let traces = Identity::new(); // such as tracing_opentelemetry::layer()
    /// Args::parse().manager.run_with("website-operator", traces.with_filter(LevelFilter::INFO), register).await
    /// # }
    /// ```
    pub async fn run_with<L>(
        self,
        name: &str,
        layer: L,
        register: impl FnOnce(&mut Manager) -> Result<(), SetupError>,
    ) -> ExitCode
    where
        L: Layer<Registry> + Send + Sync,
    {
        match self.log.install_with("info", layer) {
            Ok(()) => self.logged(name, register).await,
            Err(error) => fail(&error),
        }
    }

    /// Runs with a log.
    async fn logged(
        self,
        name: &str,
        register: impl FnOnce(&mut Manager) -> Result<(), SetupError>,
    ) -> ExitCode {
        match self.start(name, register).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(error = %WithCauses(&*error), "{name} cannot go on");
                ExitCode::FAILURE
            }
        }
    }

    /// The election that the flags ask for.
    fn election(&self, name: &str, client: &Client) -> Result<Option<LeaderElection>, Box<dyn Error>> {
        if !self.leader_elect {
            return Ok(None);
        }
        let namespace = self.leader_election_namespace.clone().or_else(pod_namespace);
        // The permissions do not depend on it.
        let namespace =
            namespace.or_else(|| self.print_role.then(|| "default".to_owned())).ok_or(NoNamespace)?;
        let id = self.leader_election_id.as_deref().unwrap_or(name);
        let times = LeaseTimes {
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        Ok(Some(LeaderElection::builder(client, &namespace, id).times(times).build()?))
    }

    async fn start(
        self,
        name: &str,
        register: impl FnOnce(&mut Manager) -> Result<(), SetupError>,
    ) -> Result<(), Box<dyn Error>> {
        let env = Env::system();
        let client = if self.print_role {
            Client::from_config(kube_client::Config::new(http::Uri::from_static("http://127.0.0.1")), &env)?
        } else {
            self.client.connect(&env).await?
        };
        let election = self.election(name, &client)?;
        let mut manager = Manager::builder(name, &client)
            .namespaces(self.namespace)
            .verify_every(self.verify_every)
            .on_stale(self.stale_after, self.on_stale)
            .preflight(self.access_check)
            .admin_args(self.admin);
        if let Some(election) = election {
            manager = manager.leader_election(election);
        }
        let mut manager = manager.build();
        register(&mut manager)?;
        if self.print_role {
            print_role(&manager);
            return Ok(());
        }
        let stop = signals::install(&env)?;
        Ok(manager.run(stop).await?)
    }
}

/// Why there is no namespace for the Lease.
#[derive(Debug, thiserror::Error)]
#[error(
    "the namespace of the leader election is not known, as this is no pod: set --leader-election-namespace"
)]
struct NoNamespace;

/// Reads a duration such as `15s` or `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let duration = parsed.map_err(|error| error.to_string())?;
    duration.try_into().map_err(|_| "a duration must not be negative".to_owned())
}

#[expect(clippy::print_stdout, reason = "asked for by a flag")]
fn print_role(manager: &Manager) {
    print!("{}", manager.role());
}

#[expect(clippy::print_stderr, reason = "there is no log")]
fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("error: {}", WithCauses(error));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    /// The short and the long description of a program.
    fn descriptions<P: CommandFactory>() -> [Option<String>; 2] {
        let command = P::command();
        [command.get_about(), command.get_long_about()].map(|text| text.map(ToString::to_string))
    }

    fn assert_describes_no_program<A: clap::Args>() {
        #[derive(Parser)]
        struct Bare<A: clap::Args> {
            #[command(flatten)]
            _flags: A,
        }
        /// Runs websites
        #[derive(Parser)]
        struct Described<A: clap::Args> {
            #[command(flatten)]
            _flags: A,
        }
        let flags = std::any::type_name::<A>();
        assert_eq!(descriptions::<Bare<A>>(), [None, None], "{flags}");
        assert_eq!(descriptions::<Described<A>>(), [Some("Runs websites".to_owned()), None], "{flags}");
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("15").is_err() && duration("-1s").is_err() && duration("").is_err());
    }

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        manager: ManagerArgs,
    }

    fn election(flags: &[&str]) -> Result<Option<LeaderElection>, String> {
        let args = ["program"].iter().chain(flags);
        let args = Program::try_parse_from(args).map_err(|error| error.to_string())?.manager;
        let config = kube_client::Config::new(http::Uri::from_static("http://127.0.0.1"));
        let client = Client::from_config(config, &Env::simulated(1)).unwrap();
        args.election("web", &client).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_election_is_held_if_asked_for_under_the_name_of_the_program_or_the_one_given() {
        assert!(election(&[]).unwrap().is_none());
        let named = election(&["--leader-elect", "--leader-election-namespace=ns"]).unwrap().unwrap();
        assert!(format!("{named:?}").contains("ns/web"), "{named:?}");
        let given = ["--leader-elect", "--leader-election-namespace=ns", "--leader-election-id=own"];
        assert!(format!("{:?}", election(&given).unwrap()).contains("ns/own"));
        let wrong = ["--leader-elect", "--leader-election-namespace=ns", "--leader-elect-lease-duration=10s"];
        let error = election(&wrong).unwrap_err();
        assert!(error.contains("must be less than the lease duration"), "{error}");
    }

    #[test]
    fn policies_are_chosen_by_name() {
        let parse = |flags: &[&str]| {
            Program::try_parse_from(["program"].iter().chain(flags)).map(|parsed| parsed.manager)
        };
        let default = parse(&[]).unwrap();
        assert_eq!((default.access_check, default.on_stale), (AccessCheck::Warn, OnStale::Continue));
        assert_eq!((default.verify_every, default.stale_after.as_secs()), (Duration::ZERO, 300));
        let flags = ["--access-check=fail", "--on-stale=pause", "--stale-after=30s", "--verify-every=1h"];
        let given = parse(&flags).unwrap();
        assert_eq!((given.access_check, given.on_stale), (AccessCheck::Fail, OnStale::Pause));
        assert_eq!((given.verify_every.as_secs(), given.stale_after.as_secs()), (3600, 30));
        assert!(parse(&["--on-stale=panic"]).is_err() && parse(&["--access-check=maybe"]).is_err());
    }

    #[test]
    fn the_help_of_a_program_has_its_own_description_or_none() {
        assert_describes_no_program::<ManagerArgs>();
        assert_describes_no_program::<ClientArgs>();
        assert_describes_no_program::<LogArgs>();
        assert_describes_no_program::<AdminArgs>();
    }
}
