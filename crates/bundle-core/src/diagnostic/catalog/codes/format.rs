//! Diagnostic codes: what is inside a bundle.
//! Not here: any other area.

area! {
    NO_MANIFESTS = "BUNDLE-FORMAT-001", Refused, "there is no manifests folder", "A plain+v0 bundle keeps its manifests in the folder manifests/, beside bundle.yaml.";
}
