//! Where log lines go: stderr, as JSON or text, filtered.
//! Not here: what is logged.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::args::LogFormat;

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--log-level {filter} is no level and no directives")]
pub struct LogError {
    filter: String,
    source: ParseError,
}

/// Starts logging, once per process. `filter` is a level or directives.
pub fn start(format: LogFormat, filter: &str) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(filter).map_err(|source| LogError {
        filter: filter.to_owned(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_none_is_named() {
        let error = start(LogFormat::Text, "bundle_webhook=loud").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--log-level bundle_webhook=loud is no level and no directives"
        );
    }
}
