//! Where a plugin is: in the folders of PATH that are named in full, never in the folder in which somebody happens to stand.
//! Not here: running it.

use std::env;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use super::Key;

/// The program of `key`.
pub(super) fn on_path(key: &Key) -> Result<PathBuf, Finding> {
    let folders: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    within(&folders, key)
}

fn within(folders: &[PathBuf], key: &Key) -> Result<PathBuf, Finding> {
    let name = format!("{}{}", key.program(), env::consts::EXE_SUFFIX);
    let mut barred = None;
    for folder in folders.iter().filter(|folder| folder.is_absolute()) {
        let path = folder.join(&name);
        if !path.is_file() {
            continue;
        }
        if may_run(&path) {
            return Ok(path);
        }
        barred.get_or_insert(path);
    }
    Err(match barred {
        Some(path) => Finding::error(
            codes::usage::NO_PROGRAM,
            format!(
                "`{}` is needed for {key}, and may not be run",
                path.display()
            ),
        )
        .hint("its permissions do not say that it is a program: chmod +x"),
        None => Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{name}` is needed for {key} and is not on PATH"),
        )
        .hint(if key.is_built_into_cosign() {
            "cosign has this service built in; here it is reached through a plugin, an executable of that name that speaks sigstore's KMS plugin protocol"
        } else {
            "install the plugin of your key service, an executable of that name that speaks sigstore's KMS plugin protocol; a file of that name needs ./ before it"
        }),
    })
}

#[cfg(unix)]
fn may_run(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn may_run(_: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_that_may_be_run_is_taken_and_none_of_the_folder_we_stand_in() {
        let key = Key::parse("test://x", false).unwrap().unwrap();
        let root = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| root.path().join(name));
        for (folder, mode) in folders[1..].iter().zip([0o644, 0o755]) {
            std::fs::create_dir(folder).unwrap();
            let file = folder.join("sigstore-kms-test");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let found = within(&folders, &key).unwrap();
        assert_eq!(found, folders[2].join("sigstore-kms-test"));
        let barred = within(&folders[..2], &key).unwrap_err();
        assert!(barred.message.contains("may not be run"), "{barred}");
        for nowhere in [&folders[..1], &[PathBuf::from("."), PathBuf::new()]] {
            let missing = within(nowhere, &key).unwrap_err();
            assert!(missing.message.contains("is not on PATH"), "{missing}");
        }
    }

    #[test]
    fn services_that_cosign_reaches_by_itself_are_told_apart() {
        let hint = |text: &str| {
            let key = Key::parse(text, false).unwrap().unwrap();
            within(&[], &key).unwrap_err().hint.unwrap_or_default()
        };
        assert!(hint("awskms:///alias/x").contains("cosign has this service built in"));
        assert!(hint("my-hsm://x").contains("install the plugin"));
    }
}
