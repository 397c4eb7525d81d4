//! Rejected attestations: before a key is opened or a registry is used.

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
    error: sbom.json: this cannot be attested as https://spdx.dev/Document: it has no `spdxVersion` [BUNDLE-TRUST-030]
      hint: is it of the kind that --type says? What is signed wrongly cannot be taken back
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "list.json", "--type", "https://example.com/kind"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: list.json: this cannot be attested as https://example.com/kind: it is JSON, and not an object [BUNDLE-TRUST-030]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "text", "--type", "custom"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: text: this cannot be attested as https://cosign.sigstore.dev/attestation/v1: it is not JSON (expected ident at line 1 column 2) [BUNDLE-TRUST-030]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--predicate", "text", "--type", "https://sigstore.dev/cosign/sign/v1"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --type: it is the predicate of a signature, which is no attestation [BUNDLE-USAGE-001]
    ");
    kb_snapshot!(context, ["verify", REF, "--key", "no.pub", "--attestation", "sbom"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --attestation: it is neither one of custom, slsaprovenance, slsaprovenance02, slsaprovenance1, spdx, spdxjson, cyclonedx, link, vuln, openvex nor a URI of at most 512 bytes [BUNDLE-USAGE-001]
    ");
    kb_snapshot!(context, ["attest", REF, "--key", "no.key", "--password-stdin", "--predicate", "-", "--type", "custom"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --predicate: standard input cannot be both the predicate and a secret [BUNDLE-USAGE-001]
    ");
}
