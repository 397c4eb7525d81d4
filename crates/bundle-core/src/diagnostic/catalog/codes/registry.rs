//! Diagnostic codes: registries and archives.
//! Not here: any other area.

area! {
    UNREACHABLE = "BUNDLE-REGISTRY-001", CannotTell, "the registry does not answer", "The registry could not be reached, or did not answer within the deadline. Nothing was decided from that, and nothing was changed: try again.";
}
