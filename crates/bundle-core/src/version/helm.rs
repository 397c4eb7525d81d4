//! Parser for the version constraints of Helm in `kubeVersion` of `Chart.yaml`
//! (`github.com/Masterminds/semver/v3`), converted to a [`Range`].
//!
//! Helm has more operators (`=>`, `=<`, `~>`) and compares prerelease suffixes. This project
//! compares only major, minor and patch, so a constraint with a suffix becomes the nearest range of
//! releases: `>=1.31.0-rc.1` admits 1.31.0, `<1.31.0-rc.1` does not.

use super::Range;
use crate::diagnostic::Finding;

/// Converts a constraint of Helm to a range. The text of the range has this project's syntax.
pub fn range(constraint: &str) -> Result<Range, Finding> {
    let alternatives: Vec<String> = constraint.split("||").map(conjunction).collect();
    Range::parse(&alternatives.join(" || "))
}

/// Comparisons that must all match. Unknown parts stay unchanged, so that [`Range::parse`] reports
/// them.
fn conjunction(text: &str) -> String {
    let mut comparisons = Vec::new();
    let mut operator = String::new();
    for word in text.split([' ', '\t', '\n', '\r', ',']) {
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
    // A prerelease comes before its release; build metadata does not count.
    let operator = match operator {
        ">" if version.contains('-') => ">=",
        "<=" if version.contains('-') => "<",
        other => other,
    };
    format!("{operator}{release}")
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
