//! Table of tools: name, folder of the Go module under `e2e/tools`, package, and duration class of
//! the first build. Versions are in the `go.mod` of each module.

use std::fmt;
use std::str::FromStr;

/// Program that is built from a Go module in `e2e/tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Kubernetes API server.
    KubeApiserver,
    /// Kubernetes controller manager: ServiceAccounts, garbage collection, namespaces, Deployments,
    /// and others.
    KubeControllerManager,
    /// API server of the oldest supported release.
    OldestKubeApiserver,
    /// Controller manager of the oldest supported release.
    OldestKubeControllerManager,
    /// Scheduler; only needed for running Pods.
    KubeScheduler,
    /// Agent of a node; only needed for running Pods.
    Kubelet,
    /// Addresses of Services on a node; only needed for running Pods.
    KubeProxy,
    /// Container runtime of a node.
    Containerd,
    /// Process of containerd for each Pod, which containerd starts.
    ContainerdShim,
    /// Network plugin: a pair of interfaces for each Pod.
    CniPtp,
    /// Network plugin: addresses of Pods.
    CniHostLocal,
    /// Network plugin: loopback of Pods.
    CniLoopback,
    /// kubectl.
    Kubectl,
    /// etcd.
    Etcd,
    /// Registry of CNCF distribution, which has no referrers API.
    Registry,
    /// Client of go-containerregistry; its `registry serve` has no referrers API.
    Crane,
    /// Registry of go-containerregistry with the referrers API: `referrers-registry HOST:PORT`.
    ReferrersRegistry,
    /// Helm 4.
    Helm,
    /// Helm 3.
    Helm3,
    /// cosign 2, which writes `.sig` tags.
    Cosign2,
    /// cosign 3, which writes bundles as referrers.
    Cosign3,
    /// Plugin with sigstore's KMS plugin protocol. Its keys are files.
    KmsPlugin,
    /// Rekor v2, which stores its log in a folder: `rekor-tiles serve`.
    RekorTiles,
    /// Writes one state of a TUF repository with go-tuf: `tuf-repository < STATE.json`.
    TufRepository,
    /// Health of objects by kstatus: `kstatus-verdicts < OBJECTS.json`.
    Kstatus,
    /// Health of objects by Argo CD: `argo-health < OBJECTS.json`.
    ArgoHealth,
    /// Versions that Helm's constraints admit: `helm-versions < QUESTION.json`.
    HelmVersions,
    /// krew, the plugin manager of kubectl.
    Krew,
    /// Checks krew manifests by the rules of krew and its index.
    ValidateKrewManifest,
}

/// Row of the table.
struct Entry {
    name: &'static str,
    /// Folder under `e2e/tools`; tools of one folder share a dependency graph.
    family: &'static str,
    package: &'static str,
    /// Approximate time of a cold build on two cores, in seconds; only for messages.
    cold_seconds: u32,
}

impl Tool {
    /// All tools. Tools that a cluster needs are first.
    pub const ALL: [Self; 29] = [
        Self::KubeApiserver,
        Self::Kubectl,
        Self::KubeControllerManager,
        Self::Etcd,
        Self::Registry,
        Self::Crane,
        Self::ReferrersRegistry,
        Self::OldestKubeApiserver,
        Self::OldestKubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::CniPtp,
        Self::CniHostLocal,
        Self::CniLoopback,
        Self::Cosign3,
        Self::Cosign2,
        Self::Helm,
        Self::Helm3,
        Self::KmsPlugin,
        Self::RekorTiles,
        Self::TufRepository,
        Self::Kstatus,
        Self::ArgoHealth,
        Self::HelmVersions,
        Self::Krew,
        Self::ValidateKrewManifest,
    ];

    const fn entry(self) -> Entry {
        let (name, family, package, cold_seconds) = match self {
            Self::KubeApiserver => (
                "kube-apiserver",
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                300,
            ),
            Self::KubeControllerManager => (
                "kube-controller-manager",
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                70,
            ),
            Self::OldestKubeApiserver => (
                "kube-apiserver-1.33",
                "kubernetes-1.33",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                330,
            ),
            Self::OldestKubeControllerManager => (
                "kube-controller-manager-1.33",
                "kubernetes-1.33",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                80,
            ),
            Self::KubeScheduler => (
                "kube-scheduler",
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-scheduler",
                10,
            ),
            Self::Kubelet => ("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", 30),
            Self::KubeProxy => (
                "kube-proxy",
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-proxy",
                15,
            ),
            Self::Containerd => (
                "containerd",
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
                60,
            ),
            Self::ContainerdShim => (
                "containerd-shim-runc-v2",
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                10,
            ),
            Self::CniPtp => (
                "ptp",
                "cni",
                "github.com/containernetworking/plugins/plugins/main/ptp",
                6,
            ),
            Self::CniHostLocal => (
                "host-local",
                "cni",
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
                3,
            ),
            Self::CniLoopback => (
                "loopback",
                "cni",
                "github.com/containernetworking/plugins/plugins/main/loopback",
                3,
            ),
            Self::Kubectl => ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 25),
            Self::Etcd => ("etcd", "etcd", "go.etcd.io/etcd/server/v3", 30),
            Self::Registry => (
                "registry",
                "registry",
                "github.com/distribution/distribution/v3/cmd/registry",
                100,
            ),
            Self::Crane => (
                "crane",
                "crane",
                "github.com/google/go-containerregistry/cmd/crane",
                10,
            ),
            Self::ReferrersRegistry => (
                "referrers-registry",
                "referrers-registry",
                "e2e.test/tools/referrers-registry",
                10,
            ),
            Self::Helm => ("helm", "helm", "helm.sh/helm/v4/cmd/helm", 160),
            Self::Helm3 => ("helm3", "helm3", "helm.sh/helm/v3/cmd/helm", 160),
            Self::Cosign2 => (
                "cosign2",
                "cosign2",
                "github.com/sigstore/cosign/v2/cmd/cosign",
                240,
            ),
            Self::Cosign3 => (
                "cosign3",
                "cosign3",
                "github.com/sigstore/cosign/v3/cmd/cosign",
                240,
            ),
            Self::KmsPlugin => (
                "sigstore-kms-files",
                "kms-plugin",
                "e2e.test/tools/kms-plugin",
                20,
            ),
            Self::TufRepository => (
                "tuf-repository",
                "tuf-repository",
                "e2e.test/tools/tuf-repository",
                20,
            ),
            Self::Kstatus => ("kstatus-verdicts", "kstatus", "e2e.test/tools/kstatus", 20),
            Self::ArgoHealth => (
                "argo-health",
                "argo-health",
                "e2e.test/tools/argo-health",
                90,
            ),
            Self::HelmVersions => (
                "helm-versions",
                "helm-versions",
                "e2e.test/tools/helm-versions",
                20,
            ),
            Self::Krew => ("krew", "krew", "sigs.k8s.io/krew/cmd/krew", 30),
            Self::ValidateKrewManifest => (
                "validate-krew-manifest",
                "krew",
                "sigs.k8s.io/krew/cmd/validate-krew-manifest",
                5,
            ),
            // The newest version that Go 1.26 builds.
            Self::RekorTiles => (
                "rekor-tiles",
                "rekor-tiles",
                "github.com/sigstore/rekor-tiles/v2/cmd/rekor-server/posix",
                60,
            ),
        };
        Entry {
            name,
            family,
            package,
            cold_seconds,
        }
    }

    /// Returns the name of the program.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    pub(super) const fn family(self) -> &'static str {
        self.entry().family
    }

    pub(super) const fn package(self) -> &'static str {
        self.entry().package
    }

    pub(super) const fn cold_seconds(self) -> u32 {
        self.entry().cold_seconds
    }

    /// Returns `true` if the linker sets a Kubernetes version in the program.
    pub(super) fn is_kubernetes(self) -> bool {
        self.family().starts_with("kubernetes")
    }

    /// Returns `true` if the program is in the asset folder of envtest.
    pub(super) const fn in_assets(self) -> bool {
        matches!(self, Self::KubeApiserver | Self::Etcd | Self::Kubectl)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|tool| tool.name()).collect();
                anyhow::anyhow!(
                    "no tool is called `{text}`; there are: {}",
                    known.join(", ")
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_unique_name_and_module() {
        for tool in Tool::ALL {
            assert_eq!(tool.name().parse::<Tool>().unwrap(), tool);
            let module = super::super::build::family_folder(tool).join("go.mod");
            let text = fs_err::read_to_string(module).unwrap();
            assert!(
                text.contains(tool.package()),
                "{tool} is no tool of its module"
            );
        }
    }

    #[test]
    fn unknown_tool_name_lists_known_names() {
        let error = "kubeclt".parse::<Tool>().unwrap_err().to_string();
        assert!(
            error.starts_with("no tool is called `kubeclt`; there are: kube-apiserver, kubectl"),
            "{error}"
        );
    }
}
