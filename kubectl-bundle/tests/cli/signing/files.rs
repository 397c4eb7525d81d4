//! Signed files: rejected input, and files that must not exist after an error.

use crate::context::Context;
use crate::kb_snapshot;

#[test]
fn rejects_input_that_is_not_a_regular_file() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    context.write("empty", "");
    context.write("web.tar", "content");
    std::fs::create_dir(context.path().join("folder")).unwrap();
    kb_snapshot!(context, ["sign", "missing", "--bundle", "b.json", "--key", "release.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: missing: cannot read the file [BUNDLE-USAGE-002]
      caused by: no such file or folder
      hint: check the path and its permissions
    ");
    kb_snapshot!(context, ["sign", "folder", "--bundle", "b.json", "--key", "release.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: folder: not a regular file, but a folder, a pipe or a device [BUNDLE-USAGE-002]
      hint: --bundle requires a regular file, such as an archive of `save`
    ");
    kb_snapshot!(context, ["sign", "empty", "--bundle", "b.json", "--key", "release.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: empty: the file is empty [BUNDLE-USAGE-002]
      hint: check that the path is correct
    ");
    // The first file is a device whose content never ends. The second file has more content than
    // its reported size.
    #[cfg(target_os = "linux")]
    for (file, why) in [
        ("/dev/zero", "a pipe or a device"),
        ("/proc/version", "changed while it was read"),
    ] {
        let refused = context.run(&["sign", file, "--bundle", "b.json", "--key", "release.key"]);
        assert!(
            refused.contains("BUNDLE-USAGE-002") && refused.contains(why),
            "{file}: {refused}"
        );
    }
    kb_snapshot!(context, ["sign", "web.tar", "--key", "release.key"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: invalid reference `web.tar`: it has no registry [BUNDLE-REFERENCE-001]
      hint: this is a file; add the path of its signature: --bundle web.tar.sigstore.json
    ");
    // This file could be presented as the signature payload of an image.
    context.write("manifest.json", r#"{"schemaVersion":2,"layers":[]}"#);
    kb_snapshot!(context, ["sign", "manifest.json", "--bundle", "b.json", "--key", "release.key"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: manifest.json: a signature of this file would also be valid for an image: the file is the manifest of an image, or a parser could accept it as such [BUNDLE-TRUST-060]
      hint: sign the image (kubectl bundle sign REFERENCE), or an archive that contains the file; check the origin of the file
    ");
    context.write("predicate.json", "{}");
    kb_snapshot!(context, ["attest", "manifest.json", "--bundle", "b.json", "--type", "https://example.com/kind", "--predicate", "predicate.json", "--key", "release.key"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: manifest.json: an attestation of this file would also be valid for an image: the file is an image manifest, or a parser could accept it as such [BUNDLE-TRUST-060]
      hint: attest the image (kubectl bundle attest REFERENCE), or an archive that contains the file; check the origin of the file
    ");
    assert!(!context.path().join("b.json").exists());
    kb_snapshot!(context, ["sign", "web.tar", "--bundle", "release.pub", "--key", "release.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: release.pub: the file already exists [BUNDLE-USAGE-003]
      hint: nothing was signed; --force overwrites it
    ");
    kb_snapshot!(context, ["sign", "web.tar", "--bundle", "./web.tar", "--force", "--key", "release.key"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: ./web.tar: the signature would overwrite the file itself [BUNDLE-USAGE-003]
      hint: nothing was signed; use another file with --bundle
    ");
    // With a private certificate authority, the log of the public instance is not used, because its
    // entries are public.
    kb_snapshot!(context, ["sign", "web.tar", "--bundle", "b.json", "--identity-token", "x", "--fulcio-url", "https://fulcio.example.com"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the transparency log is not set: the public log is not used with another certificate authority [BUNDLE-USAGE-001]
      hint: set --fulcio-url and --rekor-url, or --signing-config
    ");
}

/// cosign reads payloads up to 128 MiB, which is more than the limit for other files in memory.
#[test]
fn rejects_signature_payloads_of_any_size_as_files() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    let room = 33 << 20;
    let object = |name: &str| format!("{{\"x\":\"{}\",\"{name}\":{{}}}}", "x".repeat(room));
    let envelope = format!(
        "DSSEv1 28 application/vnd.in-toto+json {}",
        " ".repeat(room)
    );
    for (content, refused) in [
        (object("critical"), true),
        (envelope, true),
        (object("name"), false),
    ] {
        context.write("large", content);
        let told = context.run(&[
            "sign",
            "large",
            "--bundle",
            "b.json",
            "--key",
            "release.key",
        ]);
        assert_eq!(told.contains("BUNDLE-TRUST-060"), refused, "{told}");
        assert_eq!(context.path().join("b.json").exists(), !refused);
    }
}

#[test]
fn force_replaces_only_sigstore_bundles() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    context.write("web.tar", "content");
    context.write("predicate.json", "{}");
    let read = |file: &str| std::fs::read(context.path().join(file)).unwrap();
    let sign = ["sign", "web.tar", "--force", "--key", "release.key"];
    let kind = "https://example.com/kind";
    let attest = ["attest", "web.tar", "--force", "--key", "release.key"];
    let attest = [
        &attest[..],
        &["--type", kind, "--predicate", "predicate.json"],
    ]
    .concat();
    for there in ["release.key", "predicate.json"] {
        let before = read(there);
        for line in [&sign[..], &attest] {
            let refused = context.run(&[line, &["--bundle", there]].concat());
            let why = format!("error: {there}: the file exists and is not a Sigstore bundle");
            assert!(
                refused.contains(&why) && refused.contains("nothing was signed"),
                "{refused}"
            );
        }
        assert_eq!(read(there), before);
    }
    // The first command writes a new file. The second command replaces an existing Sigstore bundle.
    context.stdout(&[&sign[..], &["--bundle", "b.json"]].concat());
    let before = read("b.json");
    context.stdout(&[&attest[..], &["--bundle", "b.json"]].concat());
    assert_ne!(read("b.json"), before);
    let verify = [
        "verify",
        "web.tar",
        "--bundle",
        "b.json",
        "--key",
        "release.pub",
    ];
    let verified = context.run(&[&verify[..], &["--attestation", kind]].concat());
    let note = "an attestation is not a signature: signatures were not verified";
    assert!(
        verified.contains("exit code: 0") && verified.contains(note),
        "{verified}"
    );
}

#[test]
fn verifies_a_signed_file() {
    let context = Context::new().with("BUNDLE_PASSWORD", "secret");
    context.stdout(&["keys", "generate", "--output-key-prefix", "release"]);
    context.write("web.tar", "content");
    let signed = context.stdout(&[
        "sign",
        "web.tar",
        "--bundle",
        "b.json",
        "--key",
        "release.key",
    ]);
    assert_eq!(signed.trim(), "b.json");
    context.stdout(&[
        "verify",
        "web.tar",
        "--bundle",
        "b.json",
        "--key",
        "release.pub",
    ]);
    context.write("web.tar", "changed");
    let refused = context.run(&[
        "verify",
        "web.tar",
        "--bundle",
        "b.json",
        "--key",
        "release.pub",
    ]);
    assert!(
        refused.contains("exit code: 3") && refused.contains("for another digest"),
        "{refused}"
    );
    for damaged in ["", "{}", "[", "null"] {
        context.write("b.json", damaged);
        let refused = context.run(&[
            "verify",
            "web.tar",
            "--bundle",
            "b.json",
            "--key",
            "release.pub",
        ]);
        assert!(refused.contains("BUNDLE-TRUST-002"), "{damaged}: {refused}");
    }
}
