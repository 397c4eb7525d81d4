//! Diagnostic codes: what admission decides.
//! Not here: any other area.

area! {
    SPEC_IMMUTABLE = "BUNDLE-REVIEW-001", Refused, "the spec of a Bundle does not change", "A Bundle is what it was when it was admitted. To install other content, create another Bundle, or change the template of a BundleDeployment.";
}
