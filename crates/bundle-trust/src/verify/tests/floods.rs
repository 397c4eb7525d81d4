//! Many expensive Sigstore bundles together with a valid bundle. The operations of all bundles are
//! counted, and no expensive bundle displaces the valid bundle.

use std::cell::Cell;

use bundle_core::policy::Fault;
use serde_json::{Value, json};

use super::super::budget::operations;
use super::forge::{CertificateRequest, Sigstore, raw, statement, subject};
use super::*;

const ENTRIES: &str = "/verificationMaterial/tlogEntries";

fn entries(bundle: &mut Value) -> &mut Vec<Value> {
    bundle.pointer_mut(ENTRIES).unwrap().as_array_mut().unwrap()
}

/// Adds `count` invalid signatures with the log's name to the checkpoint of an entry, before the
/// valid signature.
fn flood_checkpoint(entry: &mut Value, count: usize, number: usize) {
    let note = &mut entry["inclusionProof"]["checkpoint"]["envelope"];
    let text = note.as_str().unwrap().to_owned();
    let (head, line) = text.trim_end().rsplit_once('\n').unwrap();
    let (name, signature) = line.rsplit_once(' ').unwrap();
    let good = dsse::decode(signature).unwrap();
    let mut flooded = format!("{head}\n");
    for copy in 0..count {
        let mut bad = good.clone();
        let end = bad.len() - 2;
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        let changes = [u8::try_from(copy + 1).unwrap(), low, high];
        for (at, change) in changes.into_iter().enumerate() {
            bad[end - at] ^= change;
        }
        let bad = format!("{name} {}\n", dsse::encode(&bad));
        flooded.push_str(&bad);
    }
    flooded.push_str(line);
    flooded.push('\n');
    *note = json!(flooded);
}

/// Returns a Sigstore bundle with 15 log entries. Each checkpoint has 31 invalid signatures before
/// the valid signature, which is the maximum number of 32 signatures.
fn flooded(good: &Value, number: usize) -> RawSignature {
    let mut bundle = good.clone();
    let entries = entries(&mut bundle);
    let entry = entries[0].clone();
    *entries = (0..15)
        .map(|copy| {
            let mut entry = entry.clone();
            flood_checkpoint(&mut entry, 31, number * 15 + copy);
            entry
        })
        .collect();
    raw(&bundle)
}

/// Returns a Sigstore bundle with one entry. Its checkpoint has 7 invalid signatures before the
/// valid signature, which is the maximum number of 8 signatures with one key ID.
fn costly(good: &Value, number: usize) -> RawSignature {
    let mut bundle = good.clone();
    flood_checkpoint(&mut entries(&mut bundle)[0], 7, number);
    raw(&bundle)
}

fn fault(found: &SignatureResult) -> Option<Fault> {
    match &found.0 {
        Err(Rejection::Certificate { fault, .. }) => Some(*fault),
        _ => None,
    }
}

#[test]
fn expensive_bundles_do_not_hide_a_valid_one() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let good = sigstore.signed(&CertificateRequest::default(), &statement());
    let mut flood: Vec<_> = (0..MAX_SIGNATURES - 1)
        .map(|number| flooded(&good, number))
        .collect();
    flood.push(raw(&good));
    let found = examine(&flood, &subject(), &material);
    let (last, others) = found.split_last().unwrap();
    assert!(last.accepted().is_some());
    let refused =
        |one: &SignatureResult| matches!(fault(one), Some(Fault::Entry | Fault::Checkpoint));
    assert!(others.iter().all(refused));
}

#[test]
fn duplicate_entries_and_timestamps_count_once() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let good = sigstore.signed(&CertificateRequest::default(), &statement());
    let mut twice = good.clone();
    let entry = entries(&mut twice)[0].clone();
    entries(&mut twice).push(entry);
    let mut stamped = good.clone();
    let stamp = json!({ "signedTimestamp": "MAA=" });
    stamped["verificationMaterial"]["timestampVerificationData"] =
        json!({ "rfc3161Timestamps": [stamp, stamp] });
    let mut crowded = good.clone();
    flood_checkpoint(&mut entries(&mut crowded)[0], 8, 1);
    let bundles = [twice, stamped, crowded, good];
    let found = examine(&bundles.each_ref().map(raw), &subject(), &material);
    let faults: Vec<_> = found.iter().map(fault).collect();
    let expected = [Fault::Entry, Fault::Timestamp, Fault::Checkpoint].map(Some);
    assert_eq!(faults[..3], expected);
    assert!(found[3].accepted().is_some());
}

#[test]
fn duplicate_signature_is_examined_once() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let good = raw(&sigstore.signed(&CertificateRequest::default(), &statement()));
    let mut annotated = good.clone();
    annotated.annotations.insert("a".into(), "b".into());
    let found = examine(&[good.clone(), good, annotated], &subject(), &material);
    assert!(found[0].accepted().is_some());
    assert_eq!(found[1].0, Err(Rejection::Duplicate));
    assert!(found[2].accepted().is_some());
}

#[test]
fn expensive_signature_does_not_use_the_share_of_later_ones() {
    let sigstore = Sigstore::new();
    let mut material = sigstore.material(&[]);
    let good = sigstore.signed(&CertificateRequest::default(), &statement());
    // Each signature has the maximum cost of one log entry, which is at most `SHARE`.
    let flood: Vec<_> = (0..MAX_SIGNATURES)
        .map(|number| costly(&good, number))
        .collect();
    let cost = |raw: &RawSignature, material: &TrustMaterial| operations(raw, material).unwrap();
    assert!(cost(&flood[0], &material) <= SHARE);
    let mut budget = Budget::new(flood.len(), &material);
    assert!(
        flood
            .iter()
            .all(|raw| budget.charge(raw, &material).is_ok())
    );
    // Each signature costs more than its share of the operations. Such a signature is verified only
    // if the remaining budget is sufficient for all following signatures.
    let mut dear = good.clone();
    let entry = entries(&mut dear)[0].clone();
    *entries(&mut dear) = (0..6)
        .map(|number| {
            let mut other = entry.clone();
            other["canonicalizedBody"] = json!(dsse::encode(&[number]));
            flood_checkpoint(&mut other, 7, usize::from(number));
            other
        })
        .collect();
    let dear: Vec<_> = (0..MAX_SIGNATURES)
        .map(|number| {
            let mut one = raw(&dear);
            one.annotations.insert("number".into(), number.to_string());
            one
        })
        .collect();
    let wanted = cost(&dear[0], &material);
    assert!(wanted > SHARE && wanted < MAX_SIGNATURES * SHARE);
    let mut budget = Budget::new(dear.len(), &material);
    let mut lone = Budget::new(1, &material);
    assert_eq!(lone.charge(&dear[0], &material), Ok(()));
    let refused = Err(Rejection::TooCostly { operations: wanted });
    assert_eq!(budget.charge(&dear[0], &material), refused);
    // More roots and keys increase the cost of each signature, and the budget.
    material.roots.push(material.roots[0].clone());
    assert_eq!(cost(&dear[0], &material), 2 * wanted - 1);
}

#[test]
fn operations_of_bundles_with_null_lists_are_counted() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let good = sigstore.signed(&CertificateRequest::default(), &statement());
    let cost = |bundle: &Value| operations(&raw(bundle), &material).unwrap();
    for field in ["tlogEntries", "timestampVerificationData"] {
        let with = |list: &Value| {
            let mut bundle = good.clone();
            bundle["verificationMaterial"][field] = match field {
                "tlogEntries" => list.clone(),
                _ => json!({ "rfc3161Timestamps": list }),
            };
            cost(&bundle)
        };
        assert_eq!(with(&json!(null)), with(&json!([])), "{field}");
        assert!(with(&json!(null)) > 1, "{field}");
        // For a field with an unexpected JSON type, the operations cannot be counted.
        assert_eq!(with(&json!("none")), SHARE, "{field}");
    }
    let mut invalid = good.clone();
    invalid["verificationMaterial"]["tlogEntries"] = json!("none");
    let mut flood: Vec<_> = (0..MAX_SIGNATURES - 1)
        .map(|number| {
            let mut one = raw(&invalid);
            one.annotations.insert("number".into(), number.to_string());
            one
        })
        .collect();
    flood.push(raw(&good));
    let found = examine(&flood, &subject(), &material);
    let (last, others) = found.split_last().unwrap();
    assert!(last.accepted().is_some());
    let has_own_error = |one: &SignatureResult| matches!(one.0, Err(Rejection::Unreadable(_)));
    assert!(others.iter().all(has_own_error));
}

#[test]
fn signature_beyond_the_budget_is_rejected_with_message() {
    let text = Rejection::TooCostly { operations: 99 }.to_string();
    assert!(text.contains("its 99 public-key operations"), "{text}");
}

#[test]
fn examination_stops_between_signatures_on_request() {
    let sigstore = Sigstore::new();
    let material = sigstore.material(&[]);
    let good = sigstore.signed(&CertificateRequest::default(), &statement());
    let signatures: Vec<_> = (0..4).map(|number| costly(&good, number)).collect();
    let asked = Cell::new(0);
    let until = |most: usize| {
        asked.set(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        examine_while(&signatures, &subject(), &material, &go_on)
    };
    assert_eq!(until(2), None);
    assert_eq!(asked.get(), 3);
    assert_eq!(until(99).map(|found| found.len()), Some(4));
}
