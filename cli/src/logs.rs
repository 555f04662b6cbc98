//! What the process prints while it works, in three forms.

use std::fmt::{self, Write as _};
use std::io::IsTerminal;

use shared::settings::{LogFormat, Settings};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Target of lines that tell what a dry run would do.
pub const PLAN: &str = "offhours::plan";

/// Libraries that speak of their own inner life at info and below.
const QUIET: &[&str] = &[
    "hyper=warn",
    "hyper_util=warn",
    "h2=warn",
    "tower=warn",
    "rustls=warn",
    "kube=warn",
    "kube_client=warn",
    "kube_runtime=warn",
];

/// The form where nobody asked for one.
fn default_format(server: bool) -> LogFormat {
    if server && !std::io::stderr().is_terminal() {
        LogFormat::Json
    } else {
        LogFormat::Text
    }
}

/// Starts logging. `server`: whether the process is one of the long-running servers.
///
/// # Errors
/// If the level is none, with what is allowed.
pub fn start(settings: &Settings, server: bool) -> Result<(), String> {
    let level = settings.log_level.trim();
    let wrong = || {
        format!(
            "OFFHOURS_LOG_LEVEL (or --log-level) is {level:?}: allowed is error, warn, info, debug or trace, or a list \
             such as `info,scheduler=debug`"
        )
    };
    // What the person wrote comes last and so wins over what we quieten.
    let text = QUIET.iter().copied().chain([level]).collect::<Vec<_>>().join(",");
    let plain = level.split(',').all(|part| {
        let word = part.rsplit('=').next().unwrap_or(part);
        matches!(
            word.to_ascii_lowercase().as_str(),
            "error" | "warn" | "info" | "debug" | "trace" | "off"
        )
    });
    if !plain {
        return Err(wrong());
    }
    let filter = EnvFilter::try_new(text).map_err(|_| wrong())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match settings.log_format.unwrap_or_else(|| default_format(server)) {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .try_init(),
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .try_init(),
        // K8s-OffHours wrote to standard output, and that is where its users look.
        LogFormat::K8sOffHours => builder.event_format(Bracketed).with_writer(std::io::stdout).try_init(),
    };
    started.map_err(|error| format!("failed to start logging: {error}"))
}

/// One line with what is in force, secrets hidden.
pub fn tell_settings(settings: &Settings) {
    let mut said = String::new();
    for line in settings.effective() {
        let space = if said.is_empty() { "" } else { " " };
        let _ = write!(said, "{space}{}={:?} ({})", line.flag, line.value, line.source);
    }
    let schedules: Vec<&str> = settings
        .schedules
        .iter()
        .map(|schedule| schedule.name.as_str())
        .collect();
    let kinds: Vec<&str> = settings.added_kinds.iter().map(|kind| kind.kind.as_ref()).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        settings = said,
        schedules = schedules.join(","),
        added_kinds = kinds.join(","),
        "starting"
    );
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
}

/// `[INFO] message key=value`, as K8s-OffHours wrote it.
struct Bracketed;

impl<S, N> FormatEvent<S, N> for Bracketed
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let word = if event.metadata().target() == PLAN {
            "DRYRUN"
        } else {
            word(*event.metadata().level())
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        writeln!(writer, "[{word}] {}{}", fields.message, fields.rest)
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.rest, " {}={value:?}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.rest, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bracketed_lines_are_those_of_k8s_offhours() {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Bracketed)
            .with_max_level(Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(namespace = "shop", replicas = 3, "scaled down");
            tracing::warn!("careful");
            tracing::error!("broken");
            tracing::debug!("detail");
            tracing::info!(target: PLAN, "would scale");
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "[INFO] scaled down namespace=\"shop\" replicas=3\n[WARN] careful\n[ERROR] broken\n[DEBUG] detail\n[DRYRUN] would scale\n"
        );
    }
}
