//! Flags for the log: levels and format.

use std::backtrace::Backtrace;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::{env, io, panic};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
#[cfg(feature = "clap")]
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};

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
        let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let level = self.level(env::var("RUST_LOG").ok(), default);
        let subscriber = self.subscriber(&level, writer, io::stderr().is_terminal() && !is_plain)?;
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadyInstalled)?;
        panic::set_hook(Box::new(log_panic));
        Ok(())
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
    ) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let bad = |source| LogError::Level { level: level.to_owned(), source };
        let panics = format!("{PANIC}=error").parse().map_err(bad)?;
        let filter = EnvFilter::builder().parse(level).map_err(bad)?.add_directive(panics);
        let builder: SubscriberBuilder<_, _, _, W> =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours);
        Ok(match self.log_format {
            LogFormat::Text => Box::new(builder.finish()),
            LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
        })
    }
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
