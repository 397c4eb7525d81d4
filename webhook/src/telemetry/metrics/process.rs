//! Metrics about the process that the operating system provides.

/// The file with the memory of the current process on Linux.
const STATUS: &str = "/proc/self/status";

/// Returns the resident memory in bytes, or `None` if this value is unknown.
pub(super) fn resident_memory() -> Option<u64> {
    parse(&fs_err::read_to_string(STATUS).ok()?)
}

fn parse(status: &str) -> Option<u64> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_resident_memory_among_other_lines() {
        assert_eq!(
            parse("Name:\tx\nVmRSS:\t    8500 kB\nThreads:\t3\n"),
            Some(8500 * 1024)
        );
        assert_eq!(parse("Name:\tx\n"), None);
        assert_eq!(parse("VmRSS:\tmany kB\n"), None);
    }
}
