//! `cargo xtask gen`: writes generated files, or checks that they are up to date: CRDs and the API
//! reference from bundle-api, diagnostics and the schema of bundle.yaml from bundle-core, and the
//! command reference from the plugin.

mod api_reference;
mod chart;
mod command_reference;
mod examples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bundle_core::diagnostic::{Code, Outcome, all_codes};
use bundle_core::plan::health::differences::{ComparableHealth, DIFFERENCES, Difference};
use bundle_core::plan::health::kinds::{KINDS, KindRule};
use clap::Args;

use examples::Examples;

/// Write or check generated files.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if a file is outdated.
    #[arg(long)]
    pub(crate) check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask is in the repository")?;
    let mut stale = write(root, &files(root)?, arguments.check)?;
    // The chart is rendered after its generated templates were written.
    let plain = chart::plain_manifests(root)?;
    stale.extend(write(root, &plain, arguments.check)?);
    let unknown = chart::unknown_manifests(root, &plain)?;
    if !unknown.is_empty() {
        bail!(
            "charts/bundle-webhook does not render {}\nhint: delete it, or add a template to the chart",
            unknown.join(", ")
        );
    }
    if let Some(why) = crate::apis::stale()? {
        bail!(why);
    }
    if let Some(why) = crate::schemas::stale()? {
        bail!(why);
    }
    if !stale.is_empty() {
        bail!(
            "generated files are outdated: {}\nhint: run `cargo xtask gen` and commit the result",
            stale.join(", ")
        );
    }
    Ok(())
}

/// Writes `files`, or only compares them with the existing files. Returns the paths that differ and
/// were not written.
fn write(root: &Path, files: &BTreeMap<PathBuf, String>, check: bool) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (path, text) in files {
        let full = root.join(path);
        if std::fs::read_to_string(&full).is_ok_and(|found| found == *text) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
            continue;
        }
        if let Some(folder) = full.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(&full, text).with_context(|| format!("cannot write {}", full.display()))?;
        println!("{}", path.display());
    }
    Ok(stale)
}

/// Returns the text of each generated file, by its path from the repository's root.
fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let crds = bundle_api::crds::all()?;
    files.insert("docs/reference/api.md".into(), api_reference::page(&crds)?);
    for crd in crds {
        let plural = crd["spec"]["names"]["plural"]
            .as_str()
            .context("a CRD without a plural")?;
        let text = format!(
            "# Written by `cargo xtask gen` from crates/bundle-api.\n{}",
            bundle_core::yaml::to_string(&crd)
        );
        files.insert(
            format!("crds/{}_{plural}.yaml", bundle_api::names::GROUP).into(),
            text.clone(),
        );
        let (template, text) = chart::crd_template(plural, &text)?;
        files.insert(template, text);
    }
    let examples = Examples::read(root)?;
    examples.check(all_codes().map(|code| code.id))?;
    files.insert(
        "docs/reference/diagnostics.md".into(),
        diagnostics(&examples),
    );
    files.insert("docs/reference/health.md".into(), health());
    files.insert(
        "docs/reference/commands.md".into(),
        command_reference::page(&e2e::programs::build()?.plugin)?,
    );
    files.insert(
        "docs/reference/bundle.schema.json".into(),
        serde_json::to_string_pretty(&bundle_core::package::schema())? + "\n",
    );
    Ok(files)
}

fn health() -> String {
    let mut text = String::from(
        "<!-- Written by `cargo xtask gen` from crates/bundle-core/src/plan/health/kinds.rs. -->\n\
         # Health of installed objects\n\n\
         The condition `Healthy` of a BundleDeployment is `True` when every installed object is ready. The rules are those of\n\
         [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus), which Flux and kpt use too.\n\n\
         These rules apply first:\n\n\
         | Object | Health |\n|---|---|\n\
         | it is being deleted | not ready |\n\
         | `status.observedGeneration` differs from `metadata.generation` | not ready |\n\
         | condition `Reconciling` is `True` | not ready |\n\
         | condition `Stalled` is `True` | failed |\n\
         | a custom resource with condition `Ready` | ready if the condition is `True` |\n\
         | a custom resource without condition `Ready` | ready |\n\
         | a kind of Kubernetes that is not in the next table | ready as soon as it exists |\n\n\
         [Probes](file-formats.md#probes) of a package replace the rules about conditions for custom resources that they select. Other kinds must meet\n\
         their rule and the probes.\n\n\
         Custom resources are all kinds that kube-apiserver does not serve, also those in groups such as `gateway.networking.k8s.io`.\n\n\
         ## Kinds of Kubernetes\n\n\
         | Kind | Ready | Failed |\n|---|---|---|\n",
    );
    let name = |entry: &KindRule| match entry.group {
        "" => format!("`{}`", entry.kind),
        group => format!("`{}.{group}`", entry.kind),
    };
    for entry in KINDS {
        let failed = if entry.failed.is_empty() {
            "never"
        } else {
            entry.failed
        };
        let _ = writeln!(text, "| {} | {} | {failed} |", name(entry), entry.ready);
    }
    text.push_str(
        "\n## Differences from other tools\n\n\
         kstatus and Argo CD report the same health as this project, except for the objects in this table. The scenarios `suites::health` run\n\
         the code of kstatus and Argo CD, on the objects of their own tests and on all combinations of the status fields that rules read. These\n\
         scenarios fail for a difference that is not in the table, and for a row that no longer applies.\n\n\
         *Waiting* is `InProgress` or `Terminating` in kstatus and `Progressing` in Argo CD. *Failed* is `Failed` and `Degraded`. A kind without a\n\
         health check in Argo CD counts as ready.\n\n\
         | Tool | Kind | State | This project | The tool | Reason |\n|---|---|---|---|---|---|\n",
    );
    let list = |verdicts: &[ComparableHealth]| {
        let names: Vec<_> = verdicts.iter().map(ComparableHealth::to_string).collect();
        names.join(" or ")
    };
    for row in DIFFERENCES {
        let Difference {
            tool,
            kinds,
            state,
            reason,
            ..
        } = row;
        let (here, there) = (list(row.here), list(row.there));
        let _ = writeln!(
            text,
            "| {tool} | {kinds} | {state} | {here} | {there} | {reason} |"
        );
    }
    text
}

/// First words of the help of each code that is only used for warnings.
const WARNING_HELP: &str = "This is a warning";

/// Returns the sentence about the exit code of a command that reports `code`.
fn exit_sentence(code: &Code) -> String {
    if code.help.starts_with(WARNING_HELP) {
        return "A warning does not change the exit code.".to_owned();
    }
    let exit = match code.outcome {
        Outcome::Failed => 1,
        Outcome::Usage => 2,
        Outcome::Refused => 3,
        Outcome::Unknown => 4,
    };
    format!("Exit {exit}.")
}

fn diagnostics(examples: &Examples) -> String {
    let mut text = String::from(
        "<!-- Written by `cargo xtask gen` from crates/bundle-core/src/diagnostic/catalog. -->\n\
         # Diagnostics\n\n\
         Find the code of a message here, with its reason and the next step. The output of `kubectl bundle`, admission responses, conditions, Events and\n\
         metrics use the same codes. The meaning of a code never changes.\n\n\
         *Exit* is the exit code of `kubectl bundle`: 1 failed, 2 usage error, 3 rejected by a rule, 4 unknown, because a dependency did not respond;\n\
         retry later. A warning does not change the exit code. Tests compare the examples with real messages. Placeholders such as\n\
         `[REGISTRY]` replace values that differ between runs.\n",
    );
    let mut area = "";
    for code in all_codes() {
        let this = code.id.split('-').nth(1).unwrap_or_default();
        if this != area {
            area = this;
            let _ = write!(text, "\n## {area}\n");
        }
        let _ = write!(
            text,
            "\n### {}: {}\n\n{}\n\n{}\n",
            code.id,
            code.title,
            code.help,
            exit_sentence(code)
        );
        if let Some(example) = examples.get(code.id) {
            let _ = write!(text, "\n```text\n{example}\n```\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::codes;

    use super::*;

    #[test]
    fn only_codes_of_errors_have_an_exit_code() {
        for (code, expected) in [
            (codes::check::BAD_CRD, "Exit 3."),
            (
                codes::check::STATUS,
                "A warning does not change the exit code.",
            ),
        ] {
            assert_eq!(exit_sentence(&code), expected, "{code}");
        }
    }

    #[test]
    fn help_of_a_code_for_warnings_begins_with_that_fact() {
        for code in all_codes() {
            let help = code.help;
            let is_at_beginning = help.starts_with(WARNING_HELP) || !help.contains("is a warning");
            assert!(is_at_beginning, "{code}: {help}");
        }
    }
}
