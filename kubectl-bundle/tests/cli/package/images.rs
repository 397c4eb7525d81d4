//! Tests of images: how they are found, rejected, locked and printed, and the number of requests.

use bundle_testkit::registry::Registry;

use crate::context::{CONFIG_MAP, Context, PACKAGE};
use crate::kb_snapshot;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const ZEROS: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn deployment(images: &[String]) -> String {
    let containers: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(index, image)| format!("{{name: c{index}, image: '{image}'}}"))
        .collect();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: default}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers: [{}]\n",
        containers.join(", ")
    )
}

/// Publishes an index for two platforms, with an attestation as a third manifest, as some image
/// builders do.
fn publish_index(registry: &Registry, repository: &str, tag: &str) {
    let entry = |os: &str, arch: &str| {
        format!(
            r#"{{"mediaType":"{MANIFEST}","digest":"{ZEROS}","size":1,"platform":{{"os":"{os}","architecture":"{arch}"}}}}"#
        )
    };
    let entries = [
        entry("linux", "arm64"),
        entry("linux", "amd64"),
        entry("unknown", "unknown"),
    ];
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{}]}}"#,
        entries.join(",")
    );
    registry.put_manifest(repository, tag, INDEX, index.as_bytes());
}

#[test]
fn rejects_images_with_moving_tags() {
    let context = Context::new();
    context.write("web/bundle.yaml", PACKAGE);
    let images = [
        "nginx",
        "quay.io/a/b:latest",
        "registry.example.com/a/b:main",
        "nginx:1.25",
        "$(IMAGE)",
    ];
    let manifest = deployment(&images.map(str::to_owned));
    context.write("web/manifests/web.yaml", manifest);
    kb_snapshot!(context, ["build", "web"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].image: image `nginx` is missing a tag: no tag or digest found, so the kubelet pulls `latest` [BUNDLE-IMAGE-002]
      hint: write the tag of a version or a digest, or allow this tag with --allow-mutable-tags=docker.io/library/nginx
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].image: image tag is disallowed (latest): `quay.io/a/b:latest` changes over time [BUNDLE-IMAGE-003]
      hint: write the tag of a version or a digest, or allow this tag with --allow-mutable-tags=quay.io/a/b
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[2].image: image tag is disallowed (main): `registry.example.com/a/b:main` changes over time [BUNDLE-IMAGE-003]
      hint: write the tag of a version or a digest, or allow this tag with --allow-mutable-tags=registry.example.com/a/b
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[4].image: `$(IMAGE)` is not an image reference: `$(IMAGE)` is not a repository (lower-case letters, digits, `.`, `_`, `-`, separated by `/`) [BUNDLE-IMAGE-001]
      hint: write NAME:TAG, such as registry.example.com/team/web:1.4.0
    ");
    kb_snapshot!(context, ["build", "web", "--allow-mutable-tags=**/:x"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --allow-mutable-tags: `**/:x` names a tag; patterns match the repository, never the tag or digest [BUNDLE-USAGE-001]
      hint: a pattern is REGISTRY/REPOSITORY with `*` and `**`: docker.io/library/*, registry.example.com/team/**
    ");
    context.write(
        "web/manifests/web.yaml",
        deployment(&["nginx".to_owned(), "quay.io/a/b:latest".to_owned()]),
    );
    kb_snapshot!(context, ["build", "web", "--dry-run", "--allow-mutable-tags=docker.io/library/*"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].image: image tag is disallowed (latest): `quay.io/a/b:latest` changes over time [BUNDLE-IMAGE-003]
      hint: write the tag of a version or a digest, or allow this tag with --allow-mutable-tags=quay.io/a/b
    ");
    kb_snapshot!(context, ["build", "web", "--dry-run", "--allow-mutable-tags"], @r"
    exit code: 0
    ----- stdout -----
    sha256:150946b1...
    ----- stderr -----
    web 1.4.0: 1 object, 1275 bytes, nothing written
    image nginx (Deployment.apps/default/web: spec.template.spec.containers[0].image)
    image quay.io/a/b:latest (Deployment.apps/default/web: spec.template.spec.containers[1].image)
    ");
}

#[test]
fn push_of_a_folder_names_the_flag_of_build_for_a_moving_tag() {
    let context = Context::new();
    context.write("web/bundle.yaml", PACKAGE);
    let manifest = deployment(&["quay.io/a/b:latest".to_owned()]);
    context.write("web/manifests/web.yaml", manifest);
    kb_snapshot!(context, ["push", "web", "registry.example.com/web:1.0.0"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].image: image tag is disallowed (latest): `quay.io/a/b:latest` changes over time [BUNDLE-IMAGE-003]
      hint: write the tag of a version or a digest, or allow this tag with --allow-mutable-tags=quay.io/a/b (--allow-mutable-tags is a flag of `kubectl bundle build`)
    ");
}

/// Removes lines with digests and sizes, because they depend on the port of the registry.
fn without_variable_lines(said: &str) -> String {
    said.lines()
        .filter(|line| !line.contains(" bytes") && !line.starts_with("Digest:"))
        .filter(|line| !line.starts_with("sha256:"))
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn builds_from_the_lock_file_without_a_registry() {
    let mut context = Context::new();
    let registry = context.registry();
    publish_index(&registry, "lib/web", "1.0.0");
    registry.publish("lib/tool", "2.0.0", b"tar");
    let images = [
        registry.reference("lib/web:1.0.0"),
        registry.reference("lib/tool:2.0.0"),
        registry.reference("lib/web:1.0.0"),
    ];
    context.write("web/bundle.yaml", PACKAGE);
    let manifest = deployment(&images).replace(
        "name: c1,",
        &format!(
            "name: c1, env: [{{name: RELATED_IMAGE_GONE, value: '{}'}}],",
            registry.reference("lib/gone:1.0.0")
        ),
    );
    let written = context.write("web/manifests/web.yaml", &manifest);
    let before = registry.seen().len();
    insta::assert_snapshot!(without_variable_lines(&context.run(&["build", "web", "--lock"])), @r"
    exit code: 0
    ----- stdout -----
    ----- stderr -----
    warning: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].env[0].value: `[REGISTRY]/lib/gone:1.0.0` may be an image, but is not locked, because the lookup failed: not found in the registry [BUNDLE-IMAGE-007]
      hint: if it is an image, correct its name; otherwise ignore this warning
    image [REGISTRY]/lib/web:1.0.0 is sha256:316a3642... (Deployment.apps/default/web: spec.template.spec.containers[0].image, and 1 more place)
    image [REGISTRY]/lib/tool:2.0.0 is sha256:07a2b42a... (Deployment.apps/default/web: spec.template.spec.containers[1].image)
    image [REGISTRY]/lib/gone:1.0.0, probably (Deployment.apps/default/web: spec.template.spec.containers[1].env[0].value)
    ");
    assert_eq!(registry.seen().len() - before, 3, "{:#?}", registry.lines());
    assert_eq!(std::fs::read_to_string(written).unwrap(), manifest);
    let lock = std::fs::read_to_string(context.path().join("web/images.lock.yaml")).unwrap();
    let lock = lock.replace(&registry.host(), "[REGISTRY]");
    insta::assert_snapshot!(lock, @r"
    # Written by `kubectl bundle build --lock`. Commit it: each build uses these digests until the file is written again.
    apiVersion: bundle.core.rukpak.io/v1alpha1
    kind: ImageLock
    images:
    - image: [REGISTRY]/lib/tool:2.0.0
      resolved: [REGISTRY]/lib/tool:2.0.0@sha256:07a2b42a37cb337783b5bedc1d747f406230c6b68ed75a19fe643f4e5ab4c8a0
      digest: sha256:07a2b42a37cb337783b5bedc1d747f406230c6b68ed75a19fe643f4e5ab4c8a0
      mediaType: application/vnd.oci.image.manifest.v1+json
      size: 3
      foundIn:
      - object: Deployment.apps/default/web
        field: spec.template.spec.containers[1].image
    - image: [REGISTRY]/lib/web:1.0.0
      resolved: [REGISTRY]/lib/web:1.0.0@sha256:316a364267dc00526f6549c8aee3f14f03f7c5949ecdb538e521331d1a374e49
      digest: sha256:316a364267dc00526f6549c8aee3f14f03f7c5949ecdb538e521331d1a374e49
      mediaType: application/vnd.oci.image.index.v1+json
      platforms:
      - linux/amd64
      - linux/arm64
      foundIn:
      - object: Deployment.apps/default/web
        field: spec.template.spec.containers[0].image
      - object: Deployment.apps/default/web
        field: spec.template.spec.containers[2].image
    ");
    // With the lock file, the build needs no registry and produces the same digest. A second run
    // with `--lock` changes nothing.
    let asked = registry.seen().len();
    let first = context.stdout(&["build", "web", "-q", "--dry-run"]);
    assert_eq!(context.stdout(&["build", "web", "-q"]), first);
    assert_eq!(registry.seen().len(), asked);
    assert_eq!(context.stdout(&["build", "web", "--lock", "-q"]), first);
    insta::assert_snapshot!(without_variable_lines(&context.run(&["inspect", "web-1.4.0.oci"])), @r#"
    exit code: 0
    ----- stdout -----
    Path:        web-1.4.0.oci
    Name:        web
    Version:     1.4.0
    Format:      plain+v0
    Description: A small web page
    Kubernetes:  >=1.31 <1.38 (others: Reject)
    Signatures:  none
    Images:      3 (2 locked)
      [REGISTRY]/lib/web:1.0.0 is sha256:316a3642... (linux/amd64, linux/arm64)
          Deployment.apps/default/web: spec.template.spec.containers[0].image
          Deployment.apps/default/web: spec.template.spec.containers[2].image
      [REGISTRY]/lib/tool:2.0.0 is sha256:07a2b42a...
          Deployment.apps/default/web: spec.template.spec.containers[1].image
      [REGISTRY]/lib/gone:1.0.0, probably
          Deployment.apps/default/web: spec.template.spec.containers[1].env[0].value
    Objects:     1
          1  Deployment.apps
    Permissions: required to install
      in namespace default: {apiGroups: ["apps"], resources: ["deployments"], verbs: ["create", "delete", "patch"]}
    ----- stderr -----
    "#);
    // An outdated lock is rejected, because the changed image would be installed by its tag.
    let moved = manifest.replace("lib/tool:2.0.0", "lib/tool:2.0.1");
    context.write("web/manifests/web.yaml", moved);
    kb_snapshot!(context, ["build", "web"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].image: images.lock.yaml has no digest for `[REGISTRY]/lib/tool:2.0.1` [BUNDLE-IMAGE-005]
      hint: run `kubectl bundle build --lock`, and review the changes
    error: web/images.lock.yaml: no manifest uses `[REGISTRY]/lib/tool:2.0.0`, which has a digest in the lock file [BUNDLE-IMAGE-006]
      hint: run `kubectl bundle build --lock`, and review the changes
    ");
    kb_snapshot!(context, ["build", "web", "--lock"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    warning: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].env[0].value: `[REGISTRY]/lib/gone:1.0.0` may be an image, but is not locked, because the lookup failed: not found in the registry [BUNDLE-IMAGE-007]
      hint: if it is an image, correct its name; otherwise ignore this warning
    error: web/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[1].image: cannot read the manifest of [REGISTRY]/lib/tool:2.0.1: not found in the registry [BUNDLE-REGISTRY-002]
      hint: check the repository and the tag or digest; some registries report content as missing if the credentials cannot read it
    ");
}

/// `inspect` reads an artifact in a registry with few requests, and skips layers without content.
#[test]
fn inspect_sends_few_requests() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.write("web/dashboards/large.json", vec![b' '; 1 << 20]);
    context.write(
        "web/bundle.yaml",
        format!("{PACKAGE}resources: [{{name: dashboards, type: grafana-dashboard, path: dashboards/}}]\n"),
    );
    context.stdout(&["push", "web", &web, "-q"]);
    let asked = |arguments: &[&str]| {
        let before = registry.lines().len();
        context.stdout(arguments);
        let mut lines = registry.lines().split_off(before);
        lines.sort();
        let kinds = [
            "/manifests/1.4.0",
            "/blobs/",
            "/referrers/",
            "/manifests/sha256-",
        ];
        let count = |kind: &&str| lines.iter().filter(|line| line.contains(*kind)).count();
        (kinds.iter().map(count).collect::<Vec<_>>(), lines)
    };
    // Expected requests: the manifest, then configuration and content, then referrers and their
    // fallback tags. The three steps are sequential, and the requests of a step are concurrent.
    let (counts, lines) = asked(&["inspect", &web, "-q"]);
    assert_eq!(counts, [1, 2, 1, 2], "{lines:#?}");
    let (counts, lines) = asked(&["inspect", &web, "-q", "--manifest-only"]);
    assert_eq!(counts, [1, 0, 1, 2], "{lines:#?}");
}

#[test]
fn describes_indexes_and_other_images() {
    let mut context = Context::new();
    let registry = context.registry();
    publish_index(&registry, "lib/web", "1.0.0");
    kb_snapshot!(context, ["inspect", registry.reference("lib/web:1.0.0")], @r"
    exit code: 0
    ----- stdout -----
    Reference:   [REGISTRY]/lib/web@sha256:316a3642...
    Digest:      sha256:316a3642...
    Kind:        an index: select one of its images by digest
    Signatures:  none
    Platforms:   3
      linux/arm64 sha256:00000000... 1 bytes
      linux/amd64 sha256:00000000... 1 bytes
      unknown/unknown sha256:00000000... 1 bytes
    ----- stderr -----
    [REGISTRY]/lib/web:1.0.0 is sha256:316a3642...
    ");
    registry.publish("lib/tool", "2.0.0", b"not a tar");
    kb_snapshot!(context, ["inspect", registry.reference("lib/tool:2.0.0")], @r"
    exit code: 0
    ----- stdout -----
    Reference:   [REGISTRY]/lib/tool@sha256:762375c1...
    Digest:      sha256:762375c1...
    Kind:        an image that is not marked as a bundle
    Signatures:  none
    Layers:      1, 9 bytes
      └─ sha256:ea104564... 9 bytes application/vnd.oci.image.layer.v1.tar
    ----- stderr -----
    [REGISTRY]/lib/tool:2.0.0 is sha256:762375c1...
    warning: the layers of the image contain no bundle: cannot pull [REGISTRY]/lib/tool@sha256:762375c1...: the archive cannot be read: failed to read entire block [BUNDLE-REGISTRY-008]
    ");
}

/// Control characters in a bundle must not reach the terminal.
#[test]
fn hostile_texts_are_escaped() {
    let mut context = Context::new();
    let registry = context.registry();
    let layer = r#"{"mediaType":"application/x\u001b[2J","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":18446744073709551615,"annotations":{"a\nb":"\u202eevil\u0007"}}"#;
    let many: Vec<_> = (0..300).map(|n| format!(r#""k{n}":"v""#)).collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","artifactType":"x/\u009b31m","config":{{"mediaType":"application/x","digest":"{ZEROS}","size":2}},"layers":[{layer},{layer}],"annotations":{{"\u001b]0;title\u0007":"Reference: lies\nDigest: lies",{}}}}}"#,
        many.join(",")
    );
    registry.put_manifest("evil/web", "1", MANIFEST, manifest.as_bytes());
    let said = context.stdout(&["inspect", &registry.reference("evil/web:1")]);
    assert!(
        !said.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'),
        "{said:?}"
    );
    assert!(said.contains("lies\\nDigest: lies"), "{said}");
    assert!(said.contains("and 201 more"), "{said}");
    let json = context.stdout(&["inspect", &registry.reference("evil/web:1"), "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["annotations"].as_object().unwrap().len(), 301);
}

#[test]
fn describes_permissions_objects_and_compatibility() {
    let context = Context::new();
    context.write("web/bundle.yaml", PACKAGE);
    context.write("web/manifests/a.yaml", CONFIG_MAP);
    context.write(
        "web/manifests/b.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: default}\nrules: [{apiGroups: [''], resources: [secrets], verbs: [get, list]}]\n",
    );
    kb_snapshot!(context, ["inspect", "web", "--objects", "--kubernetes-version", "1.29.3-eks-1"], @r#"
    exit code: 0
    ----- stdout -----
    Path:        web
    Digest:      sha256:230add76...
    Name:        web
    Version:     1.4.0
    Format:      plain+v0
    Description: A small web page
    Kubernetes:  >=1.31 <1.38 (others: Reject)
    On 1.29.3-eks-1: cannot be installed: bundle web 1.4.0 supports Kubernetes >=1.31 <1.38, but the version of the API server is 1.29.3-eks-1; upgrade the cluster, or use a version of the bundle that supports 1.29
    Layers:      1, 427 bytes
      └─ sha256:1f8fb1e9... 427 bytes application/vnd.oci.image.layer.v1.tar+gzip
    Objects:     2
          1  ConfigMap
          1  Role.rbac.authorization.k8s.io
      ConfigMap/default/web v1
      Role.rbac.authorization.k8s.io/default/r rbac.authorization.k8s.io/v1
    Permissions: required to install
      in namespace default: {apiGroups: [""], resources: ["configmaps"], verbs: ["create", "delete", "patch"]}
      in namespace default: {apiGroups: ["rbac.authorization.k8s.io"], resources: ["roles"], verbs: ["create", "delete", "patch"]}
      in namespace default: {apiGroups: [""], resources: ["secrets"], verbs: ["get", "list"]}
    ----- stderr -----
    "#);
    kb_snapshot!(context, ["inspect", "web", "--manifest-only", "-o", "json", "--kubernetes-version", "v1.34.2"], @r#"
    exit code: 0
    ----- stdout -----
    {
      "path": "web",
      "digest": "sha256:230add76...",
      "kind": "bundle",
      "mediaType": "application/vnd.oci.image.manifest.v1+json",
      "name": "web",
      "version": "1.4.0",
      "format": "plain+v0",
      "kubernetes": {
        "supported": ">=1.31 <1.38",
        "unsupported": "Reject"
      },
      "description": "A small web page",
      "compatibility": {
        "kubernetes": "v1.34.2",
        "installable": true
      },
      "layers": [
        {
          "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
          "digest": "sha256:1f8fb1e9...",
          "bytes": 427
        }
      ]
    }
    ----- stderr -----
    "#);
}
