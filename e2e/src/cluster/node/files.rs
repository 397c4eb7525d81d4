//! Configuration files of a node's programs: containerd, the network plugins, kubelet and
//! kube-proxy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::network::NodeNetwork;
use crate::registry::Registry;

/// Socket of containerd inside of the node.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

/// Writes the configuration of containerd, and returns its path. `plugins` is the folder with the
/// network plugins. `sandbox` is the image of the sandbox (pause) container of each Pod.
pub(super) fn containerd(
    folder: &Path,
    plugins: &Path,
    sandbox: &str,
    network: &NodeNetwork,
    registries: &[Registry],
) -> Result<PathBuf> {
    let hosts = folder.join("certs.d");
    for registry in registries {
        let host = registry.host();
        let scheme = if registry.ca().is_some() {
            "https"
        } else {
            "http"
        };
        let mut text =
            format!("[host.\"{scheme}://{host}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
        if let Some(ca) = registry.ca() {
            writeln!(text, "ca = \"{}\"", ca.display())?;
        }
        fs_err::create_dir_all(hosts.join(&host))?;
        fs_err::write(hosts.join(&host).join("hosts.toml"), text)?;
    }
    let networks = folder.join("networks");
    fs_err::create_dir(&networks)?;
    let pods = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": network.pods() }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs_err::write(networks.join("pods.conflist"), pods.to_string())?;
    let text = format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# These plugins write to fixed folders outside of the node.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "{SOCKET}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{hosts}"

[plugins.'io.containerd.cri.v1.runtime']
# Some machines do not allow root to lower the score.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{networks}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "runc"
SystemdCgroup = false
"#,
        hosts = hosts.display(),
        plugins = plugins.display(),
        networks = networks.display(),
    );
    write(folder, "containerd.toml", &text)
}

/// Writes the configuration of the kubelet, and returns its path.
pub(super) fn kubelet(folder: &Path, authority: &Path, network: &NodeNetwork) -> Result<PathBuf> {
    let no_eviction: Value = ["memory.available", "nodefs.available", "imagefs.available"]
        .into_iter()
        .map(|signal| (signal.to_owned(), json!("1Mi")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node(),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": authority },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": no_eviction,
        // Other programs of this machine use the same disk. If the disk is full, the kubelet must
        // not remove images or evict Pods.
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": "/var/log/pods",
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // Tests wait for the reported status, so the kubelet reports often.
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "10s",
        "serializeImagePulls": false,
        "registryPullQPS": 0,
        "shutdownGracePeriod": "0s",
    });
    write(folder, "kubelet.json", &config.to_string())
}

/// Writes the configuration of kube-proxy, and returns its path.
pub(super) fn kube_proxy(
    folder: &Path,
    kubeconfig: &Path,
    network: &NodeNetwork,
) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": network.node(),
        "clusterCIDR": network.pods(),
        "clientConnection": { "kubeconfig": kubeconfig },
        // kube-proxy must not change these limits, because they apply to the whole machine.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        "iptables": { "minSyncPeriod": "100ms" },
    });
    write(folder, "kube-proxy.json", &config.to_string())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs_err::write(&path, text)?;
    Ok(path)
}
