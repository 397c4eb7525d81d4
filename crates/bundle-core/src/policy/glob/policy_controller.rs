//! Patterns from the tests of sigstore policy-controller, each with its result in this project.
//! `docs/reference/patterns.md` has the same table.

use super::{matches, problem};
use Row::{DoesNotMatch, Matches, Refused};

/// Expected result of a pattern in [`ROWS`].
enum Row {
    /// The pattern matches the reference.
    Matches,
    /// The pattern is valid, and does not match the reference.
    DoesNotMatch,
    /// The pattern is rejected, with this suggested pattern. The text is empty if there is no
    /// suggestion.
    Refused(&'static str),
}

const FOO: &str = "docker.io/library/foo";
const MY_APP: &str = "docker.io/myuser/myapp";

const ROWS: &[(&str, &str, Row)] = &[
    (
        FOO,
        "index.docker.io/library/foo:latest",
        Refused("index.docker.io/library/foo"),
    ),
    (
        FOO,
        "index.docker.io/library/foo:*",
        Refused("index.docker.io/library/foo"),
    ),
    (FOO, "index.docker.io/library/*", Matches),
    (
        FOO,
        "index.docker.io/library/*:latest",
        Refused("index.docker.io/library/*"),
    ),
    (FOO, "index.docker.io/*/*", Matches),
    (FOO, "index.docker.io/**", Matches),
    (FOO, "index.docker.**", Matches),
    (FOO, "inde**", Matches),
    (FOO, "**", Matches),
    (FOO, "foo", Refused("docker.io/library/foo")),
    (FOO, "foo*", Refused("docker.io/library/foo*")),
    (FOO, "foo**", DoesNotMatch),
    (
        MY_APP,
        "index.docker.io/myuser/myapp:latest",
        Refused("index.docker.io/myuser/myapp"),
    ),
    (
        MY_APP,
        "index.docker.io/myuser/myapp:*",
        Refused("index.docker.io/myuser/myapp"),
    ),
    (MY_APP, "index.docker.io/myuser/*", Matches),
    (
        MY_APP,
        "index.docker.io/myuser/*:latest",
        Refused("index.docker.io/myuser/*"),
    ),
    (MY_APP, "index.docker.io/*/*", Matches),
    (MY_APP, "index.docker.io/**", Matches),
    (MY_APP, "index.docker.**", Matches),
    (MY_APP, "inde**", Matches),
    (MY_APP, "**", Matches),
    (MY_APP, "myuser/myapp", Refused("docker.io/myuser/myapp")),
    (MY_APP, "myuser/myapp*", Refused("docker.io/myuser/myapp*")),
    (
        MY_APP,
        "myuser/myapp**",
        Refused("docker.io/myuser/myapp**"),
    ),
    ("ghcr.io/foo/bar", "ghcr.io/*/*", Matches),
    ("ghcr.io/foo/bar", "ghcr.io/**", Matches),
    ("ghcr.io/foo", "ghcr.io/*/*", DoesNotMatch),
    ("ghcr.io/foo", "ghcr.io/**", Matches),
    ("ghcr.io/foo", "ghc**", Matches),
    ("ghcr.io/foo", "**", Matches),
    ("ghcr.io/foo", "*/**", Matches),
    ("ghcr.io/foo", "ghcr.io/foo*", Matches),
    ("ghcr.io/foo", "ghcr.io/foo**", Matches),
    ("prefix-ghcr.io/foo", "ghcr.io/foo", DoesNotMatch),
    ("ghcr.io/foo-suffix", "ghcr.io/foo", DoesNotMatch),
    ("ghcrxio.example.com/foo", "ghcr.io/**", DoesNotMatch),
    (FOO, ".+", Refused("")),
    (FOO, "[a-z]*", Refused("")),
    (FOO, "*", Refused("docker.io/library/*")),
    (MY_APP, "*/*", Refused("docker.io/*/*")),
];

#[test]
fn patterns_of_policy_controller_have_documented_results() {
    for (name, pattern, expected) in ROWS {
        let found = problem(pattern);
        match expected {
            Refused("") => assert!(found.is_some_and(|why| !why.contains("meant")), "{pattern}"),
            Refused(offered) => {
                let why = found.unwrap_or_default();
                assert!(
                    why.contains(&format!(" (did you mean `{offered}`?)")),
                    "{pattern}: {why}"
                );
                assert!(matches(offered, name), "{offered}");
            }
            Matches | DoesNotMatch => {
                assert_eq!(found, None, "{pattern}");
                let is_match = matches!(expected, Matches);
                assert_eq!(matches(pattern, name), is_match, "{pattern} on {name}");
            }
        }
    }
}

#[test]
fn every_policy_controller_pattern_is_documented() {
    let page = include_str!("../../../../../docs/reference/patterns.md");
    for (name, pattern, expected) in ROWS {
        let verdict = match expected {
            Matches => "matches".to_owned(),
            DoesNotMatch => "does not match".to_owned(),
            Refused("") => "rejected".to_owned(),
            Refused(offered) => format!("rejected: `{offered}`"),
        };
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{pattern}` | `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {pattern} on {name}"));
        assert!(row.ends_with(&format!("| {verdict} |")), "{row}");
    }
}
