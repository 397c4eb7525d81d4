//! Charts, kustomizations and operator bundles: the result equals the output of real helm and
//! kubectl, and a real API server accepts converted objects. These scenarios do not install the
//! objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle_core::format::{self, CommandOutput, Files, RenderInput, RenderTarget};
use bundle_core::yaml;
use e2e::host::command::Command;
use e2e::{Tool, tools};

const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.4.0\n";
const VALUES: &str = "greeting: hello\nreplicas: 1\n";
const TEMPLATES: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, namespace: default}
data: {greeting: {{ .Values.greeting | quote }}, again: {{ .Files.Get "motd" | quote }}}
{{- range until (int .Values.replicas) }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra-{{ . }}, namespace: default}
{{- end }}
"#;
pub(in crate::scenarios) const ANNOTATIONS: &str = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: cache\n";
pub(in crate::scenarios) const CSV: &str = r#"apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: cache-operator.v0.3.0, annotations: {alm-examples: "[]"}}
spec:
  version: 0.3.0
  installModes: [{type: AllNamespaces, supported: true}]
  install:
    strategy: deployment
    spec:
      permissions:
      - {serviceAccountName: cache, rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]}
      clusterPermissions:
      - {serviceAccountName: cache, rules: [{apiGroups: [cache.example.com], resources: [caches], verbs: ["*"]}]}
      deployments:
      - name: cache-operator
        label: {app: cache}
        spec:
          selector: {matchLabels: {app: cache}}
          template:
            metadata: {labels: {app: cache}}
            spec:
              serviceAccountName: cache
              containers: [{name: manager, image: "registry.example.com/cache-operator:0.3.0"}]
"#;
pub(in crate::scenarios) const CRD: &str = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.cache.example.com}
spec:
  group: cache.example.com
  names: {kind: Cache, plural: caches}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
pub(in crate::scenarios) const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: cache}\nspec: {selector: {app: cache}, ports: [{port: 443}]}\n";

pub(in crate::scenarios) fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let place = folder.join(path);
        fs_err::create_dir_all(place.parent().unwrap()).unwrap();
        fs_err::write(place, text).unwrap();
    }
}

/// The plugin and helm in their own folder, with helm and kubectl on PATH.
struct Tools {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Tools {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            path: tools::folder(&[Tool::Helm, Tool::Kubectl]).unwrap(),
        }
    }

    async fn run(&self, program: PathBuf, arguments: &[&str]) -> e2e::Output {
        Command::new(program)
            .args(arguments)
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .output()
            .await
            .unwrap()
    }

    async fn run_plugin(&self, arguments: &[&str]) -> e2e::Output {
        let programs = e2e::programs::get().await.unwrap();
        self.run(programs.plugin.clone(), arguments).await
    }

    async fn tool(&self, tool: Tool, arguments: &[&str]) -> String {
        let output = self.run(self.path.join(tool.name()), arguments).await;
        output.success().unwrap()
    }
}

fn objects(text: &str) -> usize {
    yaml::documents(text.as_bytes(), "output").unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_folder_and_archive_render_like_helm() {
    let desk = Tools::new();
    let chart = [
        ("web/Chart.yaml", CHART),
        ("web/values.yaml", VALUES),
        ("web/motd", "good morning"),
        ("web/templates/web.yaml", TEMPLATES),
    ];
    write(desk.folder.path(), &chart);
    let rendered = desk.tool(Tool::Helm, &["template", "web", "web"]).await;
    let built = desk
        .run_plugin(&["build", "web", "--format", "json"])
        .await
        .success()
        .unwrap();
    let built: serde_json::Value = serde_json::from_str(&built).unwrap();
    assert_eq!(built["objects"], objects(&rendered));
    assert_eq!(
        (&built["name"], &built["format"]),
        (&"web".into(), &"helm+v3".into())
    );

    // The test compares the objects, not only their number.
    let files: Files = chart
        .iter()
        .map(|(path, text)| (path[4..].to_owned(), text.as_bytes().to_vec()))
        .collect();
    let input = RenderInput {
        files: &files,
        target: &RenderTarget::default(),
        output: CommandOutput::Text(rendered.as_bytes()),
    };
    let content = format::render(&input).unwrap();
    assert_eq!(content.objects[0].value["data"]["again"], "good morning");

    // The archive of `helm package` results in the same bundle. Only Chart.yaml differs, because
    // helm rewrites this file.
    desk.tool(Tool::Helm, &["package", "web"]).await;
    let packed = desk
        .run_plugin(&["build", "web-1.4.0.tgz", "--format", "json", "--dry-run"])
        .await
        .success()
        .unwrap();
    let packed: serde_json::Value = serde_json::from_str(&packed).unwrap();
    assert_eq!(packed["objects"], built["objects"]);

    // `build` uses the values of the package. If a template fails, the error contains helm's
    // message.
    desk.run_plugin(&["init", "web"]).await.success().unwrap();
    let package = desk.folder.path().join("web/bundle.yaml");
    let text = fs_err::read_to_string(&package).unwrap();
    fs_err::write(&package, format!("{text}config: {{default: more.yaml}}\n")).unwrap();
    write(desk.folder.path(), &[("web/more.yaml", "replicas: 3\n")]);
    let more = desk
        .run_plugin(&["build", "web", "--format", "json", "--dry-run"])
        .await
        .success()
        .unwrap();
    assert!(more.contains("\"objects\": 4"), "{more}");
    write(
        desk.folder.path(),
        &[("web/templates/bad.yaml", "{{ fail \"no luck\" }}")],
    );
    let refused = desk
        .run_plugin(&["build", "web", "--dry-run"])
        .await
        .failure(3)
        .unwrap();
    assert!(refused.contains("no luck"), "{refused}");
    // The plugin rejects the templates that the pod rejects.
    let lookup = "a: {{ lookup \"v1\" \"Secret\" \"a\" \"b\" }}";
    write(desk.folder.path(), &[("web/templates/bad.yaml", lookup)]);
    let refused = desk
        .run_plugin(&["build", "web", "--dry-run"])
        .await
        .failure(3)
        .unwrap();
    let expected = "templates/bad.yaml:1: the template calls `lookup`";
    assert!(refused.contains(expected), "{refused}");
    write(desk.folder.path(), &[("web/templates/bad.yaml", "")]);
    let rendered = desk
        .run_plugin(&["render", "web", "--name", "shop", "-n", "team-a"])
        .await
        .success()
        .unwrap();
    assert!(rendered.contains("name: shop"), "{rendered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_for_older_kubernetes_is_rendered_for_its_newest_version() {
    let desk = Tools::new();
    let config_map = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: web}}\n")
    };
    let template = format!(
        "{}{{{{- if eq .Capabilities.KubeVersion.Version \"v1.25.0\" }}}}\n---\n{}{{{{- end }}}}\n",
        config_map("always"),
        config_map("on-1-25"),
    );
    for (range, version, objects) in [
        (">=1.20.0-0 <1.26.0-0", "v1.4.0", 2),
        ("=> 1.20, =< 1.25", "1.4.0", 2),
        ("~> 1.24", "1.4.0", 1),
    ] {
        let chart =
            format!("apiVersion: v2\nname: web\nversion: {version}\nkubeVersion: '{range}'\n");
        write(
            desk.folder.path(),
            &[
                ("web/Chart.yaml", &chart),
                ("web/templates/web.yaml", &template),
            ],
        );
        let built = desk
            .run_plugin(&["build", "web", "--format", "json", "--dry-run"])
            .await
            .success()
            .unwrap();
        let built: serde_json::Value = serde_json::from_str(&built).unwrap();
        assert_eq!(built["objects"], objects, "{range}: {built}");
        assert_eq!(built["version"], "1.4.0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kustomization_is_rendered_like_kubectl() {
    let desk = Tools::new();
    let web = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n";
    write(
        desk.folder.path(),
        &[
            (
                "base/kustomization.yaml",
                "resources: [web.yaml]\nnamePrefix: base-\n",
            ),
            ("base/web.yaml", web),
            (
                "prod/kustomization.yaml",
                "resources: [../base]\nnamespace: default\nconfigMapGenerator: [{name: made, literals: [a=b]}]\n",
            ),
        ],
    );
    let made = desk.tool(Tool::Kubectl, &["kustomize", "prod"]).await;
    let arguments = ["build", "prod", "--name", "web", "--version", "1.0.0"];
    let first = desk.run_plugin(&arguments).await.success().unwrap();
    assert_eq!(desk.run_plugin(&arguments).await.success().unwrap(), first);
    let shown = desk
        .run_plugin(&["inspect", "web-1.0.0.oci", "-o", "json"])
        .await
        .success()
        .unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["objects"]["total"], objects(&made), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_accepts_converted_operator() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let files: Files = BTreeMap::from(
        [
            (format::registry::ANNOTATIONS, ANNOTATIONS),
            ("manifests/csv.yaml", CSV),
            ("manifests/crd.yaml", CRD),
            ("manifests/service.yaml", SERVICE),
        ]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())),
    );
    let content = format::read(&files).unwrap_or_else(|findings| panic!("{findings}"));
    let documents: Vec<String> = content
        .objects
        .iter()
        .map(|object| yaml::to_string(&object.value))
        .collect();
    let text = documents.join("---\n");
    let file = cluster.folder().join("operator.yaml");
    fs_err::write(&file, text).unwrap();
    cluster
        .kubectl(["create", "namespace", "cache-system"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let file = file.display().to_string();
    let printed = cluster
        .kubectl(["apply", "--server-side", "--dry-run=server", "-f", &file])
        .await
        .unwrap()
        .success()
        .unwrap();
    assert_eq!(printed.lines().count(), content.objects.len(), "{printed}");
}
