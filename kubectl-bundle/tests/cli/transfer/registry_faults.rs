//! Errors for registries that are unreachable, send wrong content, stall, or end a response early.

use bundle_testkit::registry::Fault;

use crate::context::Context;
use crate::kb_snapshot;

#[test]
fn reports_an_unreachable_registry() {
    let context = Context::new();
    // No process listens on port 9 ("discard").
    kb_snapshot!(context, ["inspect", "127.0.0.1:9/web:1"], @r"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of 127.0.0.1:9/web:1: 127.0.0.1:9 is unreachable (Connection refused (os error 111)) [BUNDLE-REGISTRY-001]
      hint: check that 127.0.0.1:9 is the right host and port, and that it is reachable from this machine
    ");
    kb_snapshot!(context, ["verify", "127.0.0.1:9/web:1", "--key", "nowhere.pub"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: nowhere.pub: cannot read the file [BUNDLE-USAGE-002]
      caused by: no such file or folder
      hint: check the path and its permissions
    ");
}

#[test]
fn reports_registries_with_false_stalled_or_interrupted_responses() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("web:1.4.0");
    context.stdout(&["push", "web", &web]);
    let inspect_within = |limit: &str, fault: Fault| {
        registry.set_fault(Some(fault));
        context.run(&["inspect", &web, "--registry-timeout", limit])
    };
    let inspect = |fault: Fault| inspect_within("30s", fault);
    insta::assert_snapshot!(inspect(Fault::AlteredManifest), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of [REGISTRY]/web:1.4.0: the registry returned content with another digest: expected sha256:4cc7e585..., received sha256:059f1682... [BUNDLE-REGISTRY-004]
      hint: the content was discarded; check the registry, its storage and proxies
    ");
    insta::assert_snapshot!(inspect(Fault::LyingBlob), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/web:1.4.0 is sha256:4cc7e585...
    error: cannot pull [REGISTRY]/web@sha256:4cc7e585...: the registry returned content with another digest: expected sha256:7b4bc785..., received sha256:0302a6ba... [BUNDLE-REGISTRY-004]
      hint: the content was discarded; check the registry, its storage and proxies
    ");
    insta::assert_snapshot!(inspect(Fault::TruncatedBlob), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/web:1.4.0 is sha256:4cc7e585...
    error: cannot pull [REGISTRY]/web@sha256:4cc7e585...: the registry returned content of another size: expected 163 bytes, received 81 [BUNDLE-REGISTRY-004]
      hint: the content was discarded; check the registry, its storage and proxies
    ");
    insta::assert_snapshot!(inspect_within("500ms", Fault::NoResponse), @r"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of [REGISTRY]/web:1.4.0: the registry stopped responding (500 ms) [BUNDLE-REGISTRY-006]
      hint: try again
    ");
    insta::assert_snapshot!(inspect_within("6s", Fault::StallingBlob), @r"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/web:1.4.0 is sha256:4cc7e585...
    error: cannot pull [REGISTRY]/web@sha256:4cc7e585...: the registry stopped responding (6 s) [BUNDLE-REGISTRY-006]
      hint: try again
    ");
    insta::assert_snapshot!(inspect(Fault::Html), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of [REGISTRY]/web:1.4.0: the registry sent text/html, not an image manifest [BUNDLE-REGISTRY-007]
      hint: check that the reference is that of a bundle, and that no proxy responds instead of the registry
    ");
    insta::assert_snapshot!(inspect(Fault::HugeManifest), @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of [REGISTRY]/web:1.4.0: the manifest is larger than the limit of 4 MiB [BUNDLE-REGISTRY-005]
      hint: check that the reference is that of a bundle
    ");
    insta::assert_snapshot!(inspect(Fault::Busy { status: 503, times: 100 }), @r"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    error: cannot read the manifest of [REGISTRY]/web:1.4.0: the registry is overloaded or failing (503: slow down) [BUNDLE-REGISTRY-011]
      hint: try again later
    ");
    // A list that the user has no permission to read is never reported as an empty list.
    insta::assert_snapshot!(inspect(Fault::ReferrersApi(403)), @r#"
    exit code: 0
    ----- stdout -----
    Reference:   [REGISTRY]/web@sha256:4cc7e585...
    Digest:      sha256:4cc7e585...
    Name:        web
    Version:     1.4.0
    Format:      plain+v0
    Description: A small web page
    Kubernetes:  >=1.31 <1.38 (others: Reject)
    Signatures:  unknown: the registry did not respond
    Layers:      1, 325 bytes
      └─ sha256:6a2f0b6f... 325 bytes application/vnd.oci.image.layer.v1.tar+gzip
    Objects:     1
          1  ConfigMap
    Permissions: required to install
      in namespace default: {apiGroups: [""], resources: ["configmaps"], verbs: ["create", "delete", "patch"]}
    ----- stderr -----
    [REGISTRY]/web:1.4.0 is sha256:4cc7e585...
    warning: cannot list the referrers of [REGISTRY]/web@sha256:4cc7e585...: the registry denies access without a login (403: not for you) [BUNDLE-REGISTRY-003]
      hint: log in with credentials for this repository (docker login), or use a pull secret for it
    "#);
}
