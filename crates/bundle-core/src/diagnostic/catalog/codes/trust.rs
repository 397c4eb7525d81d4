//! Diagnostic codes: keys and signatures.
//! Not here: any other area.

area! {
    UNSIGNED = "BUNDLE-TRUST-001", Refused, "a required signature is missing", "The class or a SignaturePolicy asks for a signature, and the registry holds none for this digest. Sign it (kubectl bundle sign --key), or ask its author to.";
    NOT_ACCEPTED = "BUNDLE-TRUST-002", Refused, "no signature is accepted", "The registry holds signatures for this digest, and none of them, or too few, are by a key that the policy (or the --key) names. The message says what each of them is.";
    POLICY_UNREADABLE = "BUNDLE-TRUST-003", Refused, "a SignaturePolicy cannot be read", "A policy with an unknown field, a key that cannot be read, a Secret or ConfigMap that is missing or a trust root that has expired refuses everything it matches; one whose images cannot be read matches everything. Correct the policy.";
    NO_POLICY = "BUNDLE-TRUST-004", Refused, "no SignaturePolicy covers the reference", "The class says signatures: Required, and no SignaturePolicy matches the reference, so nobody has said whose signature would do. Create a SignaturePolicy whose images match it.";
    UNCHECKED = "BUNDLE-TRUST-005", Refused, "installed without a signature check", "A warning: no SignaturePolicy matches the reference, and the class (signatures: IfPolicy) lets it in. For production, use signatures: Required and a SignaturePolicy.";
    UNSIGNABLE = "BUNDLE-TRUST-006", Refused, "content of this source cannot be signed", "The class says signatures: Required, and only images in a registry carry signatures. Build the content into a bundle (kubectl bundle build), push and sign it.";
    CANNOT_TELL = "BUNDLE-TRUST-007", CannotTell, "the signatures could not be looked up", "Whether the content is signed is not known, since the registry or the key could not be read just now. It is neither treated as signed nor remembered as unsigned: try again.";
    KEY_UNREADABLE = "BUNDLE-TRUST-008", Failed, "a key cannot be read", "A public key is PEM text that begins -----BEGIN PUBLIC KEY-----; a private key begins -----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----. kubectl bundle keys generate makes such a pair.";
    KEY_UNSUPPORTED = "BUNDLE-TRUST-009", Failed, "a key of this kind is not supported", "Signing keys are ECDSA P-256 or Ed25519; RSA of 2048 to 8192 bits is accepted for verifying. Others are refused because the tools of the field disagree about them, or because they are too weak.";
    WRONG_PASSWORD = "BUNDLE-TRUST-010", Failed, "the password does not open the key", "The password is wrong, or the key file was damaged: the encryption cannot tell the two apart.";
    SIGNING_FAILED = "BUNDLE-TRUST-011", Failed, "a key or signature could not be made", "The cryptographic library refused to generate a key, encrypt it or sign with it.";
    ANNOTATION_REFUSED = "BUNDLE-TRUST-012", Usage, "an annotation cannot be signed", "What is signed beside the digest is kept small: at most 32 annotations, 4 KiB in all.";
    UNATTESTED = "BUNDLE-TRUST-013", Refused, "a required attestation is missing", "The policy asks its authority for an attestation of a kind (attestations[].predicateType) beside the signature, and the registry holds none that the same authority made for this digest.";
    ROOT_UNREADABLE = "BUNDLE-TRUST-014", Failed, "a trust root cannot be read", "A trust root is the JSON of a trusted_root.json (cosign trusted-root create, or that of a Sigstore instance), at most 1 MiB, with at least one certificate authority and one log. A policy whose trust root cannot be read refuses everything it matches.";
    ROOT_EXPIRED = "BUNDLE-TRUST-015", Refused, "a trust root has expired", "No certificate authority, or no log, of the trust root is valid any more (or yet), so nothing could be signed under it today. A policy with such a root refuses everything it matches: get a fresh one.";
}
