//! Diagnostic codes: keys and signatures.
//! Not here: any other area.

area! {
    UNSIGNED = "BUNDLE-TRUST-001", Refused, "a required signature is missing", "The class or a SignaturePolicy asks for a signature, and the registry holds none for this digest.";
}
