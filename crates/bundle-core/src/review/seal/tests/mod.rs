//! The objects and generations for which a seal is valid, and the facts that a seal contains.

mod stamps;

use serde_json::json;

use super::*;
use crate::review::Requester;
use crate::review::stamp::StampTarget;

const KEY: &[u8] = b"a key of the pod";
const NOON: i64 = 1_800_000_000_000;

fn ana() -> PartRequesters {
    PartRequesters::all(&Requester {
        user: "ana".into(),
        ..Requester::default()
    })
}

/// Returns an object of generation 1 that was created at noon.
fn object<'a>(spec: &'a Value, stamp: Option<&'a str>, seal: Option<&'a str>) -> StoredObject<'a> {
    StoredObject {
        kind: Kind::BundleDeployment,
        name: "web",
        uid: "u1",
        generation: 1,
        created: Some(NOON),
        written: Some(NOON),
        deleting: false,
        spec,
        stamp,
        seal,
    }
}

fn stamp(spec: &Value, target: Option<i64>) -> Stamp {
    Stamp {
        time: NOON,
        kind: "BundleDeployment".into(),
        name: "web".into(),
        target: target.map(|generation| StampTarget {
            uid: "u1".into(),
            generation,
        }),
        spec: canonical::written_digest(spec),
        parts: ana(),
        approves: None,
        generated_for: None,
        owners: None,
        admitted_at: None,
    }
}

fn at(now: i64) -> SealCheckContext {
    SealCheckContext {
        now,
        intact_since: Some(NOON - 60_000),
    }
}

fn state(object: &StoredObject<'_>) -> SealState {
    seal_state(KEY, object, &at(NOON + 1_000))
}

fn refusal(object: &StoredObject<'_>, moment: &SealCheckContext) -> StampError {
    seal_state(KEY, object, moment)
        .confirmed_facts()
        .unwrap_err()
}

#[test]
fn fresh_stamp_of_a_create_may_be_sealed_and_the_seal_lasts() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, None).text(KEY);
    let written = object(&spec, Some(&text), None);
    let SealState::Unsealed(vouched) = state(&written) else {
        panic!("{:?}", state(&written))
    };
    assert_eq!(vouched.parts, ana());
    let seal = seal(KEY, &written, &vouched);
    // One year later, the object has no stamp, and the registrations are missing.
    let later = SealCheckContext {
        now: NOON + 31_536_000_000,
        intact_since: None,
    };
    let sealed = object(&spec, None, Some(&seal));
    assert_eq!(
        seal_state(KEY, &sealed, &later),
        SealState::Sealed(vouched.clone())
    );
    // Deletion adds one to the generation.
    let deleted = StoredObject {
        generation: 2,
        deleting: true,
        ..sealed
    };
    assert_eq!(
        seal_state(KEY, &deleted, &later),
        SealState::Sealed(vouched)
    );
}

#[test]
fn seal_counts_for_one_generation_of_one_object_only() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, None).text(KEY);
    let written = object(&spec, Some(&text), None);
    let vouched = state(&written).confirmed_facts().unwrap();
    let text = seal(KEY, &written, &vouched);
    let sealed = object(&spec, None, Some(&text));
    let other_spec = json!({"a": 2});
    let gone = SealCheckContext {
        now: NOON,
        intact_since: None,
    };
    for other in [
        StoredObject {
            uid: "u2",
            ..sealed
        },
        StoredObject {
            name: "other",
            ..sealed
        },
        StoredObject {
            kind: Kind::Bundle,
            ..sealed
        },
        StoredObject {
            generation: 2,
            ..sealed
        },
        StoredObject {
            generation: 3,
            deleting: true,
            ..sealed
        },
        StoredObject {
            spec: &other_spec,
            ..sealed
        },
    ] {
        assert_eq!(refusal(&other, &gone), StampError::Missing, "{other:?}");
    }
    assert_eq!(
        seal_state(b"another key", &sealed, &gone),
        SealState::Invalid(StampError::Missing)
    );
}

#[test]
fn seal_is_valid_for_next_generation_with_equal_spec() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, None).text(KEY);
    let written = object(&spec, Some(&text), None);
    let vouched = state(&written).confirmed_facts().unwrap();
    let text = seal(KEY, &written, &vouched);
    let again = StoredObject {
        generation: 2,
        written: Some(NOON + 30_000),
        ..object(&spec, None, Some(&text))
    };
    assert_eq!(
        seal_state(KEY, &again, &at(NOON + 31_000)),
        SealState::Unsealed(vouched)
    );
    // The seal is also valid if the time of the write was not recorded, and the registrations have
    // been intact since the seal.
    let unnoted = StoredObject {
        written: None,
        ..again
    };
    let found = seal_state(KEY, &unnoted, &at(NOON + 31_000));
    assert!(matches!(found, SealState::Unsealed(_)), "{found:?}");
    // The seal is invalid if the registrations were missing for a time, or for a generation that is
    // two higher.
    let gap = SealCheckContext {
        now: NOON + 31_000,
        intact_since: Some(NOON + 30_000),
    };
    assert_eq!(refusal(&again, &gap), StampError::Missing);
    assert_eq!(refusal(&unnoted, &gap), StampError::Missing);
    let twice = StoredObject {
        generation: 3,
        ..again
    };
    assert_eq!(refusal(&twice, &at(NOON + 31_000)), StampError::Missing);
}

#[test]
fn seal_is_not_valid_after_a_deleted_object_changed_to_another_spec_and_back() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, Some(2)).text(KEY);
    // The seal is made while the object is being deleted.
    let written = StoredObject {
        generation: 2,
        deleting: true,
        ..object(&spec, Some(&text), None)
    };
    let vouched = state(&written).confirmed_facts().unwrap();
    let text = seal(KEY, &written, &vouched);
    // Another user writes another spec, and then the same spec again. The seal does not record
    // whether the object was already being deleted. Therefore the deletion cannot explain one of
    // the two increments of the generation.
    let again = StoredObject {
        generation: 4,
        written: Some(NOON + 30_000),
        ..object(&spec, None, Some(&text))
    };
    for deleting in [false, true] {
        let again = StoredObject { deleting, ..again };
        assert_eq!(refusal(&again, &at(NOON + 31_000)), StampError::Missing);
    }
}

#[test]
fn newer_stamp_replaces_the_seal_and_an_older_one_does_not() {
    let spec = json!({"a": 1});
    let first = stamp(&spec, Some(1)).text(KEY);
    let written = object(&spec, Some(&first), None);
    let vouched = state(&written).confirmed_facts().unwrap();
    let text = seal(KEY, &written, &vouched);
    let ben = PartRequesters::all(&Requester {
        user: "ben".into(),
        ..Requester::default()
    });
    let with = |time| Stamp {
        time,
        parts: ben.clone(),
        ..stamp(&spec, Some(1))
    };
    let newer = with(NOON + 500).text(KEY);
    let state_of = |stamp: &str| state(&object(&spec, Some(stamp), Some(&text)));
    assert!(matches!(state_of(&newer), SealState::Unsealed(found) if found.parts == ben));
    let older = with(NOON - 500).text(KEY);
    assert!(matches!(state_of(&older), SealState::Sealed(found) if found.parts == ana()));
}

#[test]
fn newer_stamp_invalidates_seal_even_after_it_expires() {
    let spec = json!({"a": 1});
    let vouched = state(&object(&spec, Some(&stamp(&spec, None).text(KEY)), None))
        .confirmed_facts()
        .unwrap();
    let seal = super::seal(KEY, &object(&spec, None, None), &vouched);
    // A minute later, another requester takes over the same generation.
    let later = Stamp {
        time: NOON + 60_000,
        ..stamp(&spec, Some(1))
    }
    .text(KEY);
    let mut taken_over = object(&spec, Some(&later), Some(&seal));
    taken_over.written = Some(NOON + 60_000);
    let fresh = seal_state(KEY, &taken_over, &at(NOON + 61_000));
    assert!(matches!(fresh, SealState::Unsealed(found) if found.time == NOON + 60_000));
    let hour = at(NOON + 3_600_000);
    assert_eq!(refusal(&taken_over, &hour), StampError::Expired);
    // The seal that was made from the later stamp never expires. A seal is valid even if the object
    // still has an expired stamp.
    let own = super::seal(
        KEY,
        &taken_over,
        &ConfirmedFacts {
            time: NOON + 60_000,
            ..vouched
        },
    );
    taken_over.seal = Some(&own);
    assert!(matches!(
        seal_state(KEY, &taken_over, &hour),
        SealState::Sealed(_)
    ));
    // A stamp of another generation has no effect on this seal.
    let other = stamp(&spec, Some(2)).text(KEY);
    let beside = object(&spec, Some(&other), Some(&seal));
    assert!(matches!(
        seal_state(KEY, &beside, &hour),
        SealState::Sealed(_)
    ));
}

#[test]
fn seal_admits_only_what_its_stamp_admitted() {
    let spec = json!({"a": 1});
    for admitted_at in [None, Some(NOON - 20_000)] {
        let stamp = Stamp {
            admitted_at,
            ..stamp(&spec, None)
        };
        let text = stamp.text(KEY);
        let fresh = object(&spec, Some(&text), None);
        let vouched = state(&fresh).confirmed_facts().unwrap();
        let sealed = seal(KEY, &fresh, &vouched);
        let found = state(&object(&spec, None, Some(&sealed))).confirmed_facts();
        assert_eq!(found.map(|sealed| sealed.admitted_at), Ok(admitted_at));
        // Stamps of earlier versions of this project have no field `admitted_at`.
        assert_eq!(text.contains("admitted_at"), admitted_at.is_some());
        assert_eq!(sealed.contains("admittedAt"), admitted_at.is_some());
    }
}

#[test]
fn names_with_a_template_hash_contain_the_name_of_the_deployment() {
    for (bundle, expected) in [
        ("web-123456", Some("web")),
        ("web-api-0a1bcd", Some("web-api")),
        ("web", None),
        ("web-12345", None),
        ("web-12345g", None),
    ] {
        assert_eq!(deployment_name(bundle), expected, "{bundle}");
    }
}

#[test]
fn seal_covers_only_the_owners_that_were_reviewed() {
    let spec = json!({"a": 1});
    let owner =
        |kind: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": "a", "uid": uid});
    let with_owners = |owners: Value| json!({"metadata": {"ownerReferences": owners}});
    let reviewed = with_owners(json!([owner("ConfigMap", "1")]));
    let with = |stamp: Stamp| {
        let text = stamp.text(KEY);
        let fresh = object(&spec, Some(&text), None);
        let sealed = seal(KEY, &fresh, &state(&fresh).confirmed_facts().unwrap());
        state(&object(&spec, None, Some(&sealed)))
            .confirmed_facts()
            .unwrap()
    };
    let sealed = with(Stamp {
        owners: owners_digest(&reviewed),
        ..stamp(&spec, None)
    });
    assert!(sealed.covers_owners(&reviewed));
    assert!(sealed.covers_owners(&json!({"metadata": {}})));
    let other = with_owners(json!([owner("ConfigMap", "2")]));
    let more = with_owners(json!([owner("ConfigMap", "1"), owner("ConfigMap", "2")]));
    assert!(!sealed.covers_owners(&other) && !sealed.covers_owners(&more));
    // Stamps of earlier versions of this project have no digest of owners.
    assert!(!with(stamp(&spec, None)).covers_owners(&reviewed));
    let generated = with(Stamp {
        generated_for: Some(GeneratedFor {
            uid: "d".into(),
            hash: "abcdef".into(),
        }),
        ..stamp(&spec, None)
    });
    let of_template = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "name": "web", "uid": "d"});
    let bundle =
        |name: &str, owners: Value| json!({"metadata": {"name": name, "ownerReferences": owners}});
    let named = |owners: Value| bundle("web-4f2a9c", owners);
    assert!(generated.covers_owners(&named(json!([of_template]))));
    for (field, value) in [
        ("apiVersion", "v1"),
        ("kind", "Bundle"),
        ("name", "other"),
        ("uid", "e"),
    ] {
        let mut other = of_template.clone();
        other[field] = value.into();
        assert!(!generated.covers_owners(&named(json!([other]))), "{field}");
        let both = named(json!([of_template, other]));
        assert!(!generated.covers_owners(&both), "{field}");
    }
    for name in [
        "web",
        "web-4f2a9",
        "web-4f2a9x",
        "web-4f2a9c-4f2a9c",
        "other-4f2a9c",
    ] {
        assert!(
            !generated.covers_owners(&bundle(name, json!([of_template]))),
            "{name}"
        );
    }
    // If the seal contains a digest of owners, only these owners are covered.
    let sealed = ConfirmedFacts {
        owners: owners_digest(&reviewed),
        ..generated
    };
    assert!(!sealed.covers_owners(&named(json!([of_template]))));
}
