//! Audit log of the API server, as audit events.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use super::{Cluster, control_plane};

/// Reader that returns each audit event once: each call of [`AuditReader::read`] returns the events
/// since the previous call.
pub struct AuditReader {
    file: PathBuf,
    /// Number of bytes of the log that were already read.
    position: u64,
}

impl Cluster {
    /// Returns the completed requests as audit events (`verb`, `requestURI`, `user.username`,
    /// `responseStatus.code` …). Requires [`Builder::audit`](super::Builder::audit). A watch
    /// request is included only after it has ended.
    pub fn audit(&self) -> Result<Vec<Value>> {
        self.audit_since(0)
    }

    /// Like [`Cluster::audit`], but without the requests before `position`, an earlier result of
    /// [`Cluster::audit_position`].
    pub fn audit_since(&self, position: u64) -> Result<Vec<Value>> {
        let file = control_plane::audit_log(&self.root);
        AuditReader { file, position }.read()
    }

    /// Returns the length of the audit log, in bytes.
    pub fn audit_position(&self) -> Result<u64> {
        Ok(fs_err::metadata(control_plane::audit_log(&self.root))?.len())
    }

    /// Returns a reader of the audit log, from its beginning.
    pub fn audit_reader(&self) -> AuditReader {
        AuditReader {
            file: control_plane::audit_log(&self.root),
            position: 0,
        }
    }
}

impl AuditReader {
    /// Returns the events since the last call. If the line of an event is not yet complete, a later
    /// call returns the event.
    pub fn read(&mut self) -> Result<Vec<Value>> {
        let lines = self.complete_lines()?;
        // A line is incomplete if the API server was killed while it wrote the line. Such lines are
        // ignored.
        let events = lines.split(|byte| *byte == b'\n');
        Ok(events
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// Skips the events up to now, without parsing them.
    pub fn skip(&mut self) -> Result<()> {
        self.complete_lines().map(drop)
    }

    /// Returns the complete lines since the last call.
    fn complete_lines(&mut self) -> Result<Vec<u8>> {
        let mut file = fs_err::File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.position))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let last = bytes.iter().rposition(|byte| *byte == b'\n');
        bytes.truncate(last.map_or(0, |last| last + 1));
        self.position += u64::try_from(bytes.len())?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn reader_returns_each_event_once_and_waits_for_the_end_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = fs_err::File::create(&path).unwrap();
        let mut reader = AuditReader {
            file: path,
            position: 0,
        };
        assert_eq!(reader.read().unwrap(), Vec::<Value>::new());

        file.write_all(b"{\"n\":1}\n{\"n\":2}\n{\"n\"").unwrap();
        assert_eq!(reader.read().unwrap(), [json!({"n": 1}), json!({"n": 2})]);
        assert_eq!(reader.read().unwrap(), Vec::<Value>::new());

        file.write_all(b":3}\n").unwrap();
        assert_eq!(reader.read().unwrap(), [json!({"n": 3})]);

        file.write_all(b"{\"n\":4}\n{\"n\":").unwrap();
        reader.skip().unwrap();
        file.write_all(b"5}\n").unwrap();
        assert_eq!(reader.read().unwrap(), [json!({"n": 5})]);
    }
}
