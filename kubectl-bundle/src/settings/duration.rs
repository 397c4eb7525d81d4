//! Durations as kubectl and Go write them: `30s`, `5m`, `1h30m`, `250ms`, `0`.
//! Not here: what they limit.

use std::time::Duration;

use super::unusable;
use crate::failure::Outcome;

fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest, |end| &rest[..end]);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = &rest[unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}

/// Reads the value of `flag`; zero is no limit.
pub(super) fn limit(flag: &str, text: &str) -> Outcome<Option<Duration>> {
    match parse(text) {
        Some(Duration::ZERO) => Ok(None),
        Some(duration) => Ok(Some(duration)),
        None => Err(unusable(flag, &format!("`{text}` is not a duration"))
            .hint("write a number and a unit, such as 30s, 5m or 1h30m")
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
