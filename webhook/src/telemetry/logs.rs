//! Logging to stderr, as JSON or text, with a filter. Log lines of dependencies are discarded.
//!
//! Some dependencies log data: `kube_client::client` logs responses of the API server that it
//! cannot parse at level `warn`, and failed requests at `debug`. HTTP libraries log frames and
//! headers at `trace`. A logged response can contain Secrets, and a user can cause a response that
//! cannot be parsed. Therefore no directive of `--log-level` enables targets outside of this
//! workspace, and the `log` crate is not connected. Errors of dependencies are returned and logged
//! by the caller.

use std::io;

use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::args::LogFormat;

/// Prefix of the targets of this workspace.
const OWN: &str = "bundle_";

/// The reason why logging was not started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log filter is invalid.
    #[error("invalid --log-level {filter}: use a level or directives")]
    Filter {
        /// The value of the flag `--log-level`.
        filter: String,
        /// The error of the parser.
        source: ParseError,
    },
    /// Logging was already started in this process.
    #[error("logging was started twice")]
    Twice {
        /// The error of the logging library.
        source: tracing::subscriber::SetGlobalDefaultError,
    },
}

/// Starts logging. Fails if it was already started in this process. `filter` is a level or
/// directives.
pub fn start(format: LogFormat, filter: &str) -> Result<(), LogError> {
    let subscriber = subscriber(format, filter, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|source| LogError::Twice { source })
}

/// Returns a subscriber that writes lines of this workspace that match `filter` to `writer`.
fn subscriber<W>(
    format: LogFormat,
    filter: &str,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let directives = EnvFilter::try_new(filter).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let filter = directives.and(filter_fn(is_own));
    Ok(match format {
        LogFormat::Json => {
            let lines = lines().json().flatten_event(true).with_writer(writer);
            Box::new(Registry::default().with(lines.with_filter(filter)))
        }
        LogFormat::Text => {
            let lines = lines().with_ansi(false).with_writer(writer);
            Box::new(Registry::default().with(lines.with_filter(filter)))
        }
    })
}

fn lines<S>() -> tracing_subscriber::fmt::Layer<S>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    tracing_subscriber::fmt::layer()
}

/// Returns true if an event or span belongs to this workspace. The directives of the log filter do
/// not change this result.
fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::{Arc, Mutex};

    /// A writer that stores all written bytes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rejects_invalid_filter_and_names_it() {
        let error = start(LogFormat::Text, "bundle_webhook=loud").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid --log-level bundle_webhook=loud: use a level or directives"
        );
    }

    #[test]
    fn log_lines_of_dependencies_are_dropped_for_all_directives() {
        for filter in [
            "info",
            "trace",
            "trace,kube_client=trace,kube_client::client=trace",
            "[HTTP]=trace,kube_client::client=trace,hyper=trace,log=trace",
            "[{http.url}]=trace",
        ] {
            for format in [LogFormat::Json, LogFormat::Text] {
                let lines = Lines::default();
                let writer = lines.clone();
                let subscriber = subscriber(format, filter, move || writer.clone()).unwrap();
                tracing::subscriber::with_default(subscriber, || {
                    let span = tracing::debug_span!(
                        target: "kube_client::client::builder",
                        "HTTP",
                        http.url = "https://server/hidden"
                    );
                    let _entered = span.enter();
                    tracing::warn!(target: "kube_client::client", "hidden");
                    tracing::error!(target: "hyper::proto", body = "hidden");
                    tracing::error!(target: "bundle_webhook::certs", "seen");
                });
                let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
                assert!(!text.contains("hidden"), "{filter}: {text}");
                // A directive for a span enables only events inside of this span. The span of this
                // test belongs to a dependency, so it is not enabled.
                let expected = usize::from(!filter.starts_with('['));
                assert_eq!(text.matches("seen").count(), expected, "{filter}: {text}");
            }
        }
    }

    #[test]
    fn lines_of_a_review_carry_object_requester_and_code() {
        for format in [LogFormat::Json, LogFormat::Text] {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = subscriber(format, "info", move || writer.clone()).unwrap();
            tracing::subscriber::with_default(subscriber, || {
                let span = crate::telemetry::spans::review("Bundle", "CREATE", "web", "7-8", "ana");
                let _entered = span.enter();
                crate::telemetry::spans::code("BUNDLE-X-001");
                crate::telemetry::spans::outcome("refused");
                tracing::info!("no");
            });
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            for expected in [
                "Bundle",
                "CREATE",
                "web",
                "7-8",
                "ana",
                "BUNDLE-X-001",
                "refused",
            ] {
                assert!(text.contains(expected), "{expected}: {text}");
            }
        }
    }
}
