//! Metrics of the process itself, read from `/proc` at each scrape.

use std::fmt;
use std::fs;
use std::str::FromStr;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::sheet::Sheet;

/// Registers the `process_*` metrics of Prometheus' client libraries: CPU time, memory, threads, file descriptors and the time of
/// the start. There are none where there is no `/proc`.
pub fn register_process(registry: &mut Registry) {
    registry.register_collector(Box::new(Process));
}

/// The ticks per second in `/proc`, whatever the kernel counts by itself.
const TICKS: f64 = 100.0;

#[derive(Debug)]
struct Process;

/// What `/proc` says; what cannot be read is left out.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    cpu_seconds: Option<f64>,
    start_seconds: Option<f64>,
    threads: Option<f64>,
    virtual_bytes: Option<f64>,
    resident_bytes: Option<f64>,
    open_files: Option<f64>,
    max_files: Option<f64>,
}

impl Reading {
    fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let open_files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
        Self {
            // Without the one that reads the folder.
            open_files: open_files.map(|count| count - 1.0),
            ..Self::of(
                &text("/proc/self/stat"),
                &text("/proc/self/status"),
                &text("/proc/self/limits"),
                &text("/proc/stat"),
            )
        }
    }

    fn of(stat: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The name of the program may have spaces and parentheses. Field 3 of proc_pid_stat(5) is the first one behind it.
        let fields: Vec<_> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let field = |number: usize| number_of::<f64>(fields.get(number - 3).copied());
        let kilobytes = |name| number_of::<f64>(line(status, name)).map(|kilobytes| kilobytes * 1024.0);
        let booted = number_of::<f64>(line(machine, "btime "));
        Self {
            cpu_seconds: field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS),
            start_seconds: field(22).zip(booted).map(|(ticks, booted)| booted + ticks / TICKS),
            threads: field(20),
            virtual_bytes: kilobytes("VmSize:"),
            resident_bytes: kilobytes("VmRSS:"),
            max_files: number_of(line(limits, "Max open files")),
            open_files: None,
        }
    }
}

/// Returns what follows `name` at the begin of a line.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// Parses the first word.
fn number_of<N: FromStr>(text: Option<&str>) -> Option<N> {
    text?.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reading = Reading::now();
        let mut sheet = Sheet(encoder);
        if let Some(seconds) = reading.cpu_seconds {
            sheet.counters("process_cpu_seconds", "User and system CPU time")?.seconds(seconds)?;
        }
        let gauges = [
            ("process_start_time_seconds", "Start time, since the epoch", reading.start_seconds),
            ("process_threads", "Number of threads", reading.threads),
            ("process_virtual_memory_bytes", "Virtual memory", reading.virtual_bytes),
            ("process_resident_memory_bytes", "Resident memory", reading.resident_bytes),
            ("process_open_fds", "Number of open file descriptors", reading.open_files),
            ("process_max_fds", "Maximum number of open file descriptors", reading.max_files),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                sheet.gauges(name, help)?.gauge(&[], value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read_whatever_the_program_is_called() {
        let stat =
            "42 (a) b (c) S 1 42 42 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 7 0 12345 9 3 18446744073709551615";
        let status = "Name:\ta) b\nVmSize:\t    2048 kB\nVmRSS:\t     512 kB\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 1048576              files\n";
        let reading = Reading::of(stat, status, limits, "cpu  1 2\nbtime 1700000000\n");
        let expected = Reading {
            cpu_seconds: Some(3.0),
            start_seconds: Some(1_700_000_123.45),
            threads: Some(7.0),
            virtual_bytes: Some(2_097_152.0),
            resident_bytes: Some(524_288.0),
            max_files: Some(1024.0),
            open_files: None,
        };
        assert_eq!(reading, expected);
        assert_eq!(Reading::of("", "", "Max open files unlimited unlimited files", ""), Reading::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_scrape_has_the_metrics_of_this_process() {
        let mut registry = Registry::default();
        register_process(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for name in [
            "process_cpu_seconds_total ",
            "process_start_time_seconds ",
            "process_threads ",
            "process_virtual_memory_bytes ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
        ] {
            let value = number_of::<f64>(line(&text, name));
            assert!(
                value.is_some_and(|value| value > 0.0) || name.contains("cpu") && value.is_some(),
                "{text}"
            );
        }
    }
}
