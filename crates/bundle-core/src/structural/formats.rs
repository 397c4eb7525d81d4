//! String formats that the API server validates. The API server ignores all other formats.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use base64::Engine as _;
use regex::Regex;

use crate::base64_go::GO_BASE64;
use crate::object::{is_dns_label, is_dns_subdomain};

/// Formats that are checked by a pattern.
const PATTERNS: &[(&str, &str)] = &[
    ("bsonobjectid", "^[0-9a-fA-F]{24}$"),
    ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    ("ssn", "^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"),
    (
        "mac",
        "^(?:[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}[:-]){4}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}[.]){2}[0-9a-fA-F]{4})$",
    ),
    (
        "uuid",
        "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
    ),
    (
        "uuid3",
        "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
    ),
    (
        "uuid4",
        "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
    ),
    (
        "uuid5",
        "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
    ),
    (
        "hostname",
        "^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(?:[.][a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*[.]?$",
    ),
    ("date", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (
        "datetime",
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]+)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})$",
    ),
    (
        "duration",
        "^(?:0|[-+]?(?:[0-9]+[.]?[0-9]*(?:ns|us|µs|μs|ms|s|m|h))+|[0-9]+ *(?:ns|nano|nanos|nanosecond|nanoseconds|us|µs|micro|micros|microsecond|microseconds|ms|milli|millis|millisecond|milliseconds|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours|d|day|days|w|week|weeks))$",
    ),
    (
        "uri",
        "^(?:/|[a-zA-Z][a-zA-Z0-9+.-]*:)[^\\x00-\\x20\\x7f]*$",
    ),
];

static COMPILED: LazyLock<BTreeMap<&'static str, Regex>> = LazyLock::new(|| {
    PATTERNS
        .iter()
        .filter_map(|(name, pattern)| Some((*name, Regex::new(pattern).ok()?)))
        .collect()
});

/// Returns `true` if `text` has the format; `None` if this function cannot check the format.
pub(super) fn holds(format: &str, text: &str) -> Option<bool> {
    let name = format.replace('-', "");
    Some(match name.as_str() {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_network(text),
        "byte" => GO_BASE64.decode(text).is_ok(),
        "k8sshortname" => is_dns_label(text),
        "k8slongname" => is_dns_subdomain(text),
        "date" | "datetime" => {
            COMPILED.get(name.as_str())?.is_match(text) && is_day(text.get(..10)?)
        }
        "email" | "isbn" | "isbn10" | "isbn13" | "creditcard" | "rgbcolor" => return None,
        name => match COMPILED.get(name) {
            Some(pattern) => pattern.is_match(text),
            // Every text is valid for an unknown format.
            None => true,
        },
    })
}

/// Returns `true` if a text is a Kubernetes quantity: `100m`, `1.5`, `2Gi`, `1e3`.
pub(super) fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|rest| {
        let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    });
    digits > 0
        && number.len() - digits <= 1
        && (exponent
            || matches!(
                suffix,
                "" | "n"
                    | "u"
                    | "m"
                    | "k"
                    | "M"
                    | "G"
                    | "T"
                    | "P"
                    | "E"
                    | "Ki"
                    | "Mi"
                    | "Gi"
                    | "Ti"
                    | "Pi"
                    | "Ei"
            ))
}

/// Returns `true` if `encoding/json` of Go accepts a Base64 text. Line breaks are allowed.
pub(super) fn is_base64(text: &str) -> bool {
    let text: String = text
        .chars()
        .filter(|letter| !matches!(letter, '\r' | '\n'))
        .collect();
    GO_BASE64.decode(text).is_ok()
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let digits = bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| digits) else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

/// Returns `true` for an existing date. For example, `2024-02-30` does not exist.
fn is_day(text: &str) -> bool {
    let mut parts = text.split('-').map(|part| part.parse::<u32>().unwrap_or(0));
    let (Some(year), Some(month), Some(day)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_format_patterns_compile() {
        assert_eq!(COMPILED.len(), PATTERNS.len());
    }

    #[test]
    fn reads_quantities_as_the_server_does() {
        for yes in [
            "1", "-1", "+1.5", "100m", "2Gi", "1k", "1e3", "1E-3", "1E", ".5", "5.", "0",
        ] {
            assert!(is_quantity(yes), "{yes}");
        }
        for no in [
            "", "x", "1K", "1GB", "1.2.3", "1e", "1 Gi", "Gi", ".", "--1", "1gi",
        ] {
            assert!(!is_quantity(no), "{no}");
        }
    }

    #[test]
    fn validates_known_formats() {
        for (format, yes, no) in [
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "fd00::1", "fd00::g"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("byte", "aGk=", "aGk"),
            ("date", "2024-02-29", "2023-02-29"),
            ("date-time", "2024-02-29T10:00:00Z", "2024-02-29 10:00"),
            ("duration", "1h30m", "one hour"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("uri", "https://example.com/a", "example"),
            ("hostname", "a.example.com", "a..b"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("k8s-short-name", "web", "Web"),
        ] {
            assert_eq!(holds(format, yes), Some(true), "{format}");
            assert_eq!(holds(format, no), Some(false), "{format}");
        }
        assert_eq!(holds("email", "x"), None);
        assert_eq!(holds("colour", "x"), Some(true));
    }

    #[test]
    fn accepts_base64_with_unused_bits_as_go_does() {
        for text in ["YQ==", "YR==", "YWI=", "YWJ="] {
            assert!(is_base64(text), "{text}");
            assert_eq!(holds("byte", text), Some(true), "{text}");
        }
        for text in ["YR", "YR=", "YWJ", "?"] {
            assert!(!is_base64(text), "{text}");
            assert_eq!(holds("byte", text), Some(false), "{text}");
        }
    }
}
