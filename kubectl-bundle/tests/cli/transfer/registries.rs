//! Tests of `push`, `sign` and `verify` with registries, and of signatures that the user has no
//! permission to read. The module `registry_faults` tests other faults.

use bundle_core::reference::Digest;
use bundle_testkit::registry::{Fault, RoundCount};

use crate::context::Context;
use crate::kb_snapshot;

fn signer() -> Context {
    let context = Context::new()
        .with_bundle()
        .with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "-q"]);
    context
}

/// Replaces the random key hint in outputs by `name`.
fn name_key(context: &mut Context, reference: &str, name: &str) {
    let said = context.stdout(&["verify", reference, "--key", "bundle.pub", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let hint = report["signedBy"][0]["key"].as_str().unwrap().to_owned();
    context.replace(hint, name);
}

#[test]
fn pushes_once_signs_and_verifies() {
    let mut context = signer();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    kb_snapshot!(context, ["push", "web", web], @r"
    exit code: 0
    ----- stdout -----
    [REGISTRY]/team/web@sha256:4cc7e585...
    ----- stderr -----
    pushed [REGISTRY]/team/web:1.4.0 (1184 bytes)
    ");
    kb_snapshot!(context, ["push", "web", web], @r"
    exit code: 0
    ----- stdout -----
    [REGISTRY]/team/web@sha256:4cc7e585...
    ----- stderr -----
    nothing to do: 1.4.0 already refers to sha256:4cc7e585...
    ");
    let unsigned = context.run(&["verify", &web, "--key", "bundle.pub"]);
    assert!(unsigned.starts_with("exit code: 3\n"), "{unsigned}");
    assert!(
        unsigned.contains("the registry has no signature for this digest [BUNDLE-TRUST-001]"),
        "{unsigned}"
    );
    context.stdout(&["sign", &web, "--key", "bundle.key"]);
    name_key(&mut context, &web, "[KEY]");
    kb_snapshot!(context, ["sign", web, "--key", "bundle.key"], @r"
    exit code: 0
    ----- stdout -----
    [REGISTRY]/team/web@sha256:4cc7e585...
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    nothing to do: this signature exists already with bundle.key (ECDSA P-256, [KEY])
    ");
    kb_snapshot!(context, ["verify", web, "--key", "bundle.pub"], @r"
    exit code: 0
    ----- stdout -----
    SIGNED BY    AUTHORITY   SIGNER                                         WHEN      SAYS
    bundle.pub   <none>      [KEY]   unknown   name=web,version=1.4.0
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    verified [REGISTRY]/team/web@sha256:4cc7e585...: 1 signature(s) found; checked: key, digest
    ");
    kb_snapshot!(context, ["verify", web, "--key", "bundle.pub", "-o", "json"], @r#"
    exit code: 0
    ----- stdout -----
    {
      "reference": "[REGISTRY]/team/web:1.4.0",
      "digest": "sha256:4cc7e585...",
      "verified": true,
      "signaturesFound": 1,
      "signedBy": [
        {
          "by": "bundle.pub",
          "key": "[KEY]",
          "checked": [
            "key",
            "digest"
          ],
          "annotations": {
            "name": "web",
            "version": "1.4.0"
          }
        }
      ],
      "findings": []
    }
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    "#);
    kb_snapshot!(context, ["inspect", web], @r#"
    exit code: 0
    ----- stdout -----
    Reference:   [REGISTRY]/team/web@sha256:4cc7e585...
    Digest:      sha256:4cc7e585...
    Name:        web
    Version:     1.4.0
    Format:      plain+v0
    Description: A small web page
    Kubernetes:  >=1.31 <1.38 (others: Reject)
    Signatures:  1 (not verified: see `kubectl bundle verify`): 1 sigstore bundle
    Layers:      1, 325 bytes
      └─ sha256:6a2f0b6f... 325 bytes application/vnd.oci.image.layer.v1.tar+gzip
    Objects:     1
          1  ConfigMap
    Permissions: required to install
      in namespace default: {apiGroups: [""], resources: ["configmaps"], verbs: ["create", "delete", "patch"]}
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    "#);
}

#[test]
fn finds_signatures_among_a_thousand_attestations() {
    let mut context = signer();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    let pushed = context.stdout(&["push", "web", &web]);
    let (_, subject) = pushed.trim().split_once('@').unwrap();
    let bundle = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let manifest = "application/vnd.oci.image.manifest.v1+json";
    let blob = registry.put_blob("team/web", "{}");
    for number in 0..1_000 {
        let text = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": manifest,
            "artifactType": bundle,
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": blob, "size": 2 },
            "layers": [{ "mediaType": bundle, "digest": blob, "size": 2 }],
            "subject": { "mediaType": manifest, "digest": subject, "size": 1 },
            "annotations": {
                "dev.sigstore.bundle.predicateType": "https://slsa.dev/provenance/v1",
                "number": number.to_string(),
            },
        })
        .to_string();
        let digest = Digest::of(text.as_bytes());
        registry.put_manifest("team/web", digest.as_str(), manifest, text.as_bytes());
    }
    let sign = ["sign", &web, "--key", "bundle.key"];
    context.stdout(&sign);
    let again = context.run(&sign);
    assert!(
        again.contains("nothing to do: this signature exists already"),
        "{again}"
    );
    context.stdout(&["verify", &web, "--key", "bundle.pub"]);
}

#[test]
fn tag_is_moved_only_with_the_flag() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("web:stable");
    context.stdout(&["push", "web", &web]);
    context.write(
        "web/manifests/web.yaml",
        crate::context::CONFIG_MAP.replace("hello", "bye"),
    );
    kb_snapshot!(context, ["push", "web", web], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: cannot push [REGISTRY]/web:stable: the tag refers to other content, sha256:4cc7e585... [BUNDLE-REGISTRY-009]
      hint: push under another tag, or move the tag with --overwrite-tag
    ");
    kb_snapshot!(context, ["push", "web", web, "--overwrite-tag"], @r"
    exit code: 0
    ----- stdout -----
    [REGISTRY]/web@sha256:bb0d9128...
    ----- stderr -----
    pushed [REGISTRY]/web:stable (1181 bytes)
    ");
}

#[test]
fn rejects_wrong_keys_and_passwords() {
    let mut context = signer();
    let registry = context.registry();
    let web = registry.reference("web:1.4.0");
    context.stdout(&["push", "web", &web]);
    context.stdout(&["sign", &web, "--key", "bundle.key"]);
    name_key(&mut context, &web, "[KEY]");
    let mut wrong = context.command(&["sign", &web, "--key", "bundle.key"]);
    insta::assert_snapshot!(context.finish(wrong.env("BUNDLE_PASSWORD", "guess")), @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundle.key: cannot decrypt the private key: the password is wrong, or the file is damaged [BUNDLE-TRUST-010]
      hint: pass the password that was used to generate the key
    ");
    kb_snapshot!(context, ["sign", web, "--key", "bundle.pub"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundle.pub: it is a public key, which cannot sign [BUNDLE-TRUST-008]
      hint: pass the private key of the pair, such as cosign.key; the public key is for `kubectl bundle verify REF --key FILE`
    ");
    kb_snapshot!(context, ["sign", web, "--key", "nowhere.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: nowhere.key: cannot read the file [BUNDLE-USAGE-002]
      caused by: no such file or folder
      hint: check the path and its permissions
    ");
    kb_snapshot!(context, ["verify", web, "--key", "bundle.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: bundle.key: invalid public key: it is a private key, but a public key is required; keep the private key secret [BUNDLE-TRUST-008]
      hint: a public key is PEM that begins with -----BEGIN PUBLIC KEY-----; `kubectl bundle keys generate` creates a pair
    ");
    context.stdout(&["keys", "generate", "--output-key-prefix", "other", "-q"]);
    let refused = context.run(&["verify", &web, "--key", "other.pub"]);
    assert!(refused.starts_with("exit code: 3\n"), "{refused}");
    assert!(
        refused.contains("one by another key (key hint [KEY])"),
        "{refused}"
    );
    assert!(refused.contains("[BUNDLE-TRUST-002]"), "{refused}");
}

#[test]
fn verifies_within_three_rounds_of_requests() {
    let mut context = signer();
    let registry = context.registry();
    let pinned = context.stdout(&["push", "web", &registry.reference("team/web:1.4.0")]);
    context.stdout(&["sign", &pinned, "--key", "bundle.key"]);
    registry.count_rounds();
    context.stdout(&["verify", &pinned, "--key", "bundle.pub"]);
    // The first round has `GET /v2/`, the list of referrers and three tags. The second round has
    // the manifest of the signature, and the third round has the signature.
    let (rounds, requests) = (3, 7);
    assert_eq!(registry.rounds(), RoundCount { rounds, requests });
}

#[test]
fn verifies_against_policies() {
    let mut context = signer();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    let key = std::fs::read_to_string(context.path().join("bundle.pub")).unwrap();
    let key = key.trim_end().replace('\n', "\n        ");
    let host = registry.host();
    context.write(
        "policy.yaml",
        format!(
            "apiVersion: core.rukpak.io/v1alpha1\nkind: SignaturePolicy\nmetadata: {{name: releases}}\nspec:\n  images: [{{glob: \"{host}/team/**\"}}]\n  authorities:\n  - name: release-key\n    key:\n      data: |\n        {key}\n"
        ),
    );
    kb_snapshot!(context, ["verify", web, "--policy", "policy.yaml"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    error: [REGISTRY]/team/web@sha256:4cc7e585...: SignaturePolicy/releases requires a signature by `release-key`, but the registry has no signature for this digest [BUNDLE-TRUST-001]
      hint: sign it with an accepted key: kubectl bundle sign --key KEY [REGISTRY]/team/web@sha256:4cc7e585...
    ");
    let policy = std::fs::read_to_string(context.path().join("policy.yaml")).unwrap();
    context.write("lenient.yaml", format!("{policy}  mode: warn\n"));
    kb_snapshot!(context, ["verify", web, "--policy", "lenient.yaml"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    error: [REGISTRY]/team/web@sha256:4cc7e585...: SignaturePolicy/releases requires a signature by `release-key`, but the registry has no signature for this digest [BUNDLE-TRUST-001]
      hint: sign it with an accepted key: kubectl bundle sign --key KEY [REGISTRY]/team/web@sha256:4cc7e585...
    ");
    context.stdout(&["sign", &web, "--key", "bundle.key"]);
    name_key(&mut context, &web, "[KEY]");
    kb_snapshot!(context, ["verify", web, "--policy", "policy.yaml"], @r"
    exit code: 0
    ----- stdout -----
    SIGNED BY   AUTHORITY     SIGNER                                         WHEN      SAYS
    releases    release-key   [KEY]   unknown   <none>
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    verified [REGISTRY]/team/web@sha256:4cc7e585...: 1 signature(s) found; checked: key, digest
    ");
    context.write("others.yaml", policy.replace("/team/**", "/others/**"));
    kb_snapshot!(context, ["verify", web, "--policy", "others.yaml"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    error: [REGISTRY]/team/web@sha256:4cc7e585...: none of these SignaturePolicies matches [REGISTRY]/team/web, so nothing was verified [BUNDLE-TRUST-004]
      hint: check images[].glob in the policies
    ");
    kb_snapshot!(context, ["policy", "test", "others.yaml", "--image", web], @r"
    exit code: 3
    ----- stdout -----
    POLICY     MODE      DECISION   SIGNED BY
    releases   enforce   no match   <none>
    ----- stderr -----
    [REGISTRY]/team/web:1.4.0 is sha256:4cc7e585...
    error: [REGISTRY]/team/web@sha256:4cc7e585...: none of these SignaturePolicies matches [REGISTRY]/team/web, so nothing was verified [BUNDLE-TRUST-004]
      hint: check images[].glob in the policies
    ");
    let hub = policy.replace(&format!("{host}/team/**"), "docker.io/*");
    context.write("hub.yaml", hub);
    kb_snapshot!(context, ["policy", "test", "hub.yaml", "--image", web], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: hub.yaml: SignaturePolicy/releases: spec.images[0].glob: `docker.io/*` matches no reference: on Docker Hub, every repository has two components, and official images are library/NAME (did you mean `docker.io/library/*`?); a policy with an invalid pattern matches every reference [BUNDLE-TRUST-003]
      hint: the policy rejects every matching reference until it is corrected
    ");
    context.write("wrong.yaml", "kind: SignaturePolicy\nmetadata: {name: x}\nspec: {images: [], mode: lax}\n---\nkind: Namespace\n");
    kb_snapshot!(context, ["verify", web, "--policy", "wrong.yaml"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: wrong.yaml: SignaturePolicy/x: spec.images: it is empty, so the policy matches every reference [BUNDLE-TRUST-003]
      hint: the policy rejects every matching reference until it is corrected
    error: wrong.yaml: SignaturePolicy/x: spec.mode: it is neither `enforce` nor `warn` [BUNDLE-TRUST-003]
      hint: the policy rejects every matching reference until it is corrected
    error: wrong.yaml: SignaturePolicy/x: spec.authorities: it is empty, so no signature satisfies the policy [BUNDLE-TRUST-003]
      hint: the policy rejects every matching reference until it is corrected
    error: wrong.yaml:5: this is Namespace, not a SignaturePolicy [BUNDLE-TRUST-003]
      hint: pass files with SignaturePolicies, and with the Secrets and ConfigMaps that they reference
    ");
}

#[test]
fn reference_requires_registry_and_tag_or_digest() {
    let context = Context::new().with_bundle();
    kb_snapshot!(context, ["push", "web", "web:1.4.0"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: invalid reference `web:1.4.0`: it has no registry [BUNDLE-REFERENCE-001]
      hint: write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0
    ");
    kb_snapshot!(context, ["sign", "registry.example.com/web@sha256:abc", "--key", "bundle.key"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `sha256:abc` is not a digest [BUNDLE-REFERENCE-002]
      hint: a digest is `sha256:` followed by 64 lower-case hexadecimal digits
    ");
    kb_snapshot!(context, ["deploy", "web", "registry.example.com/web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: invalid reference `registry.example.com/web`: it has neither a tag nor a digest, and there is no default [BUNDLE-REFERENCE-001]
      hint: write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0
    ");
}

#[test]
fn forbidden_signatures_are_never_reported_as_missing() {
    let mut context = signer();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    context.stdout(&["push", "web", &web]);
    let key = std::fs::read_to_string(context.path().join("bundle.pub")).unwrap();
    let key = key.trim_end().replace('\n', "\n        ");
    context.write(
        "policy.yaml",
        format!(
            "apiVersion: core.rukpak.io/v1alpha1\nkind: SignaturePolicy\nmetadata: {{name: releases}}\nspec:\n  images: [{{glob: \"**\"}}]\n  authorities:\n  - key:\n      data: |\n        {key}\n"
        ),
    );
    for (api, list, older) in [(403, 404, 404), (404, 401, 404), (404, 404, 403)] {
        registry.set_fault(Some(Fault::SignatureLocations { api, list, older }));
        for asked in [
            ["verify", &web, "--policy", "policy.yaml"].as_slice(),
            &["policy", "test", "policy.yaml", "--image", &web],
            &["verify", &web, "--key", "bundle.pub"],
        ] {
            let said = context.run(asked);
            let by_policy = said.starts_with("exit code: 4\n") && said.contains("BUNDLE-TRUST-");
            let by_key = said.starts_with("exit code: 1\n") || said.starts_with("exit code: 4\n");
            assert!(
                if asked.contains(&"--key") {
                    by_key
                } else {
                    by_policy
                },
                "{said}"
            );
            assert!(said.contains("denies access"), "{said}");
            assert!(
                !said.contains("BUNDLE-TRUST-001") && !said.contains("holds no"),
                "{said}"
            );
        }
    }
    registry.set_fault(None);
    let unsigned = context.run(&["verify", &web, "--policy", "policy.yaml"]);
    assert!(unsigned.contains("BUNDLE-TRUST-001"), "{unsigned}");
}

#[test]
fn level_6_prints_each_request_and_level_7_its_headers_without_credentials() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = registry.reference("team/web:1.4.0");
    let quiet = context.run(&["push", "web", &web, "--verbose"]);
    assert!(!quiet.contains("HEAD http"), "{quiet}");
    let requests = context.run(&["inspect", &web, "-v=6"]);
    let line = requests
        .lines()
        .find(|line| line.contains("/v2/team/web/manifests/1.4.0"))
        .unwrap_or_else(|| panic!("{requests}"));
    assert!(
        line.starts_with("GET http://") || line.starts_with("HEAD http://"),
        "{line}"
    );
    assert!(
        line.contains(" 200 OK in ") && line.ends_with(" milliseconds"),
        "{line}"
    );
    assert!(!requests.contains("    accept: "), "{requests}");
    let headers = context.run(&["inspect", &web, "--v=7"]);
    assert!(headers.contains("    accept: "), "{headers}");
}
