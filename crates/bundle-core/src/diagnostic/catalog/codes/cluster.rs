//! Diagnostic codes of requests to a cluster and of installing the webhook.

area! {
    UNREACHABLE = "BUNDLE-CLUSTER-001", CannotTell, "the cluster does not answer", "The API server that the kubeconfig names could not be reached. Nothing was changed.";
    BAD_KUBECONFIG = "BUNDLE-CLUSTER-002", Usage, "the kubeconfig cannot be used", "The file, the context or the user that was asked for does not exist, or cannot be read. The message names it, and the contexts that there are.";
    BAD_ANSWER = "BUNDLE-CLUSTER-003", Failed, "the API server's answer cannot be read", "What answered at the address of the kubeconfig does not speak as a Kubernetes API server does.";
    WAIT_TIMEOUT = "BUNDLE-CLUSTER-004", CannotTell, "the wait ended too early", "What was asked for is written, but did not come true in the time given. The conditions of the object say what is in the way; the work goes on without the waiting command.";
    NO_API = "BUNDLE-CLUSTER-005", Failed, "the cluster does not know our kinds", "The CustomResourceDefinitions of core.rukpak.io are not installed in this cluster, or it is not the cluster that was meant.";
    DELETED_MEANWHILE = "BUNDLE-CLUSTER-006", Failed, "an object was deleted while a command waited for it", "Somebody deleted the object after the command had written it. Nothing waits for it any more.";
    STOPPED = "BUNDLE-CLUSTER-007", Refused, "a wait ended because nothing goes on without a change", "The object is written, and its conditions name a cause that no time heals, such as spec.paused. Change what the message names; the wait did not go on, since it would only have ended later.";
    OBJECTS_UNREAD = "BUNDLE-CLUSTER-008", CannotTell, "installed objects could not be read", "A warning of `status`: the caller may not list or get some of the objects, or the API server did not return them. The table shows `?` for them, and the message names the missing right. Everything else is as it is shown.";
    ALREADY_INSTALLED = "BUNDLE-CLUSTER-009", Refused, "bundle-webhook is installed already", "Objects of an installation exist, by Helm, by `kubectl bundle install` or by something else. The message names some of them and their origin. `install` takes nothing over and has changed nothing: upgrade or remove that installation with the tool that made it.";
    STILL_IN_USE = "BUNDLE-CLUSTER-010", Refused, "BundleDeployments exist", "`uninstall` removes the kinds of this project with all of their objects, and asks what becomes of what BundleDeployments have installed: `--bundle-deployments=delete` removes it, `--bundle-deployments=orphan` leaves it. Nothing was removed.";
    SERVER_TOO_OLD = "BUNDLE-CLUSTER-011", Refused, "the cluster is too old", "bundle-webhook needs fields that API servers have since Kubernetes 1.33. Nothing was changed.";
    NOT_INSTALLED = "BUNDLE-CLUSTER-012", Failed, "there is no installation to remove", "`uninstall` removes what `kubectl bundle install` created, by the label app.kubernetes.io/managed-by=kubectl-bundle. The cluster has no such installation; one by Helm is removed with Helm.";
}
