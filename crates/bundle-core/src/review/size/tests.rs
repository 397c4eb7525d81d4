use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::review::{PartRequesters, Requester, Stamp, StampTarget, written_digest};

fn object(finalizers: usize, owners: usize) -> Value {
    let finalizers: Vec<_> = (0..finalizers).map(|n| format!("a/{n}")).collect();
    let owners: Vec<_> = (0..owners).map(|n| json!({"uid": n})).collect();
    json!({"metadata": {"finalizers": finalizers, "ownerReferences": owners}})
}

fn fields(old: Option<&Value>, new: &Value) -> Vec<String> {
    let measured = |object| MeasuredObject {
        object,
        weight: ObjectWeight::default(),
    };
    let findings = judge_size(old.map(measured), measured(new));
    let findings = findings.into_iter();
    findings.filter_map(|finding| finding.place.field).collect()
}

#[test]
fn each_list_of_metadata_has_a_bound_that_updates_may_come_closer_to() {
    let at_limit = object(FINALIZERS_LIMIT, OWNERS_LIMIT);
    assert_eq!(fields(None, &at_limit), [""; 0]);
    let above = object(FINALIZERS_LIMIT + 1, OWNERS_LIMIT + 1);
    let expected = ["metadata.finalizers", "metadata.ownerReferences"];
    assert_eq!(fields(None, &above), expected);
    assert_eq!(fields(Some(&at_limit), &above), expected);
    let far_above = object(FINALIZERS_LIMIT + 2, OWNERS_LIMIT + 2);
    for old in [&above, &far_above] {
        assert_eq!(fields(Some(old), &above), [""; 0]);
    }
    assert_eq!(fields(Some(&above), &far_above), expected);
}

#[test]
fn each_text_of_an_entry_has_a_bound_that_updates_may_come_closer_to() {
    let finalizer = |bytes| json!({"metadata": {"finalizers": ["a/b", "x".repeat(bytes)]}});
    let owner = |field: &str, bytes: usize| {
        let long = json!({field: "x".repeat(bytes)});
        json!({"metadata": {"ownerReferences": [{"name": "web", "uid": 1}, long]}})
    };
    for (field, limit) in [
        ("finalizers", 317),
        ("ownerReferences.apiVersion", 317),
        ("ownerReferences.kind", 63),
        ("ownerReferences.name", 253),
        ("ownerReferences.uid", 128),
    ] {
        let object = |bytes| match field.split_once('.') {
            Some((_, text)) => owner(text, bytes),
            None => finalizer(bytes),
        };
        let [at_limit, above, far_above] = [0, 1, 2].map(|excess| object(limit + excess));
        let expected = [format!("metadata.{field}")];
        assert_eq!(fields(None, &at_limit), [""; 0], "{field}");
        assert_eq!(fields(None, &above), expected, "{field}");
        assert_eq!(fields(Some(&at_limit), &above), expected, "{field}");
        assert_eq!(fields(Some(&above), &far_above), expected, "{field}");
        for old in [&above, &far_above] {
            assert_eq!(fields(Some(old), &above), [""; 0], "{field}");
        }
    }
}

/// Returns an object with one annotation. Key and value have `bytes` bytes together.
fn annotated(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"annotations": {name: "x".repeat(bytes - name.len())}}})
}

/// Returns `object` with the annotations of `other` too.
fn merged(mut object: Value, other: &Value) -> Value {
    for (name, value) in other["metadata"]["annotations"].as_object().unwrap() {
        object["metadata"]["annotations"][name] = value.clone();
    }
    object
}

/// Names of annotations with their limits.
const ANNOTATIONS: [(&str, usize); 4] = [
    ("example.com/a", 32 << 10),
    (LAST_APPLIED, 96 << 10),
    (ANNOTATION_PROOF, 65 << 10),
    (ANNOTATION_APPLYSET_GROUP_KINDS, 16 << 10),
];

#[test]
fn each_group_of_annotations_has_a_bound_that_updates_may_come_closer_to() {
    for (name, limit) in ANNOTATIONS {
        let [at_limit, above, far_above] = [0, 1, 2].map(|excess| annotated(name, limit + excess));
        let expected = ["metadata.annotations"];
        assert_eq!(fields(None, &at_limit), [""; 0], "{name}");
        assert_eq!(fields(None, &above), expected, "{name}");
        assert_eq!(fields(Some(&at_limit), &above), expected, "{name}");
        assert_eq!(fields(Some(&above), &far_above), expected, "{name}");
        for old in [&above, &far_above] {
            assert_eq!(fields(Some(old), &above), [""; 0], "{name}");
        }
    }
    // Names that only begin like an ApplySet annotation have no limit of their own.
    let similar = annotated("applyset.kubernetes.io/other", (32 << 10) + 1);
    assert_eq!(fields(None, &similar), ["metadata.annotations"]);
}

#[test]
fn full_annotations_leave_space_for_every_other_group_and_for_the_stamp() {
    for (full, full_limit) in ANNOTATIONS {
        let old = annotated(full, full_limit + 1);
        for (name, limit) in ANNOTATIONS {
            if name != full {
                let new = merged(old.clone(), &annotated(name, limit));
                assert_eq!(fields(Some(&old), &new), [""; 0], "{full} {name}");
            }
        }
        for name in [ANNOTATION_STAMP, ANNOTATION_ADMIT] {
            let new = merged(old.clone(), &annotated(name, 200 << 10));
            assert_eq!(fields(Some(&old), &new), [""; 0], "{full} {name}");
        }
    }
}

#[test]
fn stamp_of_five_requesters_with_many_groups_fits_beside_full_annotations() {
    let requester = |user: &str| {
        Arc::new(Requester {
            user: user.to_owned(),
            uid: "0".repeat(36),
            groups: (0..200).map(|number| format!("{number:040}")).collect(),
            ..Requester::default()
        })
    };
    let digest = written_digest(&json!({"a": 1}));
    let stamp = Stamp {
        time: 1_800_000_000_000,
        kind: "BundleDeployment".to_owned(),
        name: "x".repeat(45),
        target: Some(StampTarget {
            uid: "0".repeat(36),
            generation: i64::MAX,
        }),
        spec: digest.clone(),
        parts: PartRequesters {
            class: requester("ana@example.com"),
            template: requester("ben@example.com"),
            config: requester("eve@example.com"),
            service_account: requester("kim@example.com"),
            settings: requester("lea@example.com"),
        },
        approves: Some(digest.clone()),
        generated_for: None,
        owners: Some(digest),
        admitted_at: Some(1_800_000_000_000),
    };
    let length = ANNOTATION_STAMP.len() + stamp.text(b"a key of the pod").len();
    assert!(length > 40 << 10, "{length}");
    let admit = ANNOTATION_ADMIT.len() + 16;
    assert!(length + admit <= STAMP_BYTES, "{length}");
}

/// Returns the weight of an object whose parts have these weights. All other parts have the weight
/// zero.
fn heavy(parts: &[(ObjectPart, usize)]) -> ObjectWeight {
    let weight = |part: ObjectPart| {
        let found = parts.iter().find(|(found, _)| *found == part);
        found.map_or(0, |(_, weight)| *weight)
    };
    ObjectWeight {
        parts: ObjectPart::ALL.map(weight),
        is_too_deep: false,
    }
}

/// Returns true if an update is admitted.
fn is_admitted(old: Option<ObjectWeight>, new: ObjectWeight, writes_spec: bool) -> bool {
    let (stored, written) = (json!({}), json!({"spec": {"paused": true}}));
    let written = if writes_spec { &written } else { &stored };
    let old = old.map(|weight| MeasuredObject {
        object: &stored,
        weight,
    });
    let new = MeasuredObject {
        object: written,
        weight: new,
    };
    judge_size(old, new).is_empty()
}

#[test]
fn weight_of_each_part_has_a_bound_that_updates_may_come_closer_to() {
    for part in ObjectPart::ALL {
        let limit = part.limit();
        for (old, new, expected) in [
            (0, limit, true),
            (0, limit + 1, false),
            (limit, limit + 1, false),
            (limit + 5, limit + 5, true),
            (limit + 5, limit + 1, true),
            (limit + 5, limit + 6, false),
        ] {
            let [before, after] = [old, new].map(|weight| heavy(&[(part, weight)]));
            let admitted = is_admitted(Some(before), after, false);
            assert_eq!(admitted, expected, "{part:?} {old} {new}");
            let is_growth = part == ObjectPart::ManagedFields && new <= limit + GROWTH;
            let expected = expected || is_growth;
            let admitted = is_admitted(Some(before), after, true);
            assert_eq!(admitted, expected, "{part:?} {old} {new} with a new spec");
            if old == 0 {
                assert_eq!(is_admitted(None, after, true), expected, "{part:?} {new}");
            }
        }
    }
}

#[test]
fn nested_values_can_only_be_removed() {
    let (flat, deep) = (
        ObjectWeight::default(),
        ObjectWeight {
            is_too_deep: true,
            ..ObjectWeight::default()
        },
    );
    for (old, new, expected) in [
        (None, deep, false),
        (Some(flat), deep, false),
        (Some(deep), flat, true),
        (Some(deep), deep, true),
    ] {
        assert_eq!(is_admitted(old, new, true), expected, "{old:?} {new:?}");
    }
}

#[test]
fn full_part_prevents_no_write_of_another_part() {
    for full in ObjectPart::ALL {
        for excess in [0, 1, GROWTH] {
            let full_weight = (full, full.limit() + excess);
            for part in ObjectPart::ALL.into_iter().filter(|part| *part != full) {
                let old = heavy(&[full_weight]);
                let new = heavy(&[full_weight, (part, part.limit())]);
                assert!(is_admitted(Some(old), new, false), "{full:?} {part:?}");
            }
        }
    }
}

#[test]
fn entries_of_field_managers_prevent_no_write_of_the_spec() {
    /// Weight of the entries that one write adds, in bytes.
    const ENTRIES: usize = 3 << 10;
    let managers = |weight| heavy(&[(ObjectPart::ManagedFields, weight)]);
    let full = ObjectPart::ManagedFields.limit();
    let (before, after) = (managers(full), managers(full + ENTRIES));
    let larger = managers(full + ENTRIES + 1);
    let largest = managers(full + GROWTH);
    // Columns: stored and written weight, true if the write changes the spec, expected result.
    for (old, new, writes_spec, expected) in [
        (before, after, false, false),
        (before, after, true, true),
        (after, after, false, true),
        (after, larger, false, false),
        (after, largest, true, true),
    ] {
        let admitted = is_admitted(Some(old), new, writes_spec);
        assert_eq!(admitted, expected, "{old:?} {new:?} {writes_spec}");
    }
}

#[test]
fn repeated_updates_never_exceed_the_maximum_weight() {
    for step in [1 << 10, GROWTH, 100 << 10] {
        let mut stored = ObjectWeight::default();
        for number in 0..20_000 {
            let mut larger = stored;
            larger.parts[number % ObjectPart::ALL.len()] += step;
            let writes_spec = (number / ObjectPart::ALL.len()).is_multiple_of(2);
            if is_admitted(Some(stored), larger, writes_spec) {
                stored = larger;
            }
        }
        let sum: usize = stored.parts.iter().sum();
        assert!(sum <= MAX_WEIGHT, "{sum}");
        assert!(sum > MAX_WEIGHT / 2, "{sum}");
    }
}
