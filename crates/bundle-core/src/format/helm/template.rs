//! Search for calls of functions in the text of a template, without executing the template.

use std::ops::Range;

/// Reason why the result of a function does not depend only on the values of the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Impurity {
    /// `lookup` reads objects of a cluster.
    Cluster,
    /// `now` reads the clock.
    Clock,
    /// The result is random or can be random. For example, `tpl` executes a text that is known only
    /// while helm renders the chart.
    Random,
}

/// Functions of helm whose results can differ between two renderings. The results of `keys` and
/// `values` have no order. Date functions read the clock if their argument is not a date.
const RANDOM: [&str; 27] = [
    "ago",
    "bcrypt",
    "date",
    "dateInZone",
    "date_in_zone",
    "durationRound",
    "encryptAES",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htmlDate",
    "htmlDateInZone",
    "htpasswd",
    "keys",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "tpl",
    "uuidv4",
];
/// The function `values`. Its result has no order. Many variables and fields have this name too, so
/// only calls of the function are impure.
const VALUES: &str = "values";

impl Impurity {
    fn of(function: &str) -> Option<Self> {
        match function {
            "lookup" => Some(Self::Cluster),
            "now" => Some(Self::Clock),
            VALUES => Some(Self::Random),
            _ => RANDOM.contains(&function).then_some(Self::Random),
        }
    }
}

/// Returns the positions of the names of impure functions in the actions of a template, in order. A
/// function is impure if its result does not depend only on its arguments.
pub(super) fn calls(text: &[u8]) -> Vec<(Range<usize>, Impurity)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = find(text, at, b"{{") {
        at = action(text, start + 2, &mut found);
    }
    found
}

/// Reads an action from the position `at`, and returns the position after the action.
fn action(text: &[u8], mut at: usize, found: &mut Vec<(Range<usize>, Impurity)>) -> usize {
    let start = at;
    if let [b'-', b' ' | b'\t' | b'\r' | b'\n', ..] = text[at..] {
        at += 2;
    }
    if text[at..].starts_with(b"/*") {
        return find(text, at + 2, b"*/").map_or(text.len(), |end| end + 2);
    }
    while let Some(&byte) = text.get(at) {
        match byte {
            b'}' if text[at..].starts_with(b"}}") => return at + 2,
            b'"' | b'\'' => at = quoted(text, at + 1, byte),
            b'`' => at = find(text, at + 1, b"`").map_or(text.len(), |end| end + 1),
            _ if is_name(byte) => {
                let end = text[at..].iter().position(|byte| !is_name(*byte));
                let end = end.map_or(text.len(), |length| at + length);
                let is_field = at > start && matches!(text[at - 1], b'.' | b'$');
                let name = std::str::from_utf8(&text[at..end]).unwrap_or_default();
                if let Some(impurity) = Impurity::of(name).filter(|_| !is_field) {
                    found.push((at..end, impurity));
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    at
}

/// Returns the position after the quoted text that begins at `at`.
fn quoted(text: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            // A text in quotes ends at the end of its line.
            b'\n' => return at,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns `true` if the byte can be part of a name. Names can contain letters of other alphabets.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn find(text: &[u8], from: usize, part: &[u8]) -> Option<usize> {
    let rest = text.get(from..)?;
    let at = rest.windows(part.len()).position(|window| window == part)?;
    Some(from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&str> {
        let calls = calls(text.as_bytes()).into_iter();
        calls.map(|(place, _)| &text[place]).collect()
    }

    #[test]
    fn finds_calls_in_actions_alone() {
        for (text, expected) in [
            ("{{ lookup \"v1\" \"Secret\" .ns .name }}", vec!["lookup"]),
            (
                "{{- $x := (lookup \"v1\" \"Secret\" \"a\" \"b\").data -}}",
                vec!["lookup"],
            ),
            (
                "{{ now | date \"2006\" }}{{randAlphaNum 5}}",
                vec!["now", "date", "randAlphaNum"],
            ),
            (
                "lookup now {{ .Values.now }} {{ $now }} {{ .lookup.now }}",
                vec![],
            ),
            ("{{/* lookup }} */}}{{- /* now */ -}}", vec![]),
            ("{{ \"lookup \\\" now\" }}{{ `now }}` }}{{ 'n' }}", vec![]),
            ("{{ nowhere }}{{ my_lookup }}{{ lookup2 }}", vec![]),
            ("{{-\t/* a */}}{{-\r/* { */}}{{ now }}", vec!["now"]),
            ("{{/*/ now }}{{ lookup */}}{{ keys }}", vec!["keys"]),
            ("{{ htmlDate 1 }}{{ .date }}{{ $ago }}", vec!["htmlDate"]),
            ("{{ range keys .a }}{{ end }}", vec!["keys"]),
            ("{{ if", vec![]),
            ("{{ \"lookup", vec![]),
            ("{{ \"a\\", vec![]),
            ("{{/* lookup", vec![]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }
}
