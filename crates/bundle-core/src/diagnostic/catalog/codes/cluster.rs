//! Diagnostic codes: talking to a cluster, and installing on it.
//! Not here: any other area.

area! {
    UNREACHABLE = "BUNDLE-CLUSTER-001", CannotTell, "the cluster does not answer", "The API server that the kubeconfig names could not be reached. Nothing was changed.";
}
