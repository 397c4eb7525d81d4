//! `kubeVersion` of charts, as Helm and its library `semver` read it: constraints of the library's
//! own tests, and each operator with each form of a version.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::version::{Range, ServerVersion, helm};
use e2e::Tool;
use e2e::tools::published;
use serde_json::json;

use super::verdicts;

/// Module and file with the tests of the library.
const LIBRARY: (&str, &str) = ("github.com/Masterminds/semver/v3", "constraints_test.go");
const DOCS: &str = include_str!("../../../../../docs/reference/file-formats.md");

/// Versions of API servers. Kubernetes has only major version 1. The tests of the library also use
/// other major versions.
const VERSIONS: [&str; 19] = [
    "v0.0.0",
    "v0.0.3",
    "v0.2.3",
    "v0.3.0",
    "v1.0.0",
    "v1.30.9",
    "v1.31.0",
    "v1.31.2",
    "v1.31.3",
    "v1.32.0",
    "v1.36.3",
    "v2.0.0",
    "v2.1.3",
    "v4.1.0",
    "v11.1.0",
    "v1.31.2+k3s1",
    "v1.31.2-eks-1552ad0",
    "v1.31.0-rc.1",
    "v1.32.0-alpha.2",
];

/// Result for one constraint and one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Admitted,
    Excluded,
    /// The constraint is invalid.
    Invalid,
}

/// Documented difference: for some pairs of constraint and version, this project and Helm have
/// different results.
struct Exception {
    /// Quotation from `docs/reference/file-formats.md`.
    documented: &'static str,
    here: &'static [Verdict],
    there: &'static [Verdict],
    applies: fn(constraint: &str, version: &str) -> bool,
}

use Verdict::{Admitted, Excluded, Invalid};

const EXCEPTIONS: [Exception; 7] = [
    Exception {
        documented: "A vendor suffix or prerelease of the server's version is ignored",
        here: &[Admitted, Excluded, Invalid],
        there: &[Admitted, Excluded],
        applies: |constraint, version| {
            version.contains('-') && (helm::range(constraint).is_ok() || is_empty(constraint))
        },
    },
    Exception {
        documented: "A range that no version can meet is invalid",
        here: &[Invalid],
        there: &[Excluded],
        applies: |constraint, _| is_empty(constraint),
    },
    Exception {
        documented: "`*` after `!=`, `^`, `>`, `<` and `<=` means any version",
        here: &[Admitted, Excluded, Invalid],
        there: &[Admitted, Excluded],
        applies: |constraint, _| {
            let text = constraint.replace(' ', "");
            ["!=", "^", ">", "<", "<=", "=<"].iter().any(|operator| {
                ["*", "x", "X"]
                    .iter()
                    .any(|any| text.starts_with(&format!("{operator}{any}")))
            })
        },
    },
    Exception {
        documented: "`~0.0.0` and `~0.0` admit patches of 0.0 only",
        here: &[Excluded, Invalid],
        there: &[Admitted],
        applies: |constraint, _| {
            let text = constraint.replace(' ', "");
            text.contains("~0.0") || text.contains("~>0.0")
        },
    },
    Exception {
        documented: "A number after a wildcard (`1.x.3`) is invalid",
        here: &[Invalid],
        there: &[Admitted, Excluded],
        applies: |constraint, _| {
            let after = constraint.split_once(['x', 'X', '*']).unwrap_or_default().1;
            after.starts_with('.') && after.contains(|c: char| c.is_ascii_digit())
        },
    },
    Exception {
        documented: "`==` means `=`. A space in a comparison operator is ignored, and so is a comma without a range before or after it",
        here: &[Admitted, Excluded],
        there: &[Invalid],
        applies: |constraint, _| {
            let text = constraint.replace(' ', "");
            let ends = ["=", "<", ">", "~", "^"].map(|end| format!("{end},"));
            constraint.contains("==")
                || constraint.contains("= <")
                || text.ends_with(',')
                || text.starts_with(',')
                || ends.iter().any(|end| text.contains(end))
        },
    },
    Exception {
        documented: "A range has at most 256 characters",
        here: &[Invalid],
        there: &[Admitted, Excluded],
        applies: |constraint, _| constraint.len() > 256,
    },
];

/// Returns `true` if the constraint is valid and no release is in its range.
fn is_empty(constraint: &str) -> bool {
    helm::range(constraint).is_err_and(|error| error.message.contains("no version matches it"))
}

/// Returns the constraints in the tables of the library's tests, which are rows of Go: `{"=2.0.0",
/// "1.2.3", false},`.
async fn constraints_of_library() -> BTreeSet<String> {
    let folder = published::module(Tool::HelmVersions, LIBRARY.0)
        .await
        .unwrap();
    let source = fs_err::read_to_string(folder.join(LIBRARY.1)).unwrap();
    let rows = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{\""));
    let constraints: BTreeSet<String> = rows
        .filter_map(|row| row.split_once('"'))
        .map(|(constraint, _)| constraint.to_owned())
        .collect();
    assert!(constraints.len() > 150, "{}", constraints.len());
    constraints
}

/// Returns each operator with each form of a version, alone, in pairs and as alternatives.
fn matrix() -> Vec<String> {
    let operators = [
        "", "=", "!=", ">", ">=", "=>", "<", "<=", "=<", "~", "~>", "^", "==",
    ];
    let forms = [
        "0",
        "0.0",
        "0.0.0",
        "0.0.3",
        "0.2",
        "0.2.3",
        "1",
        "1.x",
        "1.x.3",
        "1.31",
        "v1.31",
        "1.31.x",
        "1.31.*",
        "1.31.2",
        "v1.31.2",
        "*",
        "1.31-0",
        "1.31-rc.1",
        "1.31.0-0",
        "1.31.2-0",
        "1.31.2-rc.1",
        "1.31.2+k3s1",
        "V1.31",
        "1.2.3.4",
        "latest",
        "",
    ];
    let mut all = Vec::new();
    for operator in operators {
        for form in forms {
            all.push(format!("{operator}{form}"));
            all.push(format!(" {operator} {form} "));
            for second in ["<1.32", "!=1.31.2", ">=1.31.0-0", "1.36.x"] {
                all.push(format!("{operator}{form} {second}"));
                all.push(format!("{operator}{form}, {second}"));
                all.push(format!("{operator}{form} || {second}"));
            }
        }
    }
    for low in forms {
        for high in ["1.31", "1.31.2", "1.31.x", "2", "1.32.0-0", "1.31.2-rc.1"] {
            all.push(format!("{low} - {high}"));
            all.push(format!("{low} - {high} || 2.1"));
            all.push(format!("{low} - {high} !=1.31.0"));
            all.push(format!("{low} - {high}, <1.31.3-0"));
        }
    }
    all.extend(
        [
            ">=1.31<1.32",
            ">=1.31,",
            ",>=1.31",
            ">= 1.30 , < 1.32",
            "1.31||1.32",
            ">=1.31 <1.30",
        ]
        .map(str::to_owned),
    );
    all.push(vec!["1.31"; 60].join(" "));
    all
}

fn verdict_here(range: Option<&Range>, version: &str) -> Verdict {
    let numbers = ServerVersion::parse(version).unwrap().numbers();
    match range {
        None => Invalid,
        Some(range) if range.contains(numbers) => Admitted,
        Some(_) => Excluded,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_charts_differ_from_helm_only_where_documented() {
    let mut constraints = constraints_of_library().await;
    constraints.extend(matrix());
    let question = json!({"constraints": constraints, "versions": VERSIONS});
    let answers = verdicts(Tool::HelmVersions, question.to_string()).await;
    assert_eq!(answers.len(), constraints.len());

    let mut used = BTreeSet::new();
    let mut undocumented = BTreeMap::new();
    for (constraint, answer) in constraints.iter().zip(&answers) {
        let range = helm::range(constraint).ok();
        for (index, version) in VERSIONS.into_iter().enumerate() {
            let here = verdict_here(range.as_ref(), version);
            let there = match answer["admitted"][index].as_bool() {
                None => Invalid,
                Some(true) => Admitted,
                Some(false) => Excluded,
            };
            let matches = |exception: &&Exception| {
                exception.here.contains(&here)
                    && exception.there.contains(&there)
                    && (exception.applies)(constraint, version)
            };
            if here == there {
                continue;
            }
            match EXCEPTIONS.iter().find(matches) {
                Some(exception) => {
                    used.insert(exception.documented);
                }
                None => {
                    undocumented.insert(constraint, (version, here, there));
                }
            }
        }
    }
    let lines: Vec<String> = undocumented
        .iter()
        .map(|difference| format!("{difference:?}"))
        .collect();
    assert!(
        lines.is_empty(),
        "constraint, version, here, in Helm:\n{}",
        lines.join("\n")
    );
    for exception in &EXCEPTIONS {
        assert!(
            used.contains(exception.documented),
            "no longer differs: {}",
            exception.documented
        );
        assert!(
            DOCS.contains(exception.documented),
            "not in docs/reference/file-formats.md: {}",
            exception.documented
        );
    }
}
