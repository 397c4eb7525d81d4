//! Attestations that are rejected before a key is opened or a request is sent.

use crate::context::Context;
use crate::kb_snapshot;

const REF: &str = "registry.example.com/team/web:1.4.0";

#[test]
fn rejects_invalid_attestations_before_any_request() {
    let context = Context::new();
    context.write("sbom.json", r#"{"bomFormat":"CycloneDX"}"#);
    context.write("list.json", "[1]");
    context.write("text", "not JSON");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "sbom.json", "--type", "spdxjson"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: sbom.json: invalid predicate for type https://spdx.dev/Document: the field `spdxVersion` is missing [BUNDLE-TRUST-030]
      hint: check that the file is a predicate of the type that --type selects
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "list.json", "--type", "https://example.com/kind"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: list.json: invalid predicate for type https://example.com/kind: it is not a JSON object [BUNDLE-TRUST-030]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "text", "--type", "custom"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: text: invalid predicate for type https://cosign.sigstore.dev/attestation/v1: invalid JSON (expected ident at line 1 column 2) [BUNDLE-TRUST-030]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "text", "--type", "https://sigstore.dev/cosign/sign/v1"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --type: it is the predicate type of a signature, not of an attestation [BUNDLE-USAGE-001]
    ");
    kb_snapshot!(context, ["verify", REF, "--key", "no.pub", "--attestation", "sbom"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --attestation: it is not one of custom, slsaprovenance, slsaprovenance02, slsaprovenance1, spdx, spdxjson, cyclonedx, link, vuln, openvex, and not a URI of at most 512 bytes [BUNDLE-USAGE-001]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--password-stdin", "--predicate", "-", "--type", "custom"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --predicate: standard input cannot be both the predicate and a secret [BUNDLE-USAGE-001]
    ");
}
