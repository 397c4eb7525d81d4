//! Records of running attempts to parse content, as empty files in the cache volume. The volume
//! exists longer than the process. Therefore a record of an earlier process shows that the earlier
//! process ended during the attempt. `bundle_core::plan::bundle::attempts` contains the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bundle_core::plan::bundle::attempts::{self, AttemptDecision, AttemptKey, InterruptedAttempts};

/// Maximum number of records of earlier processes. If there are more, the oldest records are
/// removed.
const MAX_RECORDS: usize = 1024;

/// The records in one folder. No other process writes to this folder.
#[derive(Debug)]
pub struct Attempts {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Attempts that were running when an earlier process ended.
    interrupted: BTreeMap<AttemptKey, InterruptedAttempts>,
    /// Records of attempts that have not ended.
    running: BTreeSet<PathBuf>,
    /// True if the process is stopping, so that no further attempt begins.
    is_closed: bool,
}

/// An attempt that has not ended. On drop, its record and the records of earlier attempts with the
/// same key are removed.
#[derive(Debug)]
pub struct RunningAttempt {
    attempts: Arc<Attempts>,
    key: AttemptKey,
    number: u32,
}

impl Attempts {
    /// Reads the records of earlier processes in `folder`.
    pub fn read(folder: PathBuf) -> Self {
        let mut records = Vec::new();
        for entry in fs_err::read_dir(&folder).into_iter().flatten().flatten() {
            let written = entry.metadata().ok().and_then(|data| data.modified().ok());
            if let Ok(name) = entry.file_name().into_string() {
                records.push((written.unwrap_or(SystemTime::UNIX_EPOCH), name));
            }
        }
        records.sort();
        let oldest = records.len().saturating_sub(MAX_RECORDS);
        for (_, name) in records.drain(..oldest) {
            fs_err::remove_file(folder.join(name)).ok();
        }
        let records = records.iter();
        let names = records.map(|(written, name)| (name.as_str(), *written));
        Self {
            state: Mutex::new(State {
                interrupted: attempts::interrupted_by_key(names),
                running: BTreeSet::new(),
                is_closed: false,
            }),
            folder,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before a panic can occur, so the state is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether the next attempt with this key may begin now.
    pub fn decide(&self, key: &AttemptKey, now: SystemTime) -> AttemptDecision {
        attempts::decide(self.lock().interrupted.get(key).copied(), now)
    }

    /// Records that an attempt begins, and returns the attempt. An attempt must not begin without a
    /// record.
    pub fn begin(self: &Arc<Self>, key: AttemptKey) -> io::Result<RunningAttempt> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(io::Error::other("the webhook stops"));
        }
        let earlier = state.interrupted.get(&key).map_or(0, |found| found.count);
        let number = earlier.saturating_add(1);
        let record = self.folder.join(key.record(number));
        fs_err::create_dir_all(&self.folder)?;
        // The file exists after the process ends, even if it is not yet on the disk. Therefore no
        // fsync is necessary.
        fs_err::File::create(&record)?;
        state.running.insert(record);
        drop(state);
        Ok(RunningAttempt {
            attempts: self.clone(),
            key,
            number,
        })
    }

    /// Removes the records of running attempts. Called when the process stops gracefully, so that
    /// these attempts do not count as interrupted.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for record in std::mem::take(&mut state.running) {
            fs_err::remove_file(record).ok();
        }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        let mut state = self.attempts.lock();
        for number in 1..=self.number {
            let record = self.attempts.folder.join(self.key.record(number));
            // A record that cannot be removed counts as an interrupted attempt after a restart.
            fs_err::remove_file(&record).ok();
            state.running.remove(&record);
        }
        state.interrupted.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bundle_core::content::ContentId;
    use bundle_core::plan::bundle::attempts::ParseStep;
    use bundle_core::reference::{Digest, Reference};
    use bundle_core::review::Source;
    use bundle_core::review::source::PullCredentials;

    use super::*;

    fn key(name: &str) -> AttemptKey {
        let reference: Reference = "registry.example.com/web:1".parse().unwrap();
        let source = Source::Image {
            reference,
            credentials: PullCredentials::Class("plain".parse().unwrap()),
        };
        let content = ContentId::new(&source, Digest::of(name.as_bytes()));
        AttemptKey::new("1.0.0", "uid 1", &content, ParseStep::Parse)
    }

    fn read(folder: &tempfile::TempDir) -> Arc<Attempts> {
        Arc::new(Attempts::read(folder.path().join("attempts")))
    }

    /// Starts an attempt and never ends it, as if the process crashed during the attempt.
    fn end_during_attempt(folder: &tempfile::TempDir, name: &str) {
        std::mem::forget(read(folder).begin(key(name)).unwrap());
    }

    #[test]
    fn content_that_ends_the_process_twice_waits_and_other_content_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let started = SystemTime::now();
        let decide_after = |name, pause| read(&folder).decide(&key(name), started + pause);
        let decide = |name| decide_after(name, Duration::ZERO);
        assert_eq!(decide("a"), AttemptDecision::Try);
        end_during_attempt(&folder, "a");
        assert_eq!(decide("a"), AttemptDecision::TryAlone);
        end_during_attempt(&folder, "a");
        assert!(matches!(decide("a"), AttemptDecision::Wait(_)));
        assert_eq!(decide("b"), AttemptDecision::Try);
        // The records have the time of the file system, which can be later than `started`.
        let later = decide_after("a", Duration::from_mins(61));
        assert_eq!(later, AttemptDecision::TryAlone);
    }

    #[test]
    fn attempt_that_ends_removes_all_its_records() {
        let folder = tempfile::tempdir().unwrap();
        end_during_attempt(&folder, "a");
        let attempts = read(&folder);
        let decide = || attempts.decide(&key("a"), SystemTime::now());
        assert_eq!(decide(), AttemptDecision::TryAlone);
        drop(attempts.begin(key("a")).unwrap());
        assert_eq!(decide(), AttemptDecision::Try);
        assert_eq!(fs_err::read_dir(&attempts.folder).unwrap().count(), 0);
    }

    #[test]
    fn process_that_stops_in_order_leaves_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let attempts = read(&folder);
        let running = attempts.begin(key("a")).unwrap();
        attempts.close();
        std::mem::forget(running);
        let decided = read(&folder).decide(&key("a"), SystemTime::now());
        assert_eq!(decided, AttemptDecision::Try);
        assert!(attempts.begin(key("a")).is_err());
    }

    #[test]
    fn attempt_without_a_record_does_not_begin() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("attempts"), "a file").unwrap();
        assert!(read(&folder).begin(key("a")).is_err());
    }

    #[test]
    fn oldest_records_beyond_the_limit_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("attempts");
        fs_err::create_dir(&records).unwrap();
        for number in 0..MAX_RECORDS + 3 {
            fs_err::write(records.join(format!("{number}.1")), "").unwrap();
        }
        let attempts = read(&folder);
        assert_eq!(attempts.lock().interrupted.len(), MAX_RECORDS);
        assert_eq!(fs_err::read_dir(&records).unwrap().count(), MAX_RECORDS);
    }
}
