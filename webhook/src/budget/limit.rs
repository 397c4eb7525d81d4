//! How much memory the process may use: what was set, else what its cgroup says.
//! Not here: what is done with it (mod).

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// Where the kernel tells to which cgroups a process belongs.
const MEMBERSHIP: &str = "/proc/self/cgroup";
/// Limits above this mean "none", in bytes: version 1 writes the largest page-aligned number.
const NO_LIMIT: u64 = 1 << 50;

/// An amount of memory in bytes, written as in manifests: `128Mi`, `1Gi`, `134217728`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: [(&str, u64); 6] = [
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
            ("k", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
        ];
        let (digits, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .unwrap_or((text, 1));
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit))
            .map(Self)
            .ok_or_else(|| "an amount of bytes is needed, such as 128Mi or 134217728".to_owned())
    }
}

/// The limit of the cgroup that this process is in, in bytes; `None` where there is none.
pub fn of_cgroup() -> Option<u64> {
    let membership = fs_err::read_to_string(MEMBERSHIP).ok()?;
    files(Path::new(ROOT), &membership)
        .into_iter()
        .filter_map(|file| fs_err::read_to_string(file).ok()?.trim().parse().ok())
        .filter(|limit| *limit < NO_LIMIT)
        .min()
}

/// The files that may hold the limit: of version 2 and version 1, in the process's own folder, and in the root where a container sees only its own folder.
fn files(root: &Path, membership: &str) -> Vec<PathBuf> {
    let mut files = vec![
        root.join("memory.max"),
        root.join("memory/memory.limit_in_bytes"),
    ];
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            files.push(root.join(path).join("memory.max"));
        } else if controllers.split(',').any(|name| name == "memory") {
            files.push(root.join("memory").join(path).join("memory.limit_in_bytes"));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_manifests_write_them() {
        for (text, bytes) in [
            ("134217728", Some(128 << 20)),
            ("128Mi", Some(128 << 20)),
            ("1Gi", Some(1 << 30)),
            ("128M", Some(128_000_000)),
            ("many", None),
            ("-1", None),
            ("99999999999Gi", None),
        ] {
            let read = text.parse::<Bytes>().ok();
            assert_eq!(read, bytes.map(Bytes), "{text}");
        }
    }

    #[test]
    fn both_versions_of_cgroups_are_looked_at() {
        let found = files(
            Path::new("/c"),
            "5:cpu,memory:/kubepods/a\n0::/kubepods/b\n",
        );
        let found: Vec<_> = found
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        assert_eq!(
            found,
            [
                "/c/memory.max",
                "/c/memory/memory.limit_in_bytes",
                "/c/memory/kubepods/a/memory.limit_in_bytes",
                "/c/kubepods/b/memory.max",
            ]
        );
    }
}
