//! Search, rejection, locking and deployment of images in typical manifests.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{diagnostic::Findings, object, reference::Digest, yaml};

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn objects(text: &str) -> Vec<object::Manifest> {
    let mut findings = Findings::default();
    let objects: Vec<_> = yaml::documents(text.as_bytes(), "manifests/a.yaml")
        .unwrap()
        .into_iter()
        .filter_map(|document| object::read(document, "manifests/a.yaml", &mut findings))
        .collect();
    assert_eq!(findings, Findings::default());
    objects
}

fn find(
    objects: &[object::Manifest],
    package: Option<&crate::package::Package>,
) -> Vec<FoundImage> {
    super::find(objects, package).unwrap()
}

fn deploy(objects: &mut [object::Manifest], lock: &Lock) {
    super::deploy(objects, lock).unwrap();
}

/// Returns `image field evidence` of each image, one per line.
fn found(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for one in find(&objects(text), None) {
        for place in &one.places {
            let probable = match place.evidence {
                Evidence::Field => "",
                Evidence::Name => " name",
                Evidence::Look => " look",
            };
            lines.push(format!("{} {}{probable}", one.image, place.field));
        }
    }
    lines
}

fn lock_of(found: &[FoundImage]) -> Lock {
    let digest: Digest = DIGEST.parse().unwrap();
    Lock::new(
        found
            .iter()
            .filter_map(|one| {
                let image = ImageReference::parse(&one.image).ok()?;
                let digest = image.digest().unwrap_or(&digest).clone();
                Some(LockedImage {
                    image: one.image.clone(),
                    resolved: image
                        .reference()
                        .pin(digest.clone())
                        .reference()
                        .to_string(),
                    digest,
                    media_type: "application/vnd.oci.image.index.v1+json".to_owned(),
                    platforms: vec!["linux/amd64".to_owned()],
                    size: None,
                    found_in: one
                        .places
                        .iter()
                        .map(ImageLocation::stored_location)
                        .collect(),
                })
            })
            .collect(),
    )
}

const POD: &str = "
    initContainers: [{name: init, image: busybox:1.36}]
    containers:
    - name: web
      image: nginx:1.25
      env:
      - {name: RELATED_IMAGE_PROXY, value: 'quay.io/a/proxy:v1'}
      - {name: LISTEN, value: '0.0.0.0:8080'}
      - {name: FROM, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      args: [--sidecar-image=quay.io/a/sidecar:v2, --other-image, 'quay.io/a/other:v3', --verbose, quay.io/a/none:v4]
    ephemeralContainers: [{name: debug, image: 'alpine:3.20'}]
    volumes:
    - {name: models, image: {reference: 'quay.io/a/model:v5', pullPolicy: IfNotPresent}}
    - {name: empty, emptyDir: {}}
";

#[test]
fn finds_pod_specs_of_every_shape() {
    let tails = [
        ("busybox:1.36", "initContainers[0].image", ""),
        ("nginx:1.25", "containers[0].image", ""),
        ("quay.io/a/proxy:v1", "containers[0].env[0].value", " name"),
        (
            "quay.io/a/sidecar:v2",
            "containers[0].args[0] (--sidecar-image)",
            " name",
        ),
        ("quay.io/a/other:v3", "containers[0].args[2]", " name"),
        ("alpine:3.20", "ephemeralContainers[0].image", ""),
        ("quay.io/a/model:v5", "volumes[0].image.reference", ""),
    ];
    for (kind, path) in [
        ("v1/Pod", "spec"),
        ("apps/v1/Deployment", "spec.template.spec"),
        ("apps/v1/StatefulSet", "spec.template.spec"),
        ("apps/v1/DaemonSet", "spec.template.spec"),
        ("apps/v1/ReplicaSet", "spec.template.spec"),
        ("batch/v1/Job", "spec.template.spec"),
        ("batch/v1/CronJob", "spec.jobTemplate.spec.template.spec"),
        ("v1/PodTemplate", "template.spec"),
        ("v1/ReplicationController", "spec.template.spec"),
        ("serving.knative.dev/v1/Service", "spec.template.spec"),
        ("argoproj.io/v1alpha1/Rollout", "spec.template.spec"),
        (
            "keda.sh/v1alpha1/ScaledJob",
            "spec.jobTargetRef.template.spec",
        ),
    ] {
        let (api, kind) = kind.rsplit_once('/').unwrap();
        let pod = yaml::documents(POD.as_bytes(), "pod").unwrap()[0]
            .value
            .clone();
        let spec = path
            .rsplit('.')
            .fold(pod, |inner, key| json!({ key: inner }));
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "web"}});
        object
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let mut expected: Vec<_> = tails
            .iter()
            .map(|(image, tail, evidence)| format!("{image} {path}.{tail}{evidence}"))
            .collect();
        let mut lines = found(&yaml::to_string(&object));
        expected.sort();
        lines.sort();
        assert_eq!(lines, expected, "{kind}");
    }
}

#[test]
fn finds_the_fields_of_known_custom_resources() {
    for (text, expected) in [
        (
            "apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata: {name: a}\nspec:\n  image: quay.io/prometheus/prometheus:v2.53.0\n  thanos: {image: 'quay.io/thanos/thanos:v0.35.1'}\n  containers: [{name: extra, image: 'nginx:1.25'}]\n",
            &[
                "quay.io/prometheus/prometheus:v2.53.0 spec.image",
                "quay.io/thanos/thanos:v0.35.1 spec.thanos.image",
                "nginx:1.25 spec.containers[0].image",
            ][..],
        ),
        (
            "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: a}\nspec:\n  templates:\n  - {name: a, container: {image: 'busybox:1.36'}}\n  - {name: b, script: {image: 'python:3.12', source: print(1)}}\n  - {name: c, container: {image: '{{inputs.parameters.image}}'}}\n",
            &[
                "busybox:1.36 spec.templates[0].container.image",
                "python:3.12 spec.templates[1].script.image",
            ],
        ),
        (
            "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: a}\nspec:\n  steps:\n  - {name: a, image: 'golang:1.22'}\n  - {name: b, image: $(params.image)}\n",
            &["golang:1.22 spec.steps[0].image"],
        ),
        (
            "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: a}\nspec:\n  relatedImages: [{name: x, image: 'quay.io/a/x:v1'}]\n  install: {spec: {deployments: [{name: d, spec: {template: {spec: {containers: [{name: c, image: 'quay.io/a/c:v1'}]}}}}]}}\n",
            &[
                "quay.io/a/x:v1 spec.relatedImages[0].image",
                "quay.io/a/c:v1 spec.install.spec.deployments[0].spec.template.spec.containers[0].image",
            ],
        ),
        (
            "apiVersion: postgresql.cnpg.io/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {imageName: 'ghcr.io/cloudnative-pg/postgresql:16.3'}\n",
            &["ghcr.io/cloudnative-pg/postgresql:16.3 spec.imageName"],
        ),
        (
            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {image: 'quay.io/a/b:v1', logo: {image: logo.png}, containers: 3}\n",
            &["quay.io/a/b:v1 spec.image name"],
        ),
        (
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a}\nspec: {image: 'quay.io/a/b:v1'}\n",
            &["quay.io/a/b:v1 spec.image name"],
        ),
        (
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec: {rules: [{validate: {pattern: {spec: {containers: [{image: 'quay.io/a/*:v1'}]}}}}]}\n",
            &[],
        ),
        (
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.b.c}\nspec: {versions: [{schema: {openAPIV3Schema: {properties: {containers: {type: array}}}}}]}\n",
            &[],
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {image: 'quay.io/a/b:v1'}\n",
            &[],
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: gw}\nspec: {template: {spec: {containers: [{name: istio-proxy, image: auto}, {name: x, image: ''}]}}}\nstatus: {containers: [{name: y, image: 'nginx:1'}]}\n",
            &[],
        ),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
}

#[test]
fn finds_images_listed_in_the_package() {
    let package = crate::package::parse(
        b"apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nimages: [{name: agent, image: 'quay.io/a/agent:v1'}]\n",
    )
    .unwrap();
    let found = find(&[], Some(&package));
    assert_eq!(found[0].image, "quay.io/a/agent:v1");
    assert_eq!(
        (
            found[0].places[0].field.to_string(),
            &*found[0].places[0].file
        ),
        ("images[0].image".to_owned(), "bundle.yaml")
    );
}

fn deployment(images: &[&str]) -> String {
    let containers: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
        .collect();
    yaml::to_string(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": containers}}}
    }))
}

#[test]
fn rejects_all_mutable_references_together() {
    let digest = format!("nginx@{DIGEST}");
    let both = format!("nginx:latest@{DIGEST}");
    let text = deployment(&[
        "nginx",
        "nginx:latest",
        "quay.io/a/b:MAIN",
        "nginx:1.25",
        &digest,
        &both,
        "Not An Image",
        "nginx",
    ]);
    let findings = check_references(
        &find(&objects(&text), None),
        &MutableTagAllowlist::default(),
    );
    let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let at = "manifests/a.yaml:1: Deployment.apps/web: spec.template.spec.containers";
    assert_eq!(
        said,
        [
            format!(
                "{at}[0].image: image `nginx` is missing a tag: no tag or digest found, so the kubelet pulls `latest`; also in Deployment.apps/web: spec.template.spec.containers[7].image"
            ),
            format!(
                "{at}[1].image: image tag is disallowed (latest): `nginx:latest` changes over time"
            ),
            format!(
                "{at}[2].image: image tag is disallowed (MAIN): `quay.io/a/b:MAIN` changes over time"
            ),
            format!(
                "{at}[6].image: `Not An Image` is not an image reference: `Not An Image` is not a repository (lower-case letters, digits, `.`, `_`, `-`, separated by `/`)"
            ),
        ]
    );
    assert!(findings.iter().all(|finding| finding.hint.is_some()));
    let allowed = MutableTagAllowlist {
        patterns: vec!["docker.io/library/*".to_owned()],
    };
    let findings = check_references(&find(&objects(&text), None), &allowed);
    assert_eq!(findings.len(), 2);
}

#[test]
fn written_lock_reads_back_unchanged() {
    let found = find(
        &objects(&deployment(&["nginx:1.25", "quay.io/a/b:v1"])),
        None,
    );
    let lock = lock_of(&found);
    let text = lock.to_yaml();
    assert_eq!(Lock::parse(text.as_bytes()).unwrap(), lock, "{text}");
    assert!(lock.differences(&found).is_empty());
    assert_eq!(
        annotation(&lock)[ANNOTATION],
        format!("[\"docker.io/library/nginx:1.25@{DIGEST}\",\"quay.io/a/b:v1@{DIGEST}\"]")
    );
}

#[test]
fn rejects_inconsistent_locks() {
    let good = lock_of(&find(&objects(&deployment(&["nginx:1.25"])), None)).to_yaml();
    for (from, to, why) in [
        (
            "docker.io/library/nginx",
            "docker.io/evil/nginx",
            "but must have",
        ),
        ("kind: ImageLock", "kind: Package", "must be ImageLock"),
        ("mediaType:", "mediatype:", "unknown field"),
        (
            "image: nginx:1.25",
            "image: Nginx",
            "is not an image reference",
        ),
        ("sha256:e3b0", "sha256:E3B0", "is not a digest"),
        ("images:", "---\nimages:", "more than one document"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        let said = Lock::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(said.contains(why), "{why} is not in {said}");
    }
    let written = format!("nginx@{DIGEST}");
    let other = DIGEST.replace("e3b0", "0000");
    let mut lock = lock_of(&find(&objects(&deployment(&[&written])), None));
    lock.images[0].digest = other.parse().unwrap();
    lock.images[0].resolved = format!("docker.io/library/nginx@{other}");
    let said = Lock::parse(lock.to_yaml().as_bytes())
        .unwrap_err()
        .to_string();
    assert!(said.contains("differs from the locked digest"), "{said}");
}

#[test]
fn reports_differences_between_lock_and_manifests() {
    let env = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: 'nginx:1.25', env: [{name: A_IMAGE, value: 'quay.io/a/b:v1'}]}]}\n";
    let found = find(&objects(env), None);
    let mut lock = lock_of(&found);
    assert!(lock.differences(&found).is_empty());
    lock.images[1].found_in.clear();
    let said = lock.differences(&found).to_string();
    assert!(said.contains("does not list this field"), "{said}");
    // The author can remove a probable image from a lock, for example if its registry does not have
    // the image.
    lock.images.remove(1);
    assert!(lock.differences(&found).is_empty());
    let other = find(&objects(&deployment(&["nginx:1.26"])), None);
    let said = lock.differences(&other).to_string();
    assert!(
        said.contains("images.lock.yaml has no digest for `nginx:1.26`"),
        "{said}"
    );
    assert!(said.contains("no manifest uses `nginx:1.25`"), "{said}");
}

#[test]
fn deploys_at_the_found_fields_only() {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{note: 'nginx:1.25'}}}}\nspec:{POD}"
    );
    let mut all = objects(&text);
    let mut lock = lock_of(&find(&all, None));
    // The author removed the location of this image from the lock.
    let proxy = lock
        .images
        .iter_mut()
        .find(|one| one.image == "quay.io/a/proxy:v1");
    proxy.unwrap().found_in.clear();
    deploy(&mut all, &lock);
    let value = &all[0].value;
    let container = &value["spec"]["containers"][0];
    assert_eq!(container["image"], format!("nginx:1.25@{DIGEST}"));
    assert_eq!(container["env"][0]["value"], "quay.io/a/proxy:v1");
    assert_eq!(
        container["args"],
        json!([
            format!("--sidecar-image=quay.io/a/sidecar:v2@{DIGEST}"),
            "--other-image",
            format!("quay.io/a/other:v3@{DIGEST}"),
            "--verbose",
            "quay.io/a/none:v4"
        ])
    );
    assert_eq!(
        value["spec"]["volumes"][0]["image"]["reference"],
        format!("quay.io/a/model:v5@{DIGEST}")
    );
    assert_eq!(value["metadata"]["annotations"]["note"], "nginx:1.25");
}

/// Returns arbitrary JSON values that contain words that affect the search.
fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("nginx:1.25".to_owned()),
        Just("quay.io/a/b:v1".to_owned()),
        Just(format!("quay.io/a/b:v1@{DIGEST}")),
        Just("--x-image=quay.io/a/b:v1".to_owned()),
        Just("--image".to_owned()),
        "[ -~]{0,20}",
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("containers"),
        Just("initContainers"),
        Just("volumes"),
        Just("image"),
        Just("reference"),
        Just("env"),
        Just("args"),
        Just("name"),
        Just("value"),
        Just("spec"),
        Just("template"),
        Just("a.b/c"),
        Just("steps"),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| {
                Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn deploying_is_idempotent_and_touches_nothing_else(spec in any_value(), group in prop_oneof![Just("apps/v1"), Just("v1"), Just("tekton.dev/v1"), Just("example.com/v1")]) {
        let kind = if group == "tekton.dev/v1" { "Task" } else { "Deployment" };
        let value = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let mut findings = Findings::default();
        let before = object::read(yaml::Document { value, line: 1 }, "a.yaml", &mut findings).unwrap();
        let before = vec![before];
        let found = find(&before, None);
        let lock = lock_of(&found);
        let mut once = before.clone();
        deploy(&mut once, &lock);
        let mut twice = once.clone();
        deploy(&mut twice, &lock);
        prop_assert_eq!(&once, &twice);
        // If the added digests are removed again, the result equals the original objects.
        let mut undone = once.clone();
        for one in &found {
            for place in &one.places {
                let field = place.field.of(&mut undone[0].value).unwrap();
                *field = Value::String(format!("{}{}", place.field.before(), one.image));
            }
        }
        prop_assert_eq!(&undone, &before);
        // All images in the lock are pinned now.
        for one in find(&once, None) {
            if let Ok(image) = ImageReference::parse(&one.image) {
                prop_assert!(image.digest().is_some(), "{}", one.image);
            }
        }
        prop_assert!(Lock::parse(lock.to_yaml().as_bytes()).unwrap() == lock);
    }

    #[test]
    fn reading_references_never_panics(text in any::<String>()) {
        if let Ok(image) = ImageReference::parse(&text) {
            let pinned = image.pinned(&DIGEST.parse().unwrap());
            prop_assert!(ImageReference::parse(&pinned).is_ok(), "{pinned}");
        }
    }
}
