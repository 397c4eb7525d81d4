//! The memory limit of the process: the configured limit, or the limit of its cgroup.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The directory at which cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// The file with the cgroups of this process.
const MEMBERSHIP: &str = "/proc/self/cgroup";
/// Smallest value that means no limit, in bytes. Version 1 of cgroups uses the largest page-aligned
/// number for no limit.
const NO_LIMIT: u64 = 1 << 50;

/// A number of bytes, in the notation of Kubernetes quantities: `128Mi`, `1Gi`, `134217728`.
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
            .ok_or_else(|| "use an amount of bytes, such as 128Mi or 134217728".to_owned())
    }
}

/// Returns the memory limit of the cgroup of this process in bytes, or `None` if the cgroup has no
/// limit.
pub fn of_cgroup() -> Option<u64> {
    let membership = fs_err::read_to_string(MEMBERSHIP).ok()?;
    files(Path::new(ROOT), &membership)
        .into_iter()
        .filter_map(|file| fs_err::read_to_string(file).ok()?.trim().parse().ok())
        .filter(|limit| *limit < NO_LIMIT)
        .min()
}

/// Returns the files that can contain the limit, for cgroup versions 1 and 2. On a host, the files
/// are in the cgroup folder of the process. In a container, the files are in `root`, because the
/// container can read only its own cgroup folder.
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
    fn parses_amounts_in_the_notation_of_manifests() {
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
    fn reads_limits_of_both_cgroup_versions() {
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
