//! Durations in Go's syntax, as in kubectl: `30s`, `5m`, `1h30m`, `250ms`, `0`.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;

use super::invalid_flag;
use crate::failure::Outcome;

fn parse(text: &str) -> Option<Duration> {
    // kubectl parses a number without a unit as seconds.
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    SpanParser::new().parse_unsigned_duration(text).ok()
}

/// Parses the value of `flag`; zero means no limit.
pub(crate) fn limit(flag: &str, text: &str) -> Outcome<Option<Duration>> {
    match parse(text) {
        Some(Duration::ZERO) => Ok(None),
        Some(duration) => Ok(Some(duration)),
        None => Err(invalid_flag(flag, &format!("`{text}` is not a duration"))
            .hint("write a number with a unit, such as 30s, 5m or 1h30m")
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_durations() {
        for (text, expected) in [
            ("0", Some(0)),
            ("5", Some(5_000)),
            ("250ms", Some(250)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("", None),
            ("5x", None),
            ("s", None),
            ("-1s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
