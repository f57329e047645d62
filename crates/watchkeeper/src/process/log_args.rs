//! Flags for the log: levels and format.

use std::backtrace::Backtrace;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::{env, io, panic};

use tracing::Subscriber;
#[cfg(feature = "clap")]
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Registry};

/// The target of logged panics, which no level turns off.
const PANIC: &str = "watchkeeper::panic";

/// Flags for the log, for `#[command(flatten)]`.
///
/// ```no_run
/// # fn main() -> Result<(), watchkeeper::process::LogError> {
/// watchkeeper::process::LogArgs::default().install("info")?;
/// tracing::info!("logged to standard error");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
// Else this text would be the description of a program that has none.
#[cfg_attr(feature = "clap", command(about = None, long_about = None))]
pub struct LogArgs {
    /// Log level: off, error, warn, info, debug or trace, or one per module, such as info,watchkeeper=debug; RUST_LOG
    /// is used without it
    #[cfg_attr(feature = "clap", arg(long, value_name = "LEVEL", value_parser = levels))]
    pub log_level: Option<String>,
    /// Log format
    #[cfg_attr(feature = "clap", arg(long, value_name = "FORMAT", value_enum, default_value_t))]
    pub log_format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum LogFormat {
    /// Readable text, in colour on a terminal unless `NO_COLOR` is set
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// The reason why logging could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `--log-level` or `RUST_LOG` is invalid.
    #[error("--log-level {level:?} is not a level such as info, or a list such as info,watchkeeper=debug")]
    Level {
        /// The value.
        level: String,
        /// The problem.
        #[source]
        source: ParseError,
    },
    /// The log of the process was already set up.
    #[error("the log is set up already: let the program alone do it")]
    AlreadyInstalled,
}

impl LogArgs {
    /// Logs to standard error from now on, for the whole process; at `default` unless a flag or the environment sets a
    /// level. Panics are logged too, with their location and, if `RUST_BACKTRACE` is set, a backtrace, so that every
    /// line of the log has the same format. They are logged at any level, including `off`.
    ///
    /// May be called once per process.
    pub fn install(&self, default: &str) -> Result<(), LogError> {
        self.install_to(default, io::stderr)
    }

    /// Logs as [`install`](Self::install) does, but to `writer`: for a program that draws on the terminal. Lines are
    /// still in colour only if standard error is a terminal.
    pub fn install_to<W>(&self, default: &str, writer: W) -> Result<(), LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let level = self.level(env::var("RUST_LOG").ok(), default);
        let subscriber = self.subscriber(&level, writer, is_coloured())?;
        install(subscriber)
    }

    /// Logs as [`install`](Self::install) does, and passes spans and events to `layer` too: for traces, such as those
    /// of OpenTelemetry, and for logs that go elsewhere.
    ///
    /// The level of the log is not that of `layer`, which has a filter of its own or gets everything, down to the
    /// traces of the HTTP client.
    ///
    /// ```no_run
    /// use watchkeeper::process::LogArgs;
    /// use watchkeeper::tracing_subscriber::Layer;
    /// use watchkeeper::tracing_subscriber::filter::LevelFilter;
    /// use watchkeeper::tracing_subscriber::layer::Identity;
    ///
    /// # fn main() -> Result<(), watchkeeper::process::LogError> {
    /// let traces = Identity::new(); // such as tracing_opentelemetry::layer()
    /// LogArgs::default().install_with("info", traces.with_filter(LevelFilter::INFO))?;
    /// # Ok(()) }
    /// ```
    pub fn install_with<L>(&self, default: &str, layer: L) -> Result<(), LogError>
    where
        L: Layer<Registry> + Send + Sync,
    {
        let level = self.level(env::var("RUST_LOG").ok(), default);
        let subscriber = self.subscriber_with(&level, io::stderr, is_coloured(), layer)?;
        install(subscriber)
    }

    fn level(&self, variable: Option<String>, default: &str) -> String {
        let level = self.log_level.clone().or(variable);
        level.filter(|level| !level.is_empty()).unwrap_or_else(|| default.to_owned())
    }

    fn subscriber<W>(
        &self,
        level: &str,
        writer: W,
        colours: bool,
    ) -> Result<impl Subscriber + Send + Sync + use<W>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        Ok(tracing_subscriber::registry().with(self.lines(writer, colours)).with(filter(level)?))
    }

    /// The log beside `layer`: here the level is that of the lines alone.
    fn subscriber_with<W, L>(
        &self,
        level: &str,
        writer: W,
        colours: bool,
        layer: L,
    ) -> Result<impl Subscriber + Send + Sync + use<W, L>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
        L: Layer<Registry> + Send + Sync,
    {
        let lines = self.lines(writer, colours).with_filter(filter(level)?);
        Ok(tracing_subscriber::registry().with(layer).with(lines))
    }

    /// The layer that writes the lines of the log.
    fn lines<S, W>(&self, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let lines = fmt::layer().with_writer(writer).with_ansi(colours);
        match self.log_format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        }
    }
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let bad = |source| LogError::Level { level: level.to_owned(), source };
    let panics = format!("{PANIC}=error").parse().map_err(bad)?;
    Ok(EnvFilter::builder().parse(level).map_err(bad)?.add_directive(panics))
}

fn is_coloured() -> bool {
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !is_plain
}

fn install(subscriber: impl Subscriber + Send + Sync) -> Result<(), LogError> {
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadyInstalled)?;
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Refuses a single word that is not a level: it would be a module, and disable the log of all others.
#[cfg(feature = "clap")]
fn levels(text: &str) -> Result<String, &'static str> {
    let is_level = |word: &str| word.contains(['=', '[']) || word.parse::<LevelFilter>().is_ok();
    if text.split(',').all(|word| word.is_empty() || is_level(word)) {
        Ok(text.to_owned())
    } else {
        Err("expected a level such as info or debug, or a list such as info,watchkeeper=debug")
    }
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("(no message)");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(target: PANIC, place, backtrace = %Backtrace::capture(), "panicked: {message}");
}

#[cfg(test)]
#[cfg(feature = "clap")]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use parking_lot::Mutex;
    use serde_json::Value;
    use tracing::span::{Attributes, Id};
    use tracing_subscriber::layer::Context;

    use super::*;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        log: LogArgs,
    }

    fn args(flags: &[&str]) -> LogArgs {
        Args::try_parse_from(["program"].iter().chain(flags)).unwrap().log
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log of an error, a warning and an information.
    fn logged(args: &LogArgs, colours: bool) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = args.subscriber(&args.level(None, "warn"), move || writer.clone(), colours).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(number = 1, "bad");
            tracing::warn!("so so");
            tracing::info!("good");
        });
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_flag_says_how_much_and_else_the_program_does() {
        let count = |flags: &[&str]| logged(&args(flags), false).lines().count();
        let counts = [
            &[][..],
            &["--log-level", ""],
            &["--log-level", "info"],
            &["--log-level", "off,watchkeeper=error"],
        ];
        assert_eq!(counts.map(count), [2, 2, 3, 1]);
    }

    #[test]
    fn the_variable_says_how_much_where_no_flag_does() {
        let level = |flags: &[&str], variable: &str| args(flags).level(Some(variable.to_owned()), "warn");
        assert_eq!(level(&[], "debug"), "debug");
        assert_eq!(level(&[], ""), "warn");
        assert_eq!(level(&["--log-level", "info"], "debug"), "info");
        assert_eq!(level(&["--log-level", ""], "debug"), "warn");
    }

    #[test]
    fn a_line_is_text_or_json() {
        let text = logged(&args(&[]), false);
        assert!(text.contains("ERROR") && text.contains("bad number=1") && !text.contains('\x1b'), "{text}");
        assert!(logged(&args(&["--log-format", "text"]), true).contains('\x1b'));
        let json = logged(&args(&["--log-format", "json"]), true);
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&lines[0]["level"], &lines[0]["message"], &lines[0]["number"]),
            (&"ERROR".into(), &"bad".into(), &1.into())
        );
    }

    /// Counts the events and spans that it gets.
    #[derive(Clone, Default)]
    struct Counter(Arc<Mutex<(usize, usize)>>);

    impl Layer<Registry> for Counter {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, Registry>) {
            self.0.lock().0 += 1;
        }

        fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, Registry>) {
            self.0.lock().1 += 1;
        }
    }

    #[test]
    fn a_further_layer_has_its_own_level_and_leaves_the_log_as_it_is() {
        let seen = |flags: &[&str], of_layer: LevelFilter| {
            let (lines, counter) = (Lines::default(), Counter::default());
            let (writer, layer) = (lines.clone(), counter.clone().with_filter(of_layer));
            let args = args(flags);
            let subscriber =
                args.subscriber_with(&args.level(None, "info"), move || writer.clone(), false, layer);
            tracing::subscriber::with_default(subscriber.unwrap(), || {
                let _span = tracing::info_span!("work").entered();
                tracing::error!("bad");
                tracing::info!("good");
                tracing::debug!("detail");
            });
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            (text.lines().count(), *counter.0.lock())
        };
        assert_eq!(seen(&[], LevelFilter::INFO), (2, (2, 1)));
        assert_eq!(seen(&["--log-level", "off"], LevelFilter::DEBUG), (0, (3, 1)));
        assert_eq!(seen(&["--log-level", "debug"], LevelFilter::OFF), (3, (0, 0)));
    }

    #[test]
    fn a_level_that_makes_no_sense_is_told() {
        let args = args(&["--log-level", "loud=very"]);
        let Err(error) = args.subscriber(&args.level(None, "info"), io::sink, false) else {
            panic!("it was taken")
        };
        assert!(error.to_string().contains("--log-level \"loud=very\" is not"), "{error}");
        assert!(Args::try_parse_from(["program", "--log-format", "xml"]).is_err());
    }

    #[test]
    fn a_word_alone_is_a_level_and_no_module() {
        let is_taken = |level: &str| Args::try_parse_from(["program", "--log-level", level]).is_ok();
        assert!(["WARN", "3", "off,a=debug", "info,[span]"].into_iter().all(is_taken));
        assert!(!["inof", "info,watchkeeper"].into_iter().any(is_taken));
    }
}
