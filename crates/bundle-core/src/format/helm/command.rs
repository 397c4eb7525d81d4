//! The command `helm template`. For the same input, the command is the same on each machine.

use super::{chart, served_apis::SelectedApis, values};
use crate::{
    configuration,
    diagnostic::{Finding, Findings, codes},
    files::Files,
    format::renderer::{RenderArgument, RenderCommand, RenderTarget},
    package::Package,
    yaml::Allowance,
};

/// Environment variables that would change the output of helm.
const REMOVED_VARIABLES: [&str; 5] = [
    "HELM_NAMESPACE",
    "HELM_PLUGINS",
    "HELM_DEBUG",
    "HELM_KUBECONTEXT",
    "KUBECONFIG",
];
/// Environment variables that name folders with the user's settings of helm.
const FOLDER_VARIABLES: [&str; 3] = ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"];
/// Address of a proxy that does not exist: no program listens on this port.
const UNUSED_ADDRESS: &str = "http://127.0.0.1:9";
/// Environment variables with which each HTTP request of helm to another host fails. helm needs no
/// network to render a chart.
const NETWORK_VARIABLES: [(&str, &str); 6] = [
    ("HTTP_PROXY", UNUSED_ADDRESS),
    ("HTTPS_PROXY", UNUSED_ADDRESS),
    ("http_proxy", UNUSED_ADDRESS),
    ("https_proxy", UNUSED_ADDRESS),
    ("NO_PROXY", ""),
    ("no_proxy", ""),
];
/// Name of the release if the installation and the package are unknown. helm has the same default.
const UNNAMED: &str = "release-name";
/// Maximum length of the name of a release, in bytes.
const RELEASE_NAME: usize = 53;
/// Namespace of the release if the installation has no namespace.
const NAMESPACE: &str = "default";
/// Flag for an API version or kind that helm adds to `.Capabilities.APIVersions`.
const API_VERSIONS: &str = "--api-versions";

/// Returns the command `helm template`. Values come from the chart, then from the default
/// configuration of the package, and then from the configuration of the installation. A later
/// source overrides an earlier source.
pub(super) fn command(
    files: &Files,
    package: Option<&Package>,
    target: &RenderTarget,
    allowance: &mut Allowance,
) -> Result<RenderCommand, Findings> {
    let (chart, folder) = chart::read(files, allowance)?;
    let name = target.name.as_deref();
    if let Some(name) = name.filter(|name| name.len() > RELEASE_NAME) {
        return Err(too_long(name).into());
    }
    let name = name.or_else(|| package.map(|package| package.name.as_str()));
    let mut arguments: Vec<RenderArgument> = vec![
        "template".into(),
        name.unwrap_or(UNNAMED).into(),
        RenderArgument::ContentPath(folder.clone()),
    ];
    let namespace = target.namespace.as_deref().unwrap_or(NAMESPACE);
    // `--skip-tests` is not set, because helm would then drop each hook whose text contains `test`.
    // The module `hooks` removes the objects of tests later.
    for argument in ["--include-crds", "--namespace", namespace] {
        arguments.push(argument.into());
    }
    // Without this flag, helm renders for its own default version of Kubernetes, and rejects charts
    // that require a newer version.
    if let Some([major, minor, patch]) = target.kubernetes {
        arguments.push("--kube-version".into());
        arguments.push(RenderArgument::Text(format!("{major}.{minor}.{patch}")));
    }
    let required = package.and_then(|package| package.requires.as_ref());
    let required = required.iter().flat_map(|requires| &requires.apis);
    for api in required {
        arguments.push(API_VERSIONS.into());
        arguments.push(api.as_str().into());
    }
    let mut extra_files = Vec::new();
    let config = package.and_then(|package| package.config.as_ref());
    if let Some(default) = config.and_then(|config| config.default.as_ref()) {
        // The file name in the package is not passed to helm, because helm splits a file name at
        // commas into several paths. These paths could be outside of the content.
        let text = files.get(default.as_str());
        if text.is_some_and(|text| text.len() > values::FILE_BYTES) {
            return Err(default_too_large(default).into());
        }
        extra_files.push(("values.yaml", text.cloned().unwrap_or_default()));
    }
    let mut field = configuration::FIELD;
    if let Some(given) = &target.config {
        let given = values::given(given, allowance)?;
        field = given.field;
        if let Some(config) = config {
            let (values, place) = (Some(&given.values), given.field);
            configuration::resolve_at(config, files, values, place, allowance)?;
        }
        extra_files.push(("config.yaml", given.values.to_string().into_bytes()));
    }
    for (name, _) in &extra_files {
        arguments.push("--values".into());
        arguments.push(RenderArgument::ExtraFile(name));
    }
    Ok(RenderCommand {
        program: "helm",
        chart: chart.name,
        folder,
        config_field: field,
        arguments,
        extra_files,
        removed_variables: &REMOVED_VARIABLES,
        folder_variables: &FOLDER_VARIABLES,
        fixed_variables: &NETWORK_VARIABLES,
        hint: "install helm 3 or later from https://helm.sh, or render the chart elsewhere and build the result as plain+v0",
    })
}

/// Adds API versions and kinds of the API server to the arguments of `command`.
pub fn pass_apis(command: &mut RenderCommand, apis: &SelectedApis<'_>) {
    for &api in &apis.passed {
        command.arguments.push(API_VERSIONS.into());
        command.arguments.push(api.into());
    }
}

fn too_long(name: &str) -> Finding {
    let (length, name) = (name.len(), name.escape_debug());
    let message = format!(
        "the name of BundleDeployment `{name}` is used as the name of the Helm release and has \
        {length} characters, more than the limit of {RELEASE_NAME}"
    );
    Finding::error(codes::format::CHART_FAILED, message)
        .hint("create the BundleDeployment with a shorter name")
}

/// Returns the finding about the file at `path`, the default configuration of a package.
fn default_too_large(path: &str) -> Finding {
    let limit = values::FILE_BYTES;
    let message = format!("the default configuration has more than {limit} bytes");
    Finding::error(codes::format::FILE_TOO_LARGE, message)
        .in_file(path)
        .hint("shorten the file")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::package::{Config, Format, Requires};

    fn files(list: &[(&str, &str)]) -> Files {
        let list = list.iter();
        list.map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    fn shown(command: &RenderCommand) -> String {
        let arguments = command.arguments.iter().map(|argument| match argument {
            RenderArgument::Text(text) => text.clone(),
            RenderArgument::ContentPath(path) => format!("content/{path}"),
            RenderArgument::ExtraFile(name) => format!("extra/{name}"),
        });
        arguments.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn command_has_version_apis_and_values_of_package_and_installation() {
        let chart = "name: web\nversion: 1.4.0\n";
        let files = files(&[("web/Chart.yaml", chart), ("prod.yaml", "replicas: 3\n")]);
        let mut package = Package::new("web", "1.4.0", Format::HelmV3).unwrap();
        let command = |package: Option<&Package>, target: &RenderTarget| {
            command(&files, package, target, &mut Allowance::default()).unwrap()
        };
        let plain = command(Some(&package), &RenderTarget::default());
        let flags = "content/web/ --include-crds --namespace";
        assert_eq!(shown(&plain), format!("template web {flags} default"));
        assert_eq!(
            (plain.chart.as_str(), plain.folder.as_str()),
            ("web", "web/")
        );
        let unnamed = command(None, &RenderTarget::default());
        let expected = format!("template release-name {flags} default");
        assert_eq!(shown(&unnamed), expected);
        package.config = Some(Config {
            schema: None,
            default: Some("prod.yaml".to_owned()),
            ..Config::default()
        });
        package.requires = Some(Requires {
            apis: vec!["a.example.com/v1".to_owned()],
            packages: Vec::new(),
        });
        let target = RenderTarget {
            name: Some("shop".to_owned()),
            config: Some(json!({"replicas": 2})),
            kubernetes: Some([1, 33, 4]),
            ..RenderTarget::in_namespace(Some("team-a"))
        };
        let mut all = command(Some(&package), &target);
        let served = SelectedApis {
            passed: vec!["b.example.com/v1"],
            omitted: 0,
        };
        pass_apis(&mut all, &served);
        assert_eq!(
            shown(&all),
            format!(
                "template shop {flags} team-a --kube-version 1.33.4 --api-versions a.example.com/v1 --values extra/values.yaml --values extra/config.yaml --api-versions b.example.com/v1"
            )
        );
        let variable = |name: &str| {
            let mut variables = all.fixed_variables.iter();
            variables.find(|(key, _)| *key == name).unwrap().1
        };
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            assert_eq!(variable(name), "http://127.0.0.1:9", "{name}");
        }
        assert_eq!([variable("NO_PROXY"), variable("no_proxy")], [""; 2]);
        let values = |at: usize| String::from_utf8(all.extra_files[at].1.clone()).unwrap();
        assert_eq!(
            (values(0).as_str(), values(1).as_str()),
            ("replicas: 3\n", r#"{"replicas":2}"#)
        );
    }

    #[test]
    fn long_name_of_an_installation_is_rejected() {
        let files = files(&[(chart::CHART, "name: web\nversion: 1.4.0\n")]);
        let failed = |length: usize| {
            let target = RenderTarget {
                name: Some("a".repeat(length)),
                ..RenderTarget::default()
            };
            let found = command(&files, None, &target, &mut Allowance::default());
            found.err().map(|findings| findings.to_string())
        };
        assert_eq!(failed(RELEASE_NAME), None);
        let found = failed(RELEASE_NAME + 1).unwrap();
        assert!(found.contains("BundleDeployment `aaa"), "{found}");
    }

    #[test]
    fn large_default_configuration_is_rejected() {
        let package = Package {
            config: Some(Config {
                schema: None,
                default: Some("prod.yaml".to_owned()),
                ..Config::default()
            }),
            ..Package::new("web", "1.4.0", Format::HelmV3).unwrap()
        };
        let failed = |length: usize| {
            let comment = format!("#{}", "a".repeat(length - 1));
            let chart = "name: web\nversion: 1.4.0\n";
            let files = files(&[(chart::CHART, chart), ("prod.yaml", comment.as_str())]);
            let target = RenderTarget::default();
            let found = command(&files, Some(&package), &target, &mut Allowance::default());
            found.err().map(|findings| findings.to_string())
        };
        assert_eq!(failed(values::FILE_BYTES), None);
        let found = failed(values::FILE_BYTES + 1).unwrap();
        let expected = "prod.yaml: the default configuration has more than 1048576 bytes";
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn values_match_the_schema_of_the_package() {
        let chart = "name: web\nversion: 1.4.0\n";
        let schema = r#"{"properties": {"replicas": {"type": "integer"}}}"#;
        let files = files(&[(chart::CHART, chart), ("config.schema.json", schema)]);
        let package = Package {
            config: Some(Config {
                schema: Some("config.schema.json".to_owned()),
                ..Config::default()
            }),
            ..Package::new("web", "1.4.0", Format::HelmV3).unwrap()
        };
        let field_of = |config: Value| {
            let target = RenderTarget {
                config: Some(config),
                ..RenderTarget::default()
            };
            let found = command(&files, Some(&package), &target, &mut Allowance::default());
            found.err().map(|findings| {
                let first = findings.first().cloned().unwrap();
                first.place.field.unwrap_or_default()
            })
        };
        let field = |text: &str| Some(text.to_owned());
        assert_eq!(field_of(json!({"replicas": 2})), None);
        assert_eq!(
            field_of(json!({"replicas": "x"})),
            field("spec.config.replicas")
        );
        let text = json!({"values": "replicas: x"});
        assert_eq!(field_of(text), field("spec.config.values.replicas"));
    }
}
