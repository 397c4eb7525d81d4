//! Rendering of operators, and of content with a lock or a chart: its memory is at most the weight.

use bundle_core::cancellation::Cancellation;
use bundle_core::files::Files;
use bundle_core::format::{self, CommandOutput, RenderInput, RenderTarget};
use bundle_core::yaml::{self, Allowance, Weight};
use serde_json::{Value, json};

use super::{alone, peak};

/// Memory of a prepared object in addition to its JSON tree, in bytes. The estimate of the webhook
/// uses the same value.
const PER_OBJECT: u64 = 3 << 10;

/// Returns an operator with these deployments and permissions.
fn operator(deployments: &[Value], permissions: &[Value]) -> Files {
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: op\n";
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "op.v1.0.0"},
        "spec": {
            "version": "1.0.0",
            "installModes": [
                {"type": "AllNamespaces", "supported": true},
                {"type": "MultiNamespace", "supported": true},
            ],
            "install": {"strategy": "deployment", "spec": {
                "deployments": deployments,
                "permissions": permissions,
                "clusterPermissions": permissions,
            }},
        },
    });
    Files::from_iter([
        ("metadata/annotations.yaml".to_owned(), annotations.into()),
        (
            "manifests/csv.json".to_owned(),
            csv.to_string().into_bytes(),
        ),
    ])
}

/// Returns an operator with one deployment and this number of admission webhooks.
#[expect(clippy::unwrap_used, reason = "the file is JSON of this test")]
fn operator_with_webhooks(count: usize) -> Files {
    let webhooks = (0..count).map(|number| {
        json!({
            "type": "ValidatingAdmissionWebhook", "generateName": format!("w{number}"),
            "deploymentName": "d", "admissionReviewVersions": ["v1"],
        })
    });
    let webhooks: Value = webhooks.collect();
    let mut files = operator(&[json!({"name": "d", "spec": {"template": {}}})], &[]);
    let csv = files.get_mut("manifests/csv.json").unwrap();
    let mut parsed: Value = serde_json::from_slice(csv).unwrap();
    parsed["spec"]["webhookdefinitions"] = webhooks;
    *csv = parsed.to_string().into_bytes();
    files
}

/// Returns an operator with one deployment that has this number of containers.
fn operator_with_containers(count: usize) -> Files {
    let containers = (0..count).map(|number| json!({"name": format!("c{number}")}));
    let containers: Value = containers.collect();
    let spec = json!({"template": {"spec": {"containers": containers}}});
    operator(&[json!({"name": "d", "spec": spec})], &[])
}

fn rule(number: usize) -> Value {
    json!({"apiGroups": ["apps"], "resources": [format!("r{number}")], "verbs": ["get", "list"]})
}

/// Returns the memory that the webhook reserves for the files, in bytes; `None` if the files are
/// invalid.
fn weight(files: &Files) -> Option<usize> {
    let (mut parsed, mut documents) = (0, Weight::default());
    let mut allowance = Allowance::default();
    for (path, bytes) in files {
        let weight = yaml::weigh(bytes, path, &mut allowance).ok()?;
        parsed += bytes.len() as u64 + weight.tree.0 + weight.objects * PER_OBJECT;
        documents = documents.plus(weight);
    }
    let needed = format::rendering_memory(|path| files.contains_key(path), parsed, &documents);
    usize::try_from(needed).ok()
}

#[test]
fn rendering_an_operator_needs_no_more_than_its_weight() {
    let _alone = alone();
    let rules = |count| (0..count).map(rule).collect::<Vec<_>>();
    let permission =
        |number, rules| json!({"serviceAccountName": format!("a{number}"), "rules": rules});
    let permissions = |count, of_each| {
        let all = (0..count).map(|number| permission(number, rules(of_each)));
        all.collect::<Vec<_>>()
    };
    let deployments = (0..1_000)
        .map(|number| {
            let account = json!({"serviceAccountName": format!("b{number}")});
            json!({"name": format!("d{number}"), "spec": {"template": {"spec": account}}})
        })
        .collect::<Vec<_>>();
    let namespaces = |count| {
        let names = (0..count).map(|number| format!("n{number}"));
        json!({"watchNamespaces": names.collect::<Vec<_>>()})
    };
    let variables = |count| {
        let variables = (0..count).map(|number| json!({"name": format!("v{number}")}));
        json!({"deploymentConfig": {"env": variables.collect::<Vec<_>>()}})
    };
    for (name, files, config) in [
        (
            "one permission with many rules",
            operator(&[], &permissions(1, 2_000)),
            json!({}),
        ),
        (
            "many permissions",
            operator(&[], &permissions(500, 1)),
            json!({}),
        ),
        (
            "permissions without rules",
            operator(&[], &permissions(1_000, 0)),
            json!({}),
        ),
        ("many deployments", operator(&deployments, &[]), json!({})),
        ("many webhooks", operator_with_webhooks(1_000), json!({})),
        (
            "several namespaces",
            operator(&[], &permissions(2, 3)),
            namespaces(100),
        ),
        (
            "a large configuration",
            operator_with_containers(1),
            variables(1_000),
        ),
        (
            "a configuration for many containers",
            operator_with_containers(1_000),
            variables(3),
        ),
    ] {
        let limit = weight(&files).unwrap();
        let target = RenderTarget {
            config: Some(config),
            ..RenderTarget::default()
        };
        let input = RenderInput {
            files: &files,
            target: &target,
            output: CommandOutput::Missing,
        };
        let render =
            || format::render_objects(&input, |found, _| Ok(found), &Cancellation::default());
        let (peak, content) = peak(render);
        let objects = content.map_or(0, |content| content.objects.len());
        assert!(objects > 0, "{name}");
        // The weight includes the files and further memory of each object, which this test does not
        // allocate.
        let needed = peak + objects * usize::try_from(PER_OBJECT).unwrap();
        assert!(
            needed < limit,
            "{name}: {} of {} KiB for {objects} objects",
            needed >> 10,
            limit >> 10
        );
    }
}

#[test]
fn rendering_with_a_lock_or_a_chart_needs_no_more_than_its_weight() {
    let _alone = alone();
    let maps = |count| "{b: 0},".repeat(count);
    for (path, text) in [
        ("images.lock.yaml", format!("images: [{}]\n", maps(10_000))),
        ("Chart.yaml", format!("name: a\nx: [{}]\n", maps(5_000))),
    ] {
        let files = Files::from_iter([(path.to_owned(), text.into_bytes())]);
        let input = RenderInput {
            files: &files,
            target: &RenderTarget::default(),
            output: CommandOutput::Later,
        };
        let render =
            || format::render_objects(&input, |found, _| Ok(found), &Cancellation::default());
        let ((used, _), limit) = (peak(render), weight(&files).unwrap());
        // The parser may use a quarter of the weight for buffers. A second copy of the values would
        // need more memory.
        let (used, most) = (used >> 10, (limit + limit / 4) >> 10);
        assert!(used < most, "{path}: {used} of {most} KiB");
    }
}
