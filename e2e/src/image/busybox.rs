//! Image with the static busybox of this machine: the shell for `helm test`, and the sandbox
//! (pause) container of each Pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{ImageEntry, ImagePlan, Platform, push};
use crate::programs::has_interpreter;
use crate::registry::Registry;

/// Programs in the image, as links to busybox.
const APPLETS: [&str; 8] = ["cat", "false", "grep", "sh", "sleep", "tee", "true", "wget"];

/// Pushes the image `busybox:1`, and returns its reference without the digest.
pub(crate) async fn push_busybox(registry: &Registry) -> Result<String> {
    let name = "busybox:1";
    let mut entries = BTreeMap::from([("bin/busybox".to_owned(), ImageEntry::Program(program()?))]);
    for applet in APPLETS {
        entries.insert(
            format!("bin/{applet}"),
            ImageEntry::Link("busybox".to_owned()),
        );
    }
    let plan = ImagePlan {
        entries,
        platform: Platform::of_this_machine()?,
        // Without arguments, the container sleeps, as a sandbox (pause) container must.
        config: json!({
            "Entrypoint": ["/bin/sleep"],
            "Cmd": ["2147483647"],
            "Env": ["PATH=/bin"],
            "User": "65532:65532",
        }),
        annotations: BTreeMap::new(),
    };
    push(registry, &plan.pack()?, name).await?;
    Ok(registry.reference(name))
}

/// Returns the static busybox of this machine. Fails if the busybox on `PATH` needs shared
/// libraries, because images that contain busybox have no shared libraries for it.
pub(super) fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let file = std::env::split_paths(&path)
        .map(|folder| folder.join("busybox"))
        .find(|file| file.is_file())
        .context("`busybox` is not on PATH; install the package `busybox-static`")?;
    ensure_static(&file)?;
    Ok(file)
}

fn ensure_static(file: &Path) -> Result<()> {
    if has_interpreter(&fs_err::read(file)?)? {
        bail!(
            "{} needs shared libraries; install the package `busybox-static`",
            file.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_busybox_with_shared_libraries() {
        let error = ensure_static(&std::env::current_exe().unwrap()).unwrap_err();
        assert!(error.to_string().contains("`busybox-static`"), "{error}");
    }
}
