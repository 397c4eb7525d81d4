//! Predicates of attestations in files.

use std::path::Path;

use bundle_core::diagnostic::Findings;
use bundle_trust::attest::{Predicate, PredicateType};
use jiff::Timestamp;

use crate::failure::Outcome;
use crate::system::files;

/// Reads a predicate from a file.
pub(super) fn read(path: &Path, kind: PredicateType) -> Outcome<Predicate> {
    let bytes = files::read(path)?;
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let file = path.display().to_string();
    Predicate::read(kind, &bytes, &now).map_err(|findings| {
        let located = findings.into_iter().map(|one| one.in_file(&file));
        located.collect::<Findings>().into()
    })
}
