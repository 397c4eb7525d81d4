//! Version ranges as in Helm and Kubernetes tools: `>=1.31 <1.38`, `~1.31 || 1.33.x`, `^1.14`,
//! `1.29 - 1.31`. The ranges of the crate `semver` lack `||` and hyphens.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::server::number;
use crate::diagnostic::{Finding, codes};

/// Maximum length of a range, in bytes. The text can come from an untrusted manifest.
const MAX_TEXT: usize = 256;

/// Suffix of a version in a range that contains prereleases: the lowest prerelease.
const PRERELEASE: &str = "-0";

type Numbers = [u64; 3];

const LOWEST: Numbers = [0; 3];
/// Version above every valid version.
const HIGHEST: Numbers = [u64::MAX; 3];

/// Half-open interval: the first version is included, and the second version is excluded.
type Span = (Numbers, Numbers);

/// Set of versions. Only major, minor and patch are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    text: String,
    /// Sorted and disjoint intervals that are not empty.
    spans: Vec<Span>,
    /// Intervals of the alternatives that contain prereleases.
    prerelease_spans: Vec<Span>,
}

impl Range {
    /// Parses a range. Comparisons separated by spaces or commas must all be satisfied. `||`
    /// separates alternatives.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let bad = |why: String| {
            let text: String = text.chars().take(MAX_TEXT).collect();
            Finding::error(
                codes::format::BAD_RANGE,
                format!("invalid version range `{text}`: {why}"),
            )
            .hint("write a range like `>=1.31 <1.38`, `~1.31`, `1.31.x` or `1.29 - 1.31 || 1.33`")
        };
        if text.len() > MAX_TEXT {
            return Err(bad(format!("it is longer than {MAX_TEXT} characters")));
        }
        let (mut spans, mut prerelease_spans) = (Vec::new(), Vec::new());
        for alternative in text.split("||") {
            let found = conjunction(alternative).map_err(bad)?;
            if words(alternative).any(|word| word.ends_with(PRERELEASE)) {
                prerelease_spans.extend_from_slice(&found);
            }
            spans.extend(found);
        }
        let spans = normalize(spans);
        if spans.is_empty() {
            return Err(bad("no version matches it".to_owned()));
        }
        Ok(Self {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            spans,
            prerelease_spans: normalize(prerelease_spans),
        })
    }

    /// Returns `true` if the range contains prereleases of this version. As in Helm, only
    /// alternatives with a comparison such as `>=1.4.0-0` contain prereleases.
    pub fn contains_prerelease(&self, version: [u64; 3]) -> bool {
        is_in(&self.prerelease_spans, version)
    }

    /// Returns `true` if the version is in the range.
    pub fn contains(&self, version: [u64; 3]) -> bool {
        is_in(&self.spans, version)
    }

    /// Returns the lowest version in `[from, to)` that the range contains; `None` if there is no
    /// such version.
    pub fn first_within(&self, from: [u64; 3], to: [u64; 3]) -> Option<[u64; 3]> {
        self.spans
            .iter()
            .map(|(start, end)| ((*start).max(from), (*end).min(to)))
            .find_map(|(start, end)| (start < end).then_some(start))
    }

    /// Returns `true` if a version of `[from, to)` is in the range.
    pub fn overlaps(&self, from: [u64; 3], to: [u64; 3]) -> bool {
        self.spans.iter().any(|(a, b)| *a < to && from < *b)
    }

    /// Returns `true` if every version of the range is lower than `version`.
    pub fn is_below(&self, version: [u64; 3]) -> bool {
        self.spans.last().is_none_or(|(_, to)| *to <= version)
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn is_in(spans: &[Span], version: Numbers) -> bool {
    spans
        .iter()
        .any(|(from, to)| *from <= version && version < *to)
}

/// Sorts intervals, merges adjacent intervals, and removes empty intervals.
fn normalize(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|(from, to)| from < to);
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    joined
}

fn intersect(left: &[Span], right: &[Span]) -> Vec<Span> {
    let pairs = left
        .iter()
        .flat_map(|(a, b)| right.iter().map(move |(c, d)| (*a.max(c), *b.min(d))));
    normalize(pairs.collect())
}

/// Returns the words of an alternative. Spaces and commas separate words.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t', '\n', '\r', ','])
        .filter(|word| !word.is_empty())
}

/// Parses `>=1.31 <1.38`, `1.29 - 1.31` or `~1.31`.
fn conjunction(text: &str) -> Result<Vec<Span>, String> {
    let words: Vec<&str> = words(text).collect();
    if words.is_empty() {
        return Err("it is empty, or has an empty alternative".to_owned());
    }
    if let [low, "-", high] = words[..] {
        let (from, _) = Partial::parse(low)?.span();
        let (_, to) = Partial::parse(high)?.span();
        return Ok(normalize(vec![(from, to)]));
    }
    let mut spans = vec![(LOWEST, HIGHEST)];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let split = word
            .find(|c: char| !matches!(c, '<' | '>' | '=' | '!' | '~' | '^'))
            .unwrap_or(word.len());
        let (operator, rest) = word.split_at(split);
        // A space between operator and version is allowed, because users often write `>= 1.31`.
        let version = if rest.is_empty() {
            words
                .next()
                .ok_or_else(|| format!("a version is missing after `{operator}`"))?
        } else {
            rest
        };
        spans = intersect(&spans, &comparison(operator, &Partial::parse(version)?)?);
    }
    Ok(spans)
}

fn comparison(operator: &str, version: &Partial) -> Result<Vec<Span>, String> {
    let (from, to) = version.span();
    Ok(match operator {
        "" | "=" | "==" => vec![(from, to)],
        "!=" => vec![(LOWEST, from), (to, HIGHEST)],
        ">" => vec![(to, HIGHEST)],
        ">=" => vec![(from, HIGHEST)],
        "<" => vec![(LOWEST, from)],
        "<=" => vec![(LOWEST, to)],
        "~" => vec![(from, version.next(version.given.min(2)))],
        "^" => vec![(from, version.next(version.caret()))],
        _ => return Err(format!("unknown operator `{operator}`")),
    })
}

/// Partial version: `1`, `1.31`, `1.31.x`, `1.31.4`, `*`.
struct Partial {
    numbers: Numbers,
    /// Number of components that the text contains: 0 to 3.
    given: usize,
}

impl Partial {
    fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        // Charts write `>=1.31.0-0` so that versions with a vendor's suffix match. Comparisons
        // ignore suffixes of versions, so `-0` does not change the interval.
        let bare = bare.strip_suffix(PRERELEASE).unwrap_or(bare);
        let mut partial = Self {
            numbers: LOWEST,
            given: 0,
        };
        let mut open = false;
        for (index, part) in bare.split('.').enumerate() {
            let wild = matches!(part, "x" | "X" | "*");
            match number(part) {
                Some(value) if index < 3 && !open => {
                    partial.numbers[index] = value;
                    partial.given = index + 1;
                }
                None if wild && index < 3 => open = true,
                _ if part.contains(['-', '+'])
                    && part.starts_with(|c: char| c.is_ascii_digit()) =>
                {
                    return Err(format!(
                        "`{text}` has a suffix, but only major, minor and patch are compared"
                    ));
                }
                _ => return Err(format!("`{text}` is not a version")),
            }
        }
        Ok(partial)
    }

    /// Returns the interval of versions that a partial version describes.
    fn span(&self) -> Span {
        (self.numbers, self.next(self.given))
    }

    /// Returns the lowest version above all versions that begin with the first `keep` components of
    /// this version.
    fn next(&self, keep: usize) -> Numbers {
        let mut next = LOWEST;
        for index in (0..keep).rev() {
            if let Some(value) = self.numbers[index].checked_add(1) {
                next[..index].copy_from_slice(&self.numbers[..index]);
                next[index] = value;
                return next;
            }
        }
        HIGHEST
    }

    /// Returns the number of leading components that are equal in all versions of a caret range:
    /// all components up to the first non-zero component.
    fn caret(&self) -> usize {
        (0..self.given)
            .find(|index| self.numbers[*index] != 0)
            .map_or(self.given, |index| index + 1)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Range {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        Self::parse(text)
    }
}

impl Serialize for Range {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Numbers {
        let numbers: Vec<u64> = text.split('.').map(|part| part.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    #[test]
    fn reads_common_forms_of_ranges() {
        for (range, inside, outside) in [
            (
                ">=1.31 <1.38",
                &["1.31.0", "1.37.99"][..],
                &["1.30.9", "1.38.0", "2.31.0"][..],
            ),
            (">=1.31, <1.38", &["1.31.0"], &["1.38.0"]),
            (">= 1.31 < 1.38", &["1.31.0"], &["1.38.0"]),
            (">1.31", &["1.32.0"], &["1.31.9"]),
            (">1.31.2", &["1.31.3"], &["1.31.2"]),
            ("<=1.31", &["1.31.99", "0.0.0"], &["1.32.0"]),
            ("<=1.31.2", &["1.31.2"], &["1.31.3"]),
            ("1.31", &["1.31.0", "1.31.9"], &["1.30.9", "1.32.0"]),
            ("=v1.31.2", &["1.31.2"], &["1.31.3"]),
            ("1.31.x", &["1.31.4"], &["1.32.0"]),
            ("1.x", &["1.99.0"], &["2.0.0"]),
            ("*", &["0.0.0", "9.9.9"], &[]),
            ("~1.31", &["1.31.9"], &["1.32.0"]),
            ("~1.31.4", &["1.31.9"], &["1.31.3", "1.32.0"]),
            ("^1.14", &["1.14.0", "1.99.0"], &["1.13.9", "2.0.0"]),
            ("^0.2.3", &["0.2.9"], &["0.2.2", "0.3.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            ("1.29 - 1.31", &["1.29.0", "1.31.9"], &["1.28.9", "1.32.0"]),
            (
                "~1.31 || 1.33.x || >=1.36",
                &["1.31.1", "1.33.0", "1.40.0"],
                &["1.32.0", "1.35.0"],
            ),
            (">=1.31 !=1.33", &["1.32.9", "1.34.0"], &["1.33.5"]),
            (">=1.31.0-0", &["1.31.0"], &["1.30.9"]),
        ] {
            let parsed = Range::parse(range).unwrap();
            for version in inside {
                assert!(parsed.contains(at(version)), "{version} in {range}");
            }
            for version in outside {
                assert!(!parsed.contains(at(version)), "{version} not in {range}");
            }
        }
    }

    #[test]
    fn prereleases_are_only_in_alternatives_that_name_a_prerelease() {
        for (range, inside, outside) in [
            (">=1.4.0-0", &["1.4.0", "2.0.0"][..], &["1.3.9"][..]),
            (">=1.4.0", &[], &["1.4.0", "1.5.0"]),
            ("*", &[], &["1.4.0"]),
            (">=1.4.0-0 <2", &["1.4.0", "1.9.0"], &["2.0.0"]),
            ("^1.4-0 || >=3", &["1.4.0"], &["2.0.0", "3.0.0"]),
        ] {
            let parsed = Range::parse(range).unwrap();
            for version in inside {
                assert!(parsed.contains_prerelease(at(version)), "{version} {range}");
            }
            for version in outside {
                assert!(
                    !parsed.contains_prerelease(at(version)),
                    "{version} {range}"
                );
            }
        }
    }

    #[test]
    fn reports_invalid_ranges() {
        for (range, said) in [
            ("", "it is empty"),
            ("1.31 ||", "empty alternative"),
            (">=1.38 <1.31", "no version matches it"),
            ("!=*", "no version matches it"),
            (">=", "a version is missing after `>=`"),
            ("=>1.31", "unknown operator `=>`"),
            (">=1.31.0-rc.1", "has a suffix"),
            (">=one", "`one` is not a version"),
            ("1.2.3.4", "is not a version"),
            ("1.x.3", "is not a version"),
            ("1..3", "is not a version"),
            ("latest", "is not a version"),
            ("1.29 -1.31", "is not a version"),
        ] {
            let finding = Range::parse(range).unwrap_err();
            assert!(finding.message.contains(said), "{finding}");
            assert!(finding.hint.is_some());
        }
        let long = "!=1 ".repeat(1_000_000);
        assert!(Range::parse(&long).unwrap_err().message.len() < 400);
    }

    fn version() -> impl Strategy<Value = Numbers> {
        [0..4_u64, 0..6_u64, 0..6_u64]
    }

    fn text([major, minor, patch]: Numbers, given: usize) -> String {
        match given {
            1 => format!("{major}"),
            2 => format!("{major}.{minor}"),
            _ => format!("{major}.{minor}.{patch}"),
        }
    }

    fn range() -> impl Strategy<Value = String> {
        let one = (
            prop::sample::select(vec!["", "=", "!=", ">", ">=", "<", "<=", "~", "^"]),
            version(),
            1..4_usize,
        )
            .prop_map(|(operator, numbers, given)| format!("{operator}{}", text(numbers, given)));
        prop::collection::vec(prop::collection::vec(one, 1..3), 1..3).prop_map(|all| {
            let all: Vec<_> = all.iter().map(|both| both.join(" ")).collect();
            all.join(" || ")
        })
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "[-0-9.<>=!~^|*xv ,+]{0,40}") {
            let _ = Range::parse(&text);
        }

        #[test]
        fn comparison_bounds_are_monotonic(low in version(), a in version(), b in version(), given in 1..4_usize) {
            let least = Range::parse(&format!(">={}", text(low, given))).unwrap();
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(!least.contains(a) || least.contains(b));
            if let Ok(below) = Range::parse(&format!("<{}", text(low, given))) {
                prop_assert!(!below.contains(b) || below.contains(a));
                prop_assert_ne!(below.contains(a), least.contains(a));
            }
        }

        #[test]
        fn alternatives_are_united_and_comparisons_intersected(left in range(), right in range(), at in version()) {
            let holds = |text: &str| Range::parse(text).is_ok_and(|range| range.contains(at));
            if Range::parse(&left).is_ok() && Range::parse(&right).is_ok() {
                prop_assert_eq!(holds(&format!("{left} || {right}")), holds(&left) || holds(&right));
            }
            if !left.contains("||") && !right.contains("||") {
                prop_assert_eq!(holds(&format!("{left} {right}")), holds(&left) && holds(&right));
            }
        }

        #[test]
        fn displayed_range_parses_to_the_same_range(range in range()) {
            if let Ok(range) = Range::parse(&range) {
                prop_assert_eq!(Range::parse(range.as_str()), Ok(range));
            }
        }
    }
}
