//! Bundles on disk: reproducible builds, and rejected content.

use crate::context::{CONFIG_MAP, Context, PACKAGE};
use crate::kb_snapshot;

#[test]
fn builds_the_same_digest_every_time() {
    let context = Context::new().with_bundle();
    kb_snapshot!(context, ["build", "web"], @r"
    exit code: 0
    ----- stdout -----
    sha256:4cc7e585...
    ----- stderr -----
    web 1.4.0: 1 object, 1184 bytes, in web-1.4.0.oci
    ");
    kb_snapshot!(context, ["build", "web", "--to", "again", "-o", "json"], @r#"
    exit code: 0
    ----- stdout -----
    {
      "digest": "sha256:4cc7e585...",
      "name": "web",
      "version": "1.4.0",
      "format": "plain+v0",
      "objects": 1,
      "bytes": 1184,
      "layout": "again"
    }
    ----- stderr -----
    web 1.4.0: 1 object, 1184 bytes, in again
    "#);
    // Users pin this digest: it changes only with the format of bundles.
    assert_eq!(
        context.stdout(&["build", "web", "--dry-run", "-q"]),
        "sha256:4cc7e5851afb019dfaebef7e1f01d8dd6fa2bd0059836b4eef75e8ade4458e5f"
    );
    kb_snapshot!(context, ["inspect", "web-1.4.0.oci"], @r#"
    exit code: 0
    ----- stdout -----
    Path:        web-1.4.0.oci
    Digest:      sha256:4cc7e585...
    Name:        web
    Version:     1.4.0
    Format:      plain+v0
    Description: A small web page
    Kubernetes:  >=1.31 <1.38 (others: Reject)
    Signatures:  none
    Layers:      1, 325 bytes
      └─ sha256:6a2f0b6f... 325 bytes application/vnd.oci.image.layer.v1.tar+gzip
    Objects:     1
          1  ConfigMap
    Permissions: required to install
      in namespace default: {apiGroups: [""], resources: ["configmaps"], verbs: ["create", "delete", "patch"]}
    ----- stderr -----
    "#);
    kb_snapshot!(context, ["inspect", "web", "-o", "yaml", "--manifest-only"], @r#"
    exit code: 0
    ----- stdout -----
    description: A small web page
    digest: sha256:4cc7e585...
    format: plain+v0
    kind: bundle
    kubernetes:
      supported: ">=1.31 <1.38"
      unsupported: Reject
    layers:
    - bytes: 325
      digest: sha256:6a2f0b6f...
      mediaType: application/vnd.oci.image.layer.v1.tar+gzip
    mediaType: application/vnd.oci.image.manifest.v1+json
    name: web
    path: web
    version: "1.4.0"
    ----- stderr -----
    "#);
}

#[test]
fn reports_all_errors_at_once() {
    let context = Context::new();
    context.write("web/bundle.yaml", PACKAGE.replace("plain+v0", "plain+v9"));
    context.write("web/manifests/a.yaml", CONFIG_MAP);
    context.write("web/manifests/b.yaml", CONFIG_MAP);
    context.write("web/manifests/c.yaml", "kind: ConfigMap\nkind: Secret\n");
    kb_snapshot!(context, ["build", "web"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/bundle.yaml:5: format: detected unsupported bundle format "plain+v9" [BUNDLE-FORMAT-014]
      hint: did you mean `plain+v0`?
    error: web/manifests/c.yaml:2: the key `kind` appears twice [BUNDLE-FORMAT-005]
      hint: remove one of the two: parsers disagree about which one applies
    error: web/manifests/b.yaml:1: ConfigMap/default/web: the same object is at manifests/a.yaml:1 already [BUNDLE-FORMAT-010]
      hint: remove or rename one of the two
    "#);
    assert!(!context.path().join("web-1.4.0.oci").exists());
}

/// Invalid content of `manifests/`, each with the expected error.
#[test]
fn rejects_invalid_manifests() {
    let build = |content: &[u8]| {
        let context = Context::new();
        context.write("web/bundle.yaml", PACKAGE);
        context.write("web/manifests/web.yaml", content);
        let said = context.run(&["build", "web"]);
        assert!(!context.path().join("web-1.4.0.oci").exists());
        said
    };
    insta::assert_snapshot!(build(b""), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    warning: web/manifests/web.yaml: the file has no document [BUNDLE-FORMAT-006]
      hint: add an object, or remove the file
    error: invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object [BUNDLE-FORMAT-013]
      hint: add at least one manifest to manifests/
    ");
    insta::assert_snapshot!(build(b"# nothing\n---\n"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    warning: web/manifests/web.yaml: the file has no document [BUNDLE-FORMAT-006]
      hint: add an object, or remove the file
    error: invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object [BUNDLE-FORMAT-013]
      hint: add at least one manifest to manifests/
    ");
    insta::assert_snapshot!(build(b"\t{{ not yaml"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: invalid YAML: unclosed bracket '{' [BUNDLE-FORMAT-002]
      hint: manifests are YAML or JSON; `kubectl apply --dry-run=client -f` parses the file in the same way
    ");
    insta::assert_snapshot!(build(b"\xff\xfe\x00"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: invalid YAML: the file is not UTF-8 [BUNDLE-FORMAT-002]
      hint: manifests are YAML or JSON, in UTF-8
    ");
    insta::assert_snapshot!(build(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:4: the key `a` appears twice [BUNDLE-FORMAT-005]
      hint: remove one of the two: parsers disagree about which one applies
    ");
    insta::assert_snapshot!(build(b"metadata: {}\n---\napiVersion: v1\nmetadata: {name: a}\n"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: apiVersion: the field is missing [BUNDLE-FORMAT-008]
      hint: each object has apiVersion, kind and metadata.name
    error: web/manifests/web.yaml:1: kind: the field is missing [BUNDLE-FORMAT-008]
      hint: each object has apiVersion, kind and metadata.name
    error: web/manifests/web.yaml:1: metadata.name: the field is missing [BUNDLE-FORMAT-008]
      hint: each object has apiVersion, kind and metadata.name
    error: web/manifests/web.yaml:3: kind: the field is missing [BUNDLE-FORMAT-008]
      hint: each object has apiVersion, kind and metadata.name
    ");
    insta::assert_snapshot!(build(b"apiVersion: v1\nkind: List\nitems: {}\n"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: the items of a List must be a list of objects [BUNDLE-FORMAT-009]
      hint: write the objects as separate documents, with `---` between them
    ");
    insta::assert_snapshot!(build(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default, ownerReferences: [{name: b}]}\n"), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:1: ConfigMap/a: metadata.ownerReferences: an object of a bundle must not have an owner [BUNDLE-FORMAT-026]
      hint: remove metadata.ownerReferences: they contain UIDs, which differ in each cluster
    ");
    insta::assert_snapshot!(build(&vec![b'#'; (10 << 20) + 1]), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml: `manifests/web.yaml` has 10 MiB, and the limit for a file of a bundle is 8 MiB [BUNDLE-REGISTRY-005]
      hint: Kubernetes cannot store objects over 1.5 MiB: split the file, or move the data to a separate artifact
    ");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = level - 1;
        let nine = vec![format!("*a{below}"); 9].join(", ");
        bomb = format!("{bomb}a{level}: &a{level} [{nine}]\n");
    }
    insta::assert_snapshot!(build(bomb.as_bytes()), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/web.yaml:5: the document has anchors and aliases that expand to more than 24000 values (8000 with a merge key) [BUNDLE-FORMAT-004]
      hint: write the values without aliases, or split the document
    ");
}

#[test]
fn rejects_invalid_folders() {
    let context = Context::new();
    kb_snapshot!(context, ["build", "nowhere"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: nowhere: no such file or directory [BUNDLE-USAGE-002]
      hint: pass a folder that contains bundle.yaml and manifests/, or an OCI layout
    ");
    context.write("empty/bundle.yaml", PACKAGE);
    kb_snapshot!(context, ["build", "empty"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: get objects from bundle manifests: readdir manifests: file does not exist [BUNDLE-FORMAT-001]
      hint: create the folder `manifests` next to bundle.yaml, and move the YAML files into it
    ");
    context.write("bare/manifests/web.yaml", CONFIG_MAP);
    kb_snapshot!(context, ["build", "bare"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: bare/bundle.yaml: bundle.yaml is missing, so the bundle has neither name nor version [BUNDLE-FORMAT-015]
      hint: create bundle.yaml with `kubectl bundle init`, or set --name and --version
    ");
    context.write("deep/bundle.yaml", PACKAGE);
    context.write("deep/manifests/more/web.yaml", CONFIG_MAP);
    kb_snapshot!(context, ["build", "deep"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: get objects from bundle manifests: subdirectories are not allowed within the "manifests" directory of the bundle image filesystem: found "manifests/more" [BUNDLE-FORMAT-012]
      hint: move and rename the files, for example `mv manifests/more/web.yaml manifests/more-web.yaml`, or move the folder out of manifests/
    "#);
    context.write("hollow/bundle.yaml", PACKAGE);
    context.write("hollow/manifests/web.yaml", CONFIG_MAP);
    std::fs::create_dir_all(context.path().join("hollow/manifests/none")).unwrap();
    kb_snapshot!(context, ["build", "hollow"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: get objects from bundle manifests: subdirectories are not allowed within the "manifests" directory of the bundle image filesystem: found "manifests/none" [BUNDLE-FORMAT-012]
      hint: remove the empty folder
    "#);
    context.write("nothing/bundle.yaml", PACKAGE);
    std::fs::create_dir_all(context.path().join("nothing/manifests")).unwrap();
    kb_snapshot!(context, ["build", "nothing"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object [BUNDLE-FORMAT-013]
      hint: add at least one manifest to manifests/
    ");
    context.write("odd/bundle.yaml", format!("{PACKAGE}colour: red\n"));
    context.write("odd/manifests/web.yaml", CONFIG_MAP);
    kb_snapshot!(context, ["build", "odd"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: odd/bundle.yaml:8: colour: unknown field `colour` [BUNDLE-FORMAT-015]
      hint: the allowed fields are apiVersion, kind, name, version, format, description, kubernetes, requires, upgrades, images, config, resources, probes, maintainers, links, icon, keywords, security, source, revision, licenses, url
    ");
}

#[cfg(unix)]
#[test]
fn rejects_symbolic_links() {
    let context = Context::new().with_bundle();
    std::os::unix::fs::symlink("/etc/passwd", context.path().join("web/manifests/x.yaml")).unwrap();
    kb_snapshot!(context, ["build", "web"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/x.yaml: `manifests/x.yaml` is a symbolic link; a bundle must contain the file itself [BUNDLE-REGISTRY-010]
      hint: replace it with a regular file, or remove it from the bundle
    ");
}

#[test]
fn overwrites_only_layouts() {
    let context = Context::new().with_bundle();
    context.write("mine/letter.txt", "dear Ana");
    kb_snapshot!(context, ["build", "web", "--to", "mine"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: cannot write the OCI layout `mine`: the path exists and is not an OCI layout [BUNDLE-USAGE-003]
      hint: choose a folder that does not exist; nothing was overwritten
    ");
    assert!(context.path().join("mine/letter.txt").exists());
}

#[test]
fn reports_objects_that_a_cluster_would_reject() {
    let context = Context::new().with_bundle();
    context.write(
        "web/manifests/old.yaml",
        "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: web, namespace: default}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {name: web, namespace: web}\n",
    );
    kb_snapshot!(context, ["build", "web", "--dry-run"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    warning: web/manifests/old.yaml:5: Namespace/web: metadata.namespace: Namespace is cluster-scoped: namespace `web` is ignored, as the API server ignores it [BUNDLE-CHECK-010]
      hint: remove the field
    error: web/manifests/old.yaml:1: PodDisruptionBudget.policy/default/web: policy/v1beta1/PodDisruptionBudget is not served since Kubernetes 1.25, and the bundle supports >=1.31 <1.38 [BUNDLE-CHECK-001]
      hint: use policy/v1/PodDisruptionBudget
    ");
}

#[test]
fn reports_builtin_objects_that_server_side_apply_would_reject() {
    let context = Context::new().with_bundle();
    context.write(
        "web/manifests/app.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec:\n  replicas: '2'\n\
         \x20 selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: [\n\
         \x20   {name: a, image: 'b:1', env: [{name: A}, {name: A}], imagePullPolicy: always, resource: {}}]}}\n",
    );
    kb_snapshot!(context, ["build", "web", "--dry-run"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: web/manifests/app.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].resource: unknown field; did you mean `resources`? [BUNDLE-CHECK-013]
      hint: `kubectl explain deployment --api-version=apps/v1 --recursive` shows the fields
    error: web/manifests/app.yaml:1: Deployment.apps/default/web: spec.replicas: "2" is of type string, but must be integer [BUNDLE-CHECK-013]
      hint: `kubectl explain deployment --api-version=apps/v1 --recursive` shows the fields
    error: web/manifests/app.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].imagePullPolicy: "always" is not one of "Always", "IfNotPresent", "Never" [BUNDLE-CHECK-013]
      hint: `kubectl explain deployment --api-version=apps/v1 --recursive` shows the fields
    error: web/manifests/app.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].env[1]: an item with the key {"name":"A"} appears twice [BUNDLE-CHECK-013]
      hint: `kubectl explain deployment --api-version=apps/v1 --recursive` shows the fields
    "#);
}

#[test]
fn warns_of_fields_that_are_ignored_or_need_a_decision() {
    let context = Context::new().with_bundle();
    context.write(
        "web/manifests/app.yaml",
        "# Generated.\napiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, creationTimestamp: null}, spec: {replicas: 2, strategy: null, selector: {matchLabels: {a: b}},\n\
         \x20   template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'b:1'}]}}}}\n\
         - {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}\n",
    );
    context.write("web/manifests/notes.yaml", "# Nothing yet.\n");
    kb_snapshot!(context, ["build", "web", "--dry-run"], @r"
    exit code: 0
    ----- stdout -----
    sha256:75c1f21c...
    ----- stderr -----
    warning: web/manifests/notes.yaml: the file has no document [BUNDLE-FORMAT-006]
      hint: add an object, or remove the file
    warning: 2 objects have no namespace: Deployment.apps/web, HorizontalPodAutoscaler.autoscaling/web [BUNDLE-CHECK-010]
      hint: set spec.targetNamespace of the BundleDeployment to the namespace for these objects, or set the namespace in the manifests
    warning: web/manifests/app.yaml:2: Deployment.apps/web: spec.replicas: HorizontalPodAutoscaler.autoscaling/web scales the object, and the manifest also sets the number of replicas [BUNDLE-CHECK-014]
      hint: remove spec.replicas, or deploy the bundle with spec.drift.ignore: [{kind: Deployment.apps, name: web, fields: [/spec/replicas]}]
    web 1.4.0: 3 objects, 1459 bytes, nothing written
    image b:1 (Deployment.apps/web: spec.template.spec.containers[0].image)
    ");
}
