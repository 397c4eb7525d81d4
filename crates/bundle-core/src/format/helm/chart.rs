//! `Chart.yaml` and `requirements.yaml`: their fields, the folder of the chart in a bundle, and the
//! package that the chart describes.

use std::collections::BTreeSet;

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    diagnostic::{Finding, Findings, codes},
    files::Files,
    package::{Format, Link, Maintainer, Package, PackageInfo},
    version::{Kubernetes, helm},
    yaml::{self, Allowance},
};

/// File that marks a folder as a chart.
pub const CHART: &str = "Chart.yaml";

/// File that lists the dependencies of a chart whose `apiVersion` is `v1`. helm reads this file for
/// every `apiVersion`, and the list in this file replaces the list in `Chart.yaml`.
pub(super) const REQUIREMENTS: &str = "requirements.yaml";

/// Values of `apiVersion` that helm renders. An absent `apiVersion` means `v1`.
const API_VERSIONS: [&str; 3] = ["", "v1", "v2"];

/// Maximum memory of a parsed `Chart.yaml`, in bytes. This limit is necessary because no memory is
/// reserved for the `Chart.yaml` of dependencies.
pub const CHART_MEMORY: u64 = 4 << 20;

/// Maximum number of dependencies of a chart.
const DEPENDENCIES: usize = 200;

/// Fields of `Chart.yaml`. Unused fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Chart {
    /// `v1` or `v2`; empty if absent.
    pub api_version: String,
    /// Name of the chart.
    pub name: String,
    /// Version of the chart.
    pub version: String,
    /// `application` or `library`. A library chart cannot be installed.
    #[serde(rename = "type")]
    pub kind: String,
    /// Description, in one line.
    pub description: String,
    /// Supported Kubernetes versions, as the chart declares them; empty if it declares none.
    pub kube_version: String,
    /// URL of the home page.
    pub home: String,
    /// URL of the icon.
    pub icon: String,
    /// Keywords for searches.
    pub keywords: Vec<String>,
    /// URLs of the source code.
    pub sources: Vec<String>,
    /// Maintainers of the chart.
    pub maintainers: Vec<Person>,
    /// Dependencies of the chart, from `requirements.yaml` if this file has a list.
    pub dependencies: Vec<Dependency>,
}

/// Fields of `requirements.yaml`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirements {
    dependencies: Option<Vec<Dependency>>,
}

/// Maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Person {
    name: String,
    email: String,
    url: String,
}

/// Chart that another chart depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Dependency {
    name: String,
}

/// Returns the chart in `files` and its folder. The folder is empty for the root, and otherwise
/// ends with `/`. `Chart.yaml` and `requirements.yaml` are parsed within `allowance`.
pub fn read(files: &Files, allowance: &mut Allowance) -> Result<(Chart, String), Findings> {
    let Some(folder) = folder(files) else {
        return Err(
            Finding::error(codes::format::BAD_CHART, "Chart.yaml file is missing")
                .hint("a helm+v3 bundle is a chart: put Chart.yaml next to bundle.yaml")
                .into(),
        );
    };
    let path = format!("{folder}{CHART}");
    let mut chart: Chart = document(files, &path, allowance)?;
    let requirements = format!("{folder}{REQUIREMENTS}");
    let (list, list_path) = match required(files, &requirements, allowance)? {
        Some(dependencies) => {
            chart.dependencies = dependencies;
            (REQUIREMENTS, &requirements)
        }
        None => (CHART, &path),
    };
    let mut findings = Findings::default();
    if !API_VERSIONS.contains(&chart.api_version.as_str()) {
        let version = chart.api_version.escape_debug();
        let message = format!("a chart with apiVersion `{version}` is not supported");
        let finding = bad(&path, message).at_field("apiVersion");
        findings.push(finding.hint("use a chart with apiVersion v2 or v1"));
    }
    if chart.kind == "library" {
        findings.push(
            bad(&path, "a library chart cannot be installed")
                .at_field("type")
                .hint("build the chart that uses it"),
        );
    }
    if chart.dependencies.len() > DEPENDENCIES {
        let message = format!("the chart has more than {DEPENDENCIES} dependencies");
        let finding = bad(list_path, message).at_field("dependencies");
        return Err(finding.hint("split the chart").into());
    }
    let has = |prefix: String| {
        let mut following = files.range(prefix.clone()..);
        following
            .next()
            .is_some_and(|(path, _)| path.starts_with(&prefix))
    };
    for dependency in &chart.dependencies {
        let name = &dependency.name;
        if !has(format!("{folder}charts/{name}/")) && !has(format!("{folder}charts/{name}-")) {
            findings.push(
                bad(
                    list_path,
                    format!("found in {list}, but missing in charts/ directory: {name}"),
                )
                .at_field("dependencies")
                .hint("run `helm dependency build` in the folder of the chart; `kubectl bundle build` does not fetch dependencies"),
            );
        }
    }
    if findings.has_errors() {
        return Err(findings);
    }
    Ok((chart, folder))
}

/// Returns the dependencies in `requirements.yaml`. Returns `None` if the file is missing or has no
/// document, or if its field `dependencies` is absent or null. The caller then requires the
/// dependencies in `Chart.yaml`. For a null field, Helm requires no dependencies. This program is
/// stricter: the chart must contain the dependencies that its `Chart.yaml` lists.
fn required(
    files: &Files,
    path: &str,
    allowance: &mut Allowance,
) -> Result<Option<Vec<Dependency>>, Findings> {
    match document::<Requirements>(files, path, allowance) {
        Ok(requirements) => Ok(requirements.dependencies),
        Err(findings) if findings.errors().all(is_empty_file) => Ok(None),
        Err(findings) => Err(findings),
    }
}

fn is_empty_file(finding: &Finding) -> bool {
    finding.code == codes::format::EMPTY_FILE
}

/// Parses a file with exactly one document. Fields with the value `null` count as absent.
fn document<T: DeserializeOwned>(
    files: &Files,
    path: &str,
    allowance: &mut Allowance,
) -> Result<T, Findings> {
    let text = files.get(path).map_or(&[][..], Vec::as_slice);
    let documents = yaml::small_documents(text, path, CHART_MEMORY, allowance)?;
    let Ok([yaml::Document { mut value, .. }]) = <[yaml::Document; 1]>::try_from(documents) else {
        let finding = bad(path, "the file has more than one document");
        return Err(finding.hint("keep one document").into());
    };
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    T::deserialize(&value).map_err(|error| {
        let finding = bad(path, format!("invalid file: {error}"));
        finding.hint("`helm lint` shows the errors").into()
    })
}

/// Returns the folder of the chart: the root, or the only folder with a `Chart.yaml`, as in an
/// archive of `helm package`. Returns `None` if there is no such folder.
pub fn folder(files: &Files) -> Option<String> {
    if files.contains_key(CHART) {
        return Some(String::new());
    }
    let folders: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    let mut folders = folders.into_iter();
    let only = folders.next().filter(|_| folders.next().is_none())?;
    files
        .contains_key(&format!("{only}/{CHART}"))
        .then(|| format!("{only}/"))
}

impl Chart {
    /// Returns a package description made from the chart's fields.
    pub fn package(&self) -> Result<Package, Finding> {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Package {
            description: filled(&line(&self.description)),
            // If the range is invalid, `unreadable_range` reports a warning about the content.
            kubernetes: helm::range(&self.kube_version)
                .ok()
                .map(|supported| Kubernetes {
                    supported: Some(supported),
                    ..Kubernetes::default()
                }),
            about: PackageInfo {
                maintainers: self
                    .maintainers
                    .iter()
                    .filter(|one| !one.name.trim().is_empty())
                    .map(|one| Maintainer {
                        name: one.name.clone(),
                        email: filled(&one.email),
                        url: filled(&one.url),
                    })
                    .collect(),
                icon: filled(&self.icon).filter(|icon| icon.starts_with("https://")),
                keywords: self.keywords.clone(),
                links: Vec::<Link>::new(),
                source: self.sources.first().cloned(),
                url: filled(&self.home),
                ..PackageInfo::default()
            },
            ..Package::new(&self.name, self.bare_version(), Format::HelmV3)?
        })
    }

    /// Returns the version without the leading `v` that Helm permits.
    fn bare_version(&self) -> &str {
        match self.version.strip_prefix(['v', 'V']) {
            Some(bare) if bare.starts_with(|c: char| c.is_ascii_digit()) => bare,
            _ => &self.version,
        }
    }

    /// Returns a warning if `kubeVersion` is invalid. The supported Kubernetes versions are unknown
    /// in this case.
    pub(super) fn unreadable_range(&self) -> Option<Finding> {
        let text = self.kube_version.trim();
        let error = helm::range(text).err().filter(|_| !text.is_empty())?;
        Some(
            Finding::warning(codes::format::BAD_RANGE, error.message)
                .in_file(CHART)
                .at_field("kubeVersion")
                .hint("state the range in kubernetes.supported of bundle.yaml"),
        )
    }
}

pub(super) fn bad(file: &str, message: impl Into<String>) -> Finding {
    Finding::error(codes::format::BAD_CHART, message).in_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &Files) -> Result<(Chart, String), Findings> {
        super::read(files, &mut Allowance::default())
    }

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn finds_chart_at_the_root_or_in_the_only_folder() {
        let chart = "apiVersion: v2\nname: web\nversion: 1.4.0\nkubeVersion: '>=1.29.0'\nhome: https://example.com\n";
        let (read_one, folder) = read(&files(&[(CHART, chart), ("templates/a.yaml", "")])).unwrap();
        assert_eq!((read_one.name.as_str(), folder.as_str()), ("web", ""));
        let package = read_one.package().unwrap();
        assert_eq!(package.title(), "bundle web 1.4.0");
        assert_eq!(package.about.url.as_deref(), Some("https://example.com"));
        let (_, folder) = read(&files(&[("web/Chart.yaml", chart), ("bundle.yaml", "")])).unwrap();
        assert_eq!(folder, "web/");
        for none in [
            files(&[("a/b.yaml", "")]),
            files(&[("a/Chart.yaml", chart), ("b/x", "")]),
        ] {
            assert_eq!(
                read(&none).unwrap_err().first().unwrap().to_string(),
                "Chart.yaml file is missing"
            );
        }
    }

    #[test]
    fn reads_versions_and_kubernetes_ranges_like_helm() {
        let chart = |version: &str, kubernetes: &str| Chart {
            name: "web".to_owned(),
            version: version.to_owned(),
            kube_version: kubernetes.to_owned(),
            ..Chart::default()
        };
        for (version, read) in [
            ("1.4.0", "1.4.0"),
            ("v1.4.0", "1.4.0"),
            ("v1.4.0-rc.1", "1.4.0-rc.1"),
        ] {
            let package = chart(version, "").package().unwrap();
            assert_eq!(package.version.to_string(), read);
        }
        for version in ["1.4", "v", "vv1.4.0", "latest"] {
            assert!(chart(version, "").package().is_err(), "{version}");
        }
        let supported = |kubernetes: &str| {
            let read = chart("1.0.0", kubernetes);
            assert_eq!(read.unreadable_range(), None, "{kubernetes}");
            read.package().unwrap().kubernetes.unwrap().to_string()
        };
        assert_eq!(supported("~> 1.30"), "~1.30");
        assert_eq!(supported("=> 1.30"), ">=1.30");
        let unreadable = chart("1.0.0", "one");
        assert_eq!(unreadable.package().unwrap().kubernetes, None);
        let warning = unreadable.unreadable_range().unwrap().to_string();
        assert!(
            warning.starts_with("Chart.yaml: kubeVersion: invalid version range `one`"),
            "{warning}"
        );
        assert_eq!(chart("1.0.0", " ").unreadable_range(), None);
    }

    #[test]
    fn rejects_missing_dependencies_and_library_charts() {
        let chart =
            "name: web\nversion: 1.0.0\ntype: library\ndependencies: [{name: redis}, {name: db}]\n";
        let found = read(&files(&[(CHART, chart), ("charts/redis-1.0.0.tgz", "")])).unwrap_err();
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "Chart.yaml: type: a library chart cannot be installed",
                "Chart.yaml: dependencies: found in Chart.yaml, but missing in charts/ directory: db",
            ]
        );
        let chart = format!(
            "name: web\nversion: 1.0.0\ndependencies: [{}]\n",
            "{name: redis},".repeat(DEPENDENCIES + 1)
        );
        let found = read(&files(&[(CHART, &chart), ("charts/redis/Chart.yaml", "")])).unwrap_err();
        let found = found.to_string();
        assert!(found.contains("more than 200 dependencies"), "{found}");
    }

    #[test]
    fn dependencies_in_requirements_replace_those_of_the_chart() {
        let chart = |version: &str| {
            format!(
                "apiVersion: {version}\nname: web\nversion: 1.0.0\ndependencies: [{{name: old}}]\n"
            )
        };
        let requirements = "dependencies:\n- {name: redis, version: 1.x}\n- {name: db}\n";
        for version in ["v1", "v2"] {
            let chart = chart(version);
            let content = |requirements| {
                files(&[
                    (CHART, chart.as_str()),
                    (REQUIREMENTS, requirements),
                    ("charts/redis-1.0.0.tgz", ""),
                ])
            };
            let found = read(&content(requirements)).unwrap_err();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(
                found,
                [
                    "requirements.yaml: dependencies: found in requirements.yaml, but missing in charts/ directory: db"
                ]
            );
            let (read_one, _) = read(&content("dependencies: [{name: redis}]\n")).unwrap();
            assert_eq!(read_one.dependencies.len(), 1);
            for without_list in ["", "# none\n", "dependencies:\n", "repositories: []\n"] {
                let found = read(&content(without_list)).unwrap_err().to_string();
                assert!(found.contains("found in Chart.yaml"), "{found}");
            }
        }
        let read_files = crate::format::ReadFiles::new(None);
        for path in [REQUIREMENTS, "web/requirements.yaml", "web/Chart.yaml"] {
            assert!(read_files.includes(path), "{path}");
        }
    }

    #[test]
    fn rejects_charts_with_an_unknown_api_version() {
        for (version, is_accepted) in [("v1", true), ("v2", true), ("v3", false)] {
            let chart = format!("apiVersion: {version}\nname: web\nversion: 1.0.0\n");
            match read(&files(&[(CHART, &chart)])) {
                Ok(_) => assert!(is_accepted, "{version}"),
                Err(found) => assert_eq!(
                    found.to_string(),
                    "Chart.yaml: apiVersion: a chart with apiVersion `v3` is not supported"
                ),
            }
        }
    }

    #[test]
    fn rejects_files_that_need_much_memory() {
        let text = "x".repeat(50_000);
        let aliases = "*a, ".repeat(100);
        let chart = format!("name: web\nversion: 1.0.0\na: &a {text}\nb: [{aliases}]\n");
        let found = read(&files(&[(CHART, &chart)])).unwrap_err().to_string();
        assert!(found.contains("more than 4 MiB of memory"), "{found}");
    }
}
