//! Resident memory of a process and its children, sampled by a thread until the measurement ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(5);

/// A running measurement. The measurement ends when this value is dropped.
pub(super) struct MemorySamples {
    peak: Arc<AtomicU64>,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemorySamples {
    /// Starts to sample the process and its children.
    pub(super) fn start(pid: u32) -> Self {
        let peak = Arc::new(AtomicU64::new(0));
        let is_done = Arc::new(AtomicBool::new(false));
        let (highest, done) = (Arc::clone(&peak), Arc::clone(&is_done));
        let thread = std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                highest.fetch_max(resident(pid), Ordering::Relaxed);
                std::thread::sleep(INTERVAL);
            }
        });
        Self {
            peak,
            is_done,
            thread: Some(thread),
        }
    }

    /// Returns the highest memory so far, in KiB.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for MemorySamples {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread returns no value.
            let _ = thread.join();
        }
    }
}

/// Returns the resident memory of a process and its children in KiB; 0 for a process that ended.
pub(super) fn resident(pid: u32) -> u64 {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = status.lines().find_map(|line| {
        let kib = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    let mut sum = own.unwrap_or_default();
    let tasks = fs_err::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let children = fs_err::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace();
        sum += children
            .filter_map(|child| child.parse().ok())
            .map(resident)
            .sum::<u64>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_children() {
        let own = std::process::id();
        let before = resident(own);
        assert!(before > 0);
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let samples = MemorySamples::start(own);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while samples.peak() <= resident(child.id()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let alone = resident(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alone > 0 && samples.peak() > alone);
    }
}
