//! Checks the page with RukPak's scenarios. Each scenario has one row, with a test or with the
//! reason for a missing test. `docs` checks that the tests exist.

use std::path::Path;

use anyhow::Result;

use super::docs::test;

/// The page, with rows `| E1 | expected | tests | difference |`.
const PAGE: &str = "docs/reference/rukpak-scenarios.md";
/// Number of RukPak's scenarios.
const SCENARIOS: usize = 71;
/// Cell without a value.
const NONE: &str = "none";

/// Returns the faults of the page.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs_err::read_to_string(root.join(PAGE))?;
    let faults = faults(&text, SCENARIOS).into_iter();
    Ok(faults.map(|fault| format!("{PAGE}: {fault}")).collect())
}

fn faults(text: &str, scenarios: usize) -> Vec<String> {
    let rows: Vec<Vec<&str>> = text.lines().filter_map(row).collect();
    let mut faults = Vec::new();
    for number in 1..=scenarios {
        let name = format!("E{number}");
        let own: Vec<_> = rows.iter().filter(|row| row[0] == name).collect();
        let [row] = own[..] else {
            faults.push(format!("{name} has {} rows, not one", own.len()));
            continue;
        };
        let [_, expected, tests, difference] = row[..] else {
            faults.push(format!("{name} has {} cells, not four", row.len()));
            continue;
        };
        if expected.is_empty() {
            faults.push(format!("{name} has no expectation"));
        }
        let mut quoted = tests.split('`').skip(1).step_by(2);
        let has_test = quoted.any(|name| test(name).is_some());
        if !has_test && (tests != NONE || matches!(difference, "" | NONE)) {
            faults.push(format!("{name} names neither a test nor a reason"));
        }
    }
    faults
}

/// Returns the cells of a row about a scenario.
fn row(line: &str) -> Option<Vec<&str>> {
    let number = line.strip_prefix("| E")?;
    let cells = line.strip_prefix('|')?.strip_suffix('|')?;
    let is_scenario = number.starts_with(|first: char| first.is_ascii_digit());
    is_scenario.then(|| cells.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_test_or_reason_and_missing_rows_are_reported() {
        let text = "\
| Scenario | RukPak | Test | Difference |
|---|---|---|---|
| E1 | a | `rejects_a_long_name` | none |
| E2 | b | none | no Pod unpacks |
| E3 | c | none | none |
| E4 | d | `short` | |
| E5 | e | none |
| E7 | f | crate, `tests`: `rejects_an_empty_name` | none |
| E7 | f | none | twice |
";
        assert_eq!(
            faults(text, 7),
            [
                "E3 names neither a test nor a reason",
                "E4 names neither a test nor a reason",
                "E5 has 3 cells, not four",
                "E6 has 0 rows, not one",
                "E7 has 2 rows, not one",
            ]
        );
    }
}
