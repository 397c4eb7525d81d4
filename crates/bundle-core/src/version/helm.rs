//! Parser for the version constraints of Helm in `kubeVersion` of `Chart.yaml`
//! (`github.com/Masterminds/semver/v3`), converted to a [`Range`].
//!
//! Helm also has the operators `=>`, `=<` and `~>`, and compares prereleases. This project compares
//! only major, minor and patch. Therefore a constraint with a prerelease is converted to a range
//! without prereleases that contains the same releases: `>=1.31.0-rc.1` contains 1.31.0, and
//! `<1.31.0-rc.1` does not contain 1.31.0.

use super::Range;
use crate::diagnostic::Finding;

/// Converts a constraint of Helm to a range. The text of the range has this project's syntax.
pub fn range(constraint: &str) -> Result<Range, Finding> {
    let alternatives: Vec<String> = constraint.split("||").map(conjunction).collect();
    Range::parse(&alternatives.join(" || "))
}

/// Range that no version satisfies.
const NONE: &str = "<0";
/// Range that every version satisfies.
const ALL: &str = ">=0";

/// Parses comparisons that must all be satisfied. Unknown text is kept, so that [`Range::parse`]
/// reports this text.
fn conjunction(text: &str) -> String {
    let words: Vec<&str> = text
        .split([' ', '\t', '\n', '\r', ','])
        .filter(|word| !word.is_empty())
        .collect();
    // `Range` supports a hyphen range without other comparisons.
    if let [low, "-", high] = words[..]
        && !has_suffix(low)
        && !has_suffix(high)
    {
        return words.join(" ");
    }
    let mut comparisons = Vec::new();
    let mut operator = String::new();
    let mut rest = words.as_slice();
    while let [word, others @ ..] = rest {
        rest = others;
        // Helm replaces `LOW - HIGH` by two comparisons.
        if let (true, ["-", high, others @ ..]) = (operator.is_empty(), others) {
            comparisons.push(comparison(">=", word));
            comparisons.push(comparison("<=", high));
            rest = others;
            continue;
        }
        let split = word
            .find(|c: char| !matches!(c, '<' | '>' | '=' | '!' | '~' | '^'))
            .unwrap_or(word.len());
        let (symbols, version) = word.split_at(split);
        operator.push_str(symbols);
        if !version.is_empty() {
            comparisons.push(comparison(&operator, version));
            operator.clear();
        }
    }
    comparisons.extend(Some(operator).filter(|left| !left.is_empty()));
    comparisons.join(" ")
}

fn has_suffix(version: &str) -> bool {
    version.contains(['-', '+'])
}

fn comparison(operator: &str, version: &str) -> String {
    let operator = match operator {
        "=>" => ">=",
        "=<" => "<=",
        "~>" => "~",
        other => other,
    };
    let Some((release, _)) = version
        .split_once(['-', '+'])
        .filter(|(release, _)| !release.is_empty())
    else {
        return format!("{operator}{version}");
    };
    // Build metadata is ignored.
    if version[release.len()..].starts_with('+') {
        return format!("{operator}{release}");
    }
    // A prerelease precedes its release, and equals no release. Helm ignores the prerelease of a
    // version without a patch number. Only for `!=`, Helm compares such a prerelease if the version
    // has a minor number.
    let numbers = release
        .split('.')
        .take_while(|part| part.trim_start_matches('v').parse::<u64>().is_ok())
        .count();
    match (operator, numbers) {
        (">", 3) => format!(">={release}"),
        ("<=", 3) => format!("<{release}"),
        ("" | "=", 3) => NONE.to_owned(),
        ("!=", 2 | 3) => ALL.to_owned(),
        _ => format!("{operator}{release}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_operator_of_helm() {
        for (constraint, read) in [
            (">=1.29.0-0", ">=1.29.0"),
            (">= 1.29.0-0 < 1.38.0-0", ">=1.29.0 <1.38.0"),
            (">=1.29.0-0,<1.38.0-0", ">=1.29.0 <1.38.0"),
            ("=> 1.30", ">=1.30"),
            ("=<1.30", "<=1.30"),
            ("~> 1.30", "~1.30"),
            ("~1.30.x", "~1.30.x"),
            ("^1.21.0-0", "^1.21.0"),
            (">= 1.31.0-rc.1", ">=1.31.0"),
            ("> 1.31.0-rc.1", ">=1.31.0"),
            ("<= 1.31.0-rc.1", "<1.31.0"),
            ("< 1.31.0-rc.1", "<1.31.0"),
            (">1.31.0+k3s1", ">1.31.0"),
            ("1.29 - 1.31", "1.29 - 1.31"),
            ("1.29.x || >=1.31.0-0", "1.29.x || >=1.31.0"),
            ("!= 1.30.2", "!=1.30.2"),
            ("v1.30", "v1.30"),
            ("*", "*"),
        ] {
            assert_eq!(range(constraint).unwrap().as_str(), read, "{constraint}");
        }
    }

    /// Cases from the documentation and tests of `github.com/Masterminds/semver/v3`.
    #[test]
    fn constraints_with_suffixes_and_hyphens_admit_versions_that_helm_admits() {
        for (constraint, inside, outside) in [
            // Without a patch version, the prerelease does not change the range.
            (">1.31-0", &[[1, 32, 0]][..], &[[1, 31, 5]][..]),
            ("<=1.31-0", &[[1, 31, 5]], &[[1, 32, 0]]),
            // The comparison matches only the prerelease itself, and no release.
            ("1.31.0-rc.1 || 1.32", &[[1, 32, 0]], &[[1, 31, 0]]),
            ("!=1.31.0-rc.1", &[[1, 31, 0]], &[]),
            ("!=1.31-rc.1", &[[1, 31, 4]], &[]),
            ("!=1-rc.1", &[[2, 0, 0]], &[[1, 31, 4]]),
            // Helm replaces a hyphen range by its two comparisons.
            (
                "1.29 - 1.31 !=1.30.2",
                &[[1, 29, 0], [1, 31, 9]],
                &[[1, 30, 2], [1, 32, 0]],
            ),
            (
                "1.29 - 1.31, >1.30",
                &[[1, 31, 0]],
                &[[1, 30, 9], [1, 32, 0]],
            ),
            ("1.29.0-0 - 1.31.0-0", &[[1, 29, 0]], &[[1, 31, 0]]),
        ] {
            let range = range(constraint).unwrap();
            for version in inside {
                assert!(range.contains(*version), "{version:?} in {constraint}");
            }
            for version in outside {
                assert!(!range.contains(*version), "{version:?} not in {constraint}");
            }
        }
        let error = range("1.31.0-rc.1").unwrap_err();
        assert!(error.message.contains("no version matches it"), "{error}");
    }

    #[test]
    fn names_the_invalid_part_of_a_range() {
        for constraint in [
            "",
            ">=",
            "latest",
            ">=one",
            "<<1.30",
            "1.2.3.4",
            ">=1.31 <1.30",
        ] {
            let finding = range(constraint).unwrap_err();
            assert!(finding.hint.is_some(), "{constraint}: {finding}");
        }
    }
}
