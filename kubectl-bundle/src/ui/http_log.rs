//! With `-v=6` and above, prints each HTTP request with status and duration on stderr, like
//! kubectl. With `-v=7`, prints headers too. Credentials are never printed.

use std::fmt::{Debug, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lowest verbosity at which requests are printed. From [`HEADERS`] on, headers are printed too.
const REQUESTS: u8 = 6;
const HEADERS: u8 = 7;

/// Enables the printing of requests if `verbosity` is at least [`REQUESTS`].
pub(crate) fn install(verbosity: u8) {
    if verbosity >= REQUESTS {
        let level = if verbosity >= HEADERS {
            Level::TRACE
        } else {
            Level::DEBUG
        };
        // The call fails only if a subscriber exists already, and no other code sets a subscriber.
        let _ = tracing::subscriber::set_global_default(HttpLog { level });
    }
}

/// Subscriber of `tracing` that prints the events of this project's crates. Events of dependencies
/// may contain bodies and credentials, so they are not printed.
struct HttpLog {
    level: Level,
}

impl Subscriber for HttpLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        // tracing also calls this function to check if a level is enabled. In these calls, the
        // metadata is neither a span nor an event.
        !metadata.is_span()
            && *metadata.level() <= self.level
            && (target.starts_with("bundle_oci::") || target.starts_with("kubectl_bundle::"))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // Errors of stderr cannot be reported.
        let _ = std::io::stderr().write_all(fields.line().as_bytes());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Fields of a request or a header.
#[derive(Debug, Default)]
struct Fields {
    method: String,
    url: String,
    status: String,
    error: String,
    milliseconds: String,
    header: String,
    value: String,
}

impl Fields {
    fn line(&self) -> String {
        if !self.header.is_empty() {
            return format!("    {}: {}\n", self.header, self.value);
        }
        let mut line = format!("{} {} ", self.method, self.url);
        // Writing to a String cannot fail.
        let _ = if self.error.is_empty() {
            write!(line, "{}", self.status)
        } else {
            write!(line, "failed: {}", self.error)
        };
        let _ = writeln!(line, " in {} milliseconds", self.milliseconds);
        line
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let place = match field.name() {
            "method" => &mut self.method,
            "url" => &mut self.url,
            "status" => &mut self.status,
            "error" => &mut self.error,
            "milliseconds" => &mut self.milliseconds,
            "header" => &mut self.header,
            "value" => &mut self.value,
            _ => return,
        };
        let text = format!("{value:?}");
        *place = crate::ui::escape::safe(text.trim_matches('"'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_one_line_per_request_failure_and_header() {
        let request = Fields {
            method: "GET".into(),
            url: "https://server/api".into(),
            status: "200 OK".into(),
            milliseconds: "5".into(),
            ..Fields::default()
        };
        assert_eq!(
            request.line(),
            "GET https://server/api 200 OK in 5 milliseconds\n"
        );
        let failed = Fields {
            error: "refused".into(),
            ..request
        };
        assert_eq!(
            failed.line(),
            "GET https://server/api failed: refused in 5 milliseconds\n"
        );
        let header = Fields {
            header: "accept".into(),
            value: "application/json".into(),
            ..Fields::default()
        };
        assert_eq!(header.line(), "    accept: application/json\n");
    }
}
