//! The Helm chart and the plain manifests: templates of the CRDs from the code, and
//! `webhook/deploy` with the output of the real `helm template` for the chart. All other templates
//! of the chart are written by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::Tool;

const CHART: &str = "charts/bundle-webhook";
const DEPLOY: &str = "webhook/deploy";
/// Folders of templates that are also folders of plain manifests. With default values, templates in
/// other folders render nothing.
const FOLDERS: [&str; 2] = ["manifests", "admission"];
const HEADER: &str = "# Written by `cargo xtask gen` from charts/bundle-webhook.\n";

/// Returns path and text of the chart's template for a CRD. `crd` is the manifest of the CRD in
/// `crds/`.
pub(super) fn crd_template(plural: &str, crd: &str) -> Result<(PathBuf, String)> {
    ensure!(
        !crd.contains("{{"),
        "the CRD of {plural} has `{{{{`, which Helm would read as a template"
    );
    ensure!(
        crd.contains("\nmetadata:\n"),
        "the CRD of {plural} has no block `metadata`"
    );
    let with_policy = crd.replacen(
        "\nmetadata:\n",
        "\nmetadata:\n  {{- include \"bundle.keep\" . }}\n",
        1,
    );
    Ok((
        format!("{CHART}/templates/manifests/crds-{plural}.yaml").into(),
        format!("{{{{- if .Values.crds.install }}}}\n{with_policy}{{{{- end }}}}\n"),
    ))
}

/// Renders the chart that is on disk. Returns path and text of each plain manifest.
pub(super) fn plain_manifests(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    check_versions(root)?;
    let helm = e2e::tools::path(Tool::Helm, None)?;
    let chart = root.join(CHART);
    let output = Command::new(helm)
        .args(["template", "bundle-webhook"])
        .arg(&chart)
        .arg("--values")
        .arg(chart.join("plain-values.yaml"))
        // The release is in another namespace than the system namespace. Otherwise the chart would
        // not render the system namespace.
        .args(["--namespace", "default", "--kube-version", "1.33.0"])
        .args(["--api-versions", "core.rukpak.io/v1alpha1/ProvisionerClass"])
        .output()
        .context("cannot start helm")?;
    if !output.status.success() {
        bail!(
            "`helm template {CHART}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    split(&String::from_utf8(output.stdout).context("helm printed no UTF-8")?)
}

/// Returns the YAML files in `webhook/deploy` that the chart does not render.
pub(super) fn unknown_manifests(
    root: &Path,
    known: &BTreeMap<PathBuf, String>,
) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    for folder in FOLDERS {
        for entry in fs_err::read_dir(root.join(DEPLOY).join(folder))? {
            let path = Path::new(DEPLOY).join(folder).join(entry?.file_name());
            if !known.contains_key(&path) {
                unknown.push(path.display().to_string());
            }
        }
    }
    unknown.sort();
    Ok(unknown)
}

/// Fails if the version of the chart or of the package differs from the version of the workspace.
fn check_versions(root: &Path) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    for (file, key) in [
        (format!("{CHART}/Chart.yaml"), "version"),
        (format!("{CHART}/Chart.yaml"), "appVersion"),
        (format!("{DEPLOY}/bundle.yaml"), "version"),
    ] {
        let line = format!("{key}: {version}");
        let text = fs_err::read_to_string(root.join(&file))?;
        ensure!(
            text.lines().any(|found| found == line),
            "{file} has no line `{line}`: the version of the workspace is {version}"
        );
    }
    Ok(())
}

/// Splits the output of `helm template` into one text for each template.
fn split(rendered: &str) -> Result<BTreeMap<PathBuf, String>> {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for document in rendered.split("---\n# Source: ").skip(1) {
        let (template, text) = document
            .split_once('\n')
            .context("a document without text")?;
        let target = template
            .split_once("/templates/")
            .map(|(_, path)| path)
            .filter(|path| {
                FOLDERS
                    .iter()
                    .any(|folder| path.starts_with(&format!("{folder}/")))
            })
            .with_context(|| {
                format!(
                    "{template} renders objects with default values, and is in none of {FOLDERS:?}"
                )
            })?;
        let file = files
            .entry(Path::new(DEPLOY).join(target))
            .or_insert_with(|| {
                if text.starts_with("# Written by") {
                    String::new()
                } else {
                    HEADER.to_owned()
                }
            });
        if !(file.is_empty() || file == HEADER) {
            file.push_str("---\n");
        }
        file.push_str(&without_list(text.trim_matches('\n')));
    }
    ensure!(!files.is_empty(), "`helm template` rendered nothing");
    Ok(files)
}

/// Returns the only item of a typed list, with the comment before the list. Returns other texts
/// unchanged, with a line break at the end.
fn without_list(text: &str) -> String {
    let is_list = text
        .lines()
        .any(|line| line.starts_with("kind: ") && line.ends_with("List"));
    if !is_list {
        return format!("{text}\n");
    }
    let mut lines = text.lines();
    let mut result = String::new();
    for line in lines.by_ref().take_while(|line| *line != "items:") {
        if line.starts_with('#') {
            result.push_str(line);
            result.push('\n');
        }
    }
    for line in lines {
        result.push_str(line.get(2..).unwrap_or_default());
        result.push('\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_documents_by_template_and_unwraps_lists() {
        let rendered = "---\n# Source: c/templates/manifests/a.yaml\n# A.\nkind: A\n\n\
            ---\n# Source: c/templates/admission/v.yaml\n# V.\napiVersion: x/v1\nkind: VList\nitems:\n- kind: V\n  metadata:\n    name: v\n\
            ---\n# Source: c/templates/manifests/a.yaml\nkind: B\n";
        let files = split(rendered).unwrap();
        let text = |path: &str| files[Path::new(path)].strip_prefix(HEADER).unwrap();
        assert_eq!(
            text("webhook/deploy/manifests/a.yaml"),
            "# A.\nkind: A\n---\nkind: B\n"
        );
        assert_eq!(
            text("webhook/deploy/admission/v.yaml"),
            "# V.\nkind: V\nmetadata:\n  name: v\n"
        );
    }

    #[test]
    fn rejects_objects_of_optional_templates_among_plain_manifests() {
        let error = split("---\n# Source: c/templates/options/m.yaml\nkind: M\n").unwrap_err();
        assert!(error.to_string().contains("options/m.yaml"), "{error}");
    }

    #[test]
    fn crd_with_template_delimiters_is_rejected() {
        assert!(crd_template("webs", "kind: X\nmetadata:\n  name: \"{{ a }}\"\n").is_err());
        let (path, text) = crd_template("webs", "kind: X\nmetadata:\n  name: a\n").unwrap();
        assert!(path.ends_with("crds-webs.yaml"));
        assert_eq!(
            text,
            "{{- if .Values.crds.install }}\nkind: X\nmetadata:\n  {{- include \"bundle.keep\" . }}\n  name: a\n{{- end }}\n"
        );
    }
}
