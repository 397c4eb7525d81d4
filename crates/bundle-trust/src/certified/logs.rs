//! Checks that a log entry belongs to the log that it names. Also checks that the entry was made
//! while the trust root trusts that log.
//!
//! `sigstore-verify` accepts a checkpoint that any log of the trust root has signed, even if the
//! entry names another log. `sigstore-verify` checks the validity of a log key only for SETs. An
//! entry of Rekor v2 has no SET, so its log ID is not signed. This module requires that three
//! values belong to the same log: the log ID of the entry, the origin of its checkpoint, and the
//! key that signed the checkpoint. `sigstore-verify` verifies inclusion proofs and SETs.

use bundle_core::policy::{Fault, Rejection};
use jiff::Timestamp;
use sigstore_verify::types::{Bundle, KindVersion, TransparencyLogEntry};

use super::fault;
use crate::root::{Log, Root};

/// Maximum number of signatures on a checkpoint. The log and its witnesses sign a checkpoint.
const MOST_WITNESSES: usize = 32;

/// Checks that each entry belongs to a log of the trust root, and has an inclusion proof or an SET.
/// Also checks that this log signed the checkpoint of the entry.
pub(super) fn check(bundle: &Bundle, root: &Root) -> Result<(), Rejection> {
    let entries = &bundle.verification_material.tlog_entries;
    if entries.is_empty() {
        return Err(fault(Fault::NoLog, &"it has no log entry"));
    }
    for entry in entries {
        let log = of(entry, root)?;
        if entry.inclusion_proof.is_none() && entry.inclusion_promise.is_none() {
            return Err(fault(
                Fault::NoLog,
                &"its entry has neither inclusion proof nor inclusion promise",
            ));
        }
        check_checkpoint(entry, log)?;
    }
    Ok(())
}

fn of<'a>(entry: &TransparencyLogEntry, root: &'a Root) -> Result<&'a Log, Rejection> {
    let id = &entry.log_id.key_id;
    root.log(id.as_bytes())
        .ok_or_else(|| fault(Fault::UnknownLog, id))
}

fn is_tiled(entry: &TransparencyLogEntry) -> bool {
    entry.kind_version == KindVersion::HashedRekordV002
}

/// Checks that the checkpoint belongs to the log. The origin is compared only for Rekor v2. In
/// Rekor v1 the origin is the name of the server, which the trust root does not contain.
fn check_checkpoint(entry: &TransparencyLogEntry, log: &Log) -> Result<(), Rejection> {
    let wrong = |why: &str| Err(fault(Fault::Checkpoint, &why));
    let Some(proof) = &entry.inclusion_proof else {
        return Ok(());
    };
    let Some(checkpoint) = proof.checkpoint.checkpoint() else {
        return wrong("it is missing or malformed");
    };
    let signatures = checkpoint.signatures();
    if signatures.len() > MOST_WITNESSES {
        return wrong(&format!(
            "it has {} signatures, more than the limit of {MOST_WITNESSES}",
            signatures.len()
        ));
    }
    let tiled = is_tiled(entry);
    let origin = checkpoint.origin();
    if tiled && !log.is_origin(origin) {
        return wrong("its log differs from the log of the entry");
    }
    let by_log = signatures.iter().filter(|signature| {
        log.id.starts_with(signature.key_id.as_bytes()) && (!tiled || signature.name == origin)
    });
    let message = checkpoint.signed_data();
    if by_log
        .into_iter()
        .any(|one| log.key.verify(message, &one.signature).is_ok())
    {
        Ok(())
    } else {
        wrong("it is not signed by the log of the entry")
    }
}

/// Checks that each log entry was made while its log was trusted. If the entry has an SET, only the
/// time in the SET is checked. sigstore-verify verifies the SET. Without an SET, all of `times` are
/// checked, which timestamps confirm.
pub(super) fn check_windows(
    bundle: &Bundle,
    root: &Root,
    times: &[Timestamp],
) -> Result<(), Rejection> {
    for entry in &bundle.verification_material.tlog_entries {
        let log = of(entry, root)?;
        let promised = entry
            .integrated_time
            .filter(|_| entry.inclusion_promise.is_some() && !is_tiled(entry));
        let times = promised.as_ref().map_or(times, std::slice::from_ref);
        if let Some(time) = times.iter().find(|time| !log.window.holds(**time)) {
            let why = format!("its log was not trusted at {time}");
            return Err(fault(Fault::LogTime, &why));
        }
    }
    Ok(())
}
