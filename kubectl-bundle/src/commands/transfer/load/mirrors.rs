//! Mirror configurations for a cluster.

use std::path::Path;

use bundle_oci::store::RegistryMirror;

use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

/// First line of generated files. `load` replaces only files with this line.
const HEAD: &str = "# Written by `kubectl bundle load`.\n";

/// Writes all configurations into the folder `out`, or only `registries.conf` if `out` ends in
/// `.conf`.
pub(super) fn write(
    ui: &mut Ui,
    out: &Path,
    mirrors: &[RegistryMirror],
    insecure: impl Fn(&RegistryMirror) -> bool,
) -> Outcome {
    let entries: Vec<_> = mirrors
        .iter()
        .map(|mirror| mirror.registries_conf(insecure(mirror)))
        .collect();
    let conf = format!("{HEAD}\n{}", entries.join("\n"));
    if out.extension().is_some_and(|ending| ending == "conf") {
        put(out, &conf)?;
        ui.note(format!("mirrors for CRI-O and podman: {}", out.display()));
        return Ok(());
    }
    put(&out.join("registries.conf"), &conf)?;
    for mirror in mirrors {
        let folder = out.join("certs.d").join(mirror.hosts_folder());
        let text = format!("{HEAD}\n{}", mirror.hosts_toml(insecure(mirror)));
        put(&folder.join("hosts.toml"), &text)?;
    }
    ui.note(format!(
        "mirrors: {0}/registries.conf for CRI-O and podman (/etc/containers/registries.conf.d), {0}/certs.d for containerd (/etc/containerd/certs.d)",
        out.display()
    ));
    Ok(())
}

fn put(path: &Path, text: &str) -> Outcome {
    files::replace(path, text.as_bytes(), |before| {
        before.starts_with(HEAD.as_bytes())
    })
}
