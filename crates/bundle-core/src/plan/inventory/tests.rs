//! Ownership of objects, and the encoding of inventories.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::object::ObjectId;
use crate::plan::rollout::{
    ContentRequest, HealthyContent, RolloutAttempt, RolloutContent, RolloutSpec, RolloutState,
    RolloutStep,
};
use crate::review::{PartRequesters, Requester};
use crate::service_account::ServiceAccount;

const KEY: &str = "ConfigMap/team-a/web";

fn live(uid: &str, created: i64, applied_by_us: bool) -> LiveObject<'_> {
    LiveObject {
        uid,
        created: Some(created),
        applied_by_us,
        mark: CreationKey::new([7; 32]).mark(KEY).into(),
    }
}

/// Returns an inventory with the creation marks of [`live`].
fn inventory() -> Inventory {
    let mut inventory = Inventory::new("web");
    inventory.ensure_creation_key(|| [7; 32]);
    inventory
}

fn requesters() -> PartRequesters {
    PartRequesters::all(&Requester::default())
}

#[test]
fn recorded_requests_count_for_the_limits_of_objects() {
    let mut inventory = Inventory::new("web");
    inventory.record(KEY, "a");
    assert_eq!(inventory.counted_objects(), 1);
    for (bytes, expected) in [(0, 1), (1000, 1), (5000, 5), (20_000, 1)] {
        let request = ContentRequest {
            template: Value::Null,
            config: "x".repeat(bytes).into(),
            ..ContentRequest::default()
        };
        let content = RolloutContent::default();
        let healthy = HealthyContent::new(content, "u", request, &requesters());
        let mut record = InstallationRecord::default();
        record.rollout.healthy = Some(healthy);
        inventory.record = Some(record);
        assert_eq!(inventory.counted_objects(), expected, "{bytes}");
    }
}

/// Returns an inventory whose last installation had this spec.
fn installed_with(spec: &str) -> Inventory {
    let account = ServiceAccount::parse("bundle-system", "installer").unwrap();
    let prefix = ContentKeyPrefix::new("sha256:content", &account, None);
    Inventory {
        installation: format!("{prefix}{spec} uid 7 key").into(),
        ..Inventory::new("web")
    }
}

#[test]
fn spec_is_new_until_an_installation_of_its_generation_or_of_its_digest_begins() {
    let cause = || "cause".to_owned();
    let states = [
        RolloutState::Applying,
        RolloutState::Waiting,
        RolloutState::Healthy,
        RolloutState::RollingBack { cause: cause() },
        RolloutState::RolledBack { cause: cause() },
        RolloutState::Failed {
            cause: cause(),
            obstacle: Some("rejected".to_owned()),
        },
    ];
    // Columns: generation whose installation has begun, spec of the last installation, expected
    // result for generation 2 with spec `b`.
    for (begun, last, expected) in [
        (None, "", true),
        (None, "a", true),
        // The inventory is from an earlier version of this project, or a write was reverted.
        (None, "b", false),
        (Some(1), "a", true),
        (Some(1), "b", false),
        (Some(2), "b", false),
        // The automatic rollback records the spec of the former content.
        (Some(2), "a", false),
    ] {
        let mut inventory = if last.is_empty() {
            Inventory::new("web")
        } else {
            installed_with(last)
        };
        assert_eq!(
            inventory.is_new_spec(2, "b"),
            last != "b",
            "without a record: {last}"
        );
        for state in &states {
            let mut record = InstallationRecord::default();
            record.rollout.attempt = begun.map(|generation| RolloutAttempt {
                generation,
                state: state.clone(),
                ..RolloutAttempt::default()
            });
            inventory.record = Some(record);
            let found = inventory.is_new_spec(2, "b");
            assert_eq!(found, expected, "{begun:?} {last} {state:?}");
        }
    }
}

#[test]
fn owns_only_the_object_with_the_recorded_uid() {
    let mut inventory = Inventory::new("web");
    assert_eq!(
        inventory.claim(KEY, live("a", 100, true)),
        ObjectOwnership::Unrecorded
    );
    inventory.record(KEY, "a");
    for (uid, claim) in [
        ("a", ObjectOwnership::Ours),
        ("b", ObjectOwnership::Replaced),
        ("", ObjectOwnership::Replaced),
    ] {
        assert_eq!(inventory.claim(KEY, live(uid, 100, true)), claim, "{uid}");
    }
    assert!(inventory.owns(KEY, "a") && !inventory.owns(KEY, "b") && !inventory.owns(KEY, ""));
}

#[test]
fn intent_claims_objects_that_were_created_after_it() {
    let mut inventory = inventory();
    inventory.record_intent(KEY, 100);
    for (created, applied_by_us, claim) in [
        (100, true, ObjectOwnership::Ours),
        (98, true, ObjectOwnership::Ours),
        (97, true, ObjectOwnership::Unrecorded),
        (500, true, ObjectOwnership::Ours),
        (100, false, ObjectOwnership::Unrecorded),
    ] {
        let found = inventory.claim(KEY, live("a", created, applied_by_us));
        assert_eq!(found, claim, "{created} {applied_by_us}");
    }
    let unknown = LiveObject {
        created: None,
        ..live("a", 100, true)
    };
    assert_eq!(inventory.claim(KEY, unknown), ObjectOwnership::Unrecorded);
}

#[test]
fn repeated_intent_keeps_its_time_and_intent_after_a_deletion_is_new() {
    let mut inventory = inventory();
    inventory.record_intent(KEY, 100);
    inventory.record_intent(KEY, 200);
    assert_eq!(
        inventory.claim(KEY, live("a", 150, true)),
        ObjectOwnership::Ours
    );
    inventory.record(KEY, "a");
    inventory.record_intent(KEY, 300);
    assert_eq!(
        inventory.claim(KEY, live("a", 150, true)),
        ObjectOwnership::Unrecorded
    );
}

#[test]
fn intent_requires_the_mark_of_object_and_inventory() {
    let mut own = inventory();
    own.record_intent(KEY, 100);
    own.record_intent("ConfigMap/team-a/other", 100);
    let mut of_others = Inventory::new("other");
    of_others.ensure_creation_key(|| [8; 32]);
    of_others.record_intent(KEY, 100);
    let mut without_key = Inventory::new("old");
    without_key.record_intent(KEY, 100);
    let object = live("a", 100, true);
    assert_eq!(own.claim(KEY, object), ObjectOwnership::Ours);
    assert_eq!(of_others.claim(KEY, object), ObjectOwnership::Unrecorded);
    assert_eq!(without_key.claim(KEY, object), ObjectOwnership::Unrecorded);
    assert_eq!(
        own.claim("ConfigMap/team-a/other", object),
        ObjectOwnership::Unrecorded
    );
    let unmarked = LiveObject {
        mark: None,
        ..object
    };
    assert_eq!(own.claim(KEY, unmarked), ObjectOwnership::Unrecorded);
    assert_eq!(
        without_key.claim(KEY, unmarked),
        ObjectOwnership::Unrecorded
    );
}

#[test]
fn rejected_intent_is_removed_and_an_earlier_one_stays() {
    let mut inventory = inventory();
    inventory.record_intent(KEY, 100);
    inventory.record_intent(KEY, 200);
    inventory.remove_intent(KEY, 200);
    assert!(inventory.has(KEY));
    inventory.remove_intent(KEY, 100);
    assert!(!inventory.has(KEY));
    inventory.record(KEY, "a");
    inventory.remove_intent(KEY, 0);
    assert!(inventory.owns(KEY, "a"));
}

#[test]
fn adoption_claims_the_object_only_after_an_apply_has_reached_it() {
    let mut inventory = inventory();
    assert!(inventory.adopt(KEY, "a").is_some());
    let untouched = LiveObject {
        mark: None,
        ..live("a", 1, false)
    };
    assert_eq!(inventory.claim(KEY, untouched), ObjectOwnership::Unrecorded);
    assert!(!inventory.owns(KEY, "a") && inventory.uid(KEY).is_none());
    assert_eq!(inventory.reserves(KEY, "a"), Some(Reservation::Owned));
    assert_eq!(inventory.reserves(KEY, "b"), None);
    // The object was created after the intent, and the process ended before it recorded the uid.
    assert_eq!(
        inventory.claim(KEY, live("a", 1, true)),
        ObjectOwnership::Ours
    );
    assert_eq!(
        inventory.claim(KEY, live("a", 1, false)),
        ObjectOwnership::Unrecorded
    );
    assert_eq!(
        inventory.claim(KEY, live("b", 1, true)),
        ObjectOwnership::Unrecorded
    );
    inventory.record(KEY, "a");
    assert!(inventory.owns(KEY, "a"));
    assert_eq!(inventory.reserves(KEY, "a"), Some(Reservation::Owned));
    assert_eq!(inventory.adopt(KEY, "a"), None);
}

#[test]
fn intent_reserves_its_key_until_it_is_recorded_or_removed() {
    let mut inventory = inventory();
    assert_eq!(inventory.reserves(KEY, "a"), None);
    inventory.record_intent(KEY, 100);
    assert_eq!(inventory.reserves(KEY, "a"), Some(Reservation::Installing));
    let mut recorded = inventory.clone();
    recorded.record(KEY, "a");
    assert_eq!(recorded.reserves(KEY, "a"), Some(Reservation::Owned));
    assert_eq!(recorded.reserves(KEY, "b"), None);
    inventory.remove_intent(KEY, 100);
    assert_eq!(inventory.reserves(KEY, "a"), None);
}

#[test]
fn rejected_adoption_restores_the_previous_record() {
    for before in [
        None,
        Some(ObjectRecord::Intent(100)),
        Some(ObjectRecord::Uid("old".to_owned())),
        Some(ObjectRecord::Adoption("a".to_owned())),
    ] {
        let mut inventory = inventory();
        if let Some(before) = &before {
            inventory.objects.insert(KEY.to_owned(), before.clone());
        }
        let adoption = inventory.adopt(KEY, "a").unwrap();
        assert_eq!(
            inventory.get(KEY),
            Some(&ObjectRecord::Adoption("a".to_owned()))
        );
        inventory.revert_adoption(&adoption);
        assert_eq!(inventory.get(KEY), before.as_ref());
    }
    let mut inventory = inventory();
    let adoption = inventory.adopt(KEY, "a").unwrap();
    inventory.record(KEY, "a");
    inventory.revert_adoption(&adoption);
    assert!(inventory.owns(KEY, "a"));
}

#[test]
fn encoding_is_canonical_strict_and_bounded() {
    let mut inventory = Inventory::new("web");
    inventory.record("Deployment.apps/team-a/web", "1");
    inventory.record_intent(KEY, 0);
    inventory.record_namespace("team-a", "7");
    let bytes = inventory.encode().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        r#"{"version":1,"deployment":"web","objects":{"ConfigMap/team-a/web":{"intent":0},"Deployment.apps/team-a/web":{"uid":"1"}},"namespaces":{"team-a":"7"}}"#
    );
    assert_eq!(Inventory::decode(&bytes).unwrap(), inventory);
    for malformed in [
        "",
        "[]",
        r#"{"version":2,"deployment":"web"}"#,
        r#"{"version":1,"deployment":"web","more":1}"#,
        r#"{"version":1,"deployment":"web","objects":{"a":{"uid":"1","intent":1}}}"#,
    ] {
        let error = Inventory::decode(malformed.as_bytes());
        assert!(
            matches!(
                error,
                Err(InventoryError::Malformed(_) | InventoryError::UnknownVersion(2))
            ),
            "{malformed}"
        );
    }
    for n in 0..MAX_OBJECTS {
        inventory.record(format!("ConfigMap/n/{n}"), "u");
    }
    assert_eq!(
        inventory.encode().unwrap_err().to_string(),
        "the inventory has 25002 objects, which is more than the limit of 25000"
    );
    let long = vec![b' '; MAX_BYTES + 1];
    assert!(matches!(
        Inventory::decode(&long),
        Err(InventoryError::TooLarge { .. })
    ));
}

#[test]
fn namespaces_stay_recorded_while_they_contain_recorded_objects() {
    let mut inventory = Inventory::new("web");
    inventory.record(KEY, "a");
    inventory.record("ClusterRole.rbac.authorization.k8s.io/team-b", "b");
    inventory.record_namespace("team-a", "1");
    inventory.record_namespace("team-b", "2");
    inventory.shrink_namespaces();
    assert_eq!(
        inventory.namespaces().collect::<Vec<_>>(),
        [("team-a", "1")]
    );
}

fn rollout_spec(generation: i64) -> RolloutSpec<'static> {
    let digest = match generation {
        1 => "one",
        2 => "two",
        3 => "three",
        4 => "four",
        5 => "five",
        _ => "six",
    };
    RolloutSpec { generation, digest }
}

fn rollout_content(number: u8) -> RolloutContent {
    RolloutContent::new(&number.to_string(), "digest", &Value::Null)
}

/// Records a complete installation of this content for this generation of the spec, with one object
/// in each of `namespaces`. All other objects are pruned.
fn install(
    inventory: &mut Inventory,
    (generation, content): (i64, u8),
    namespaces: &[&str],
) -> Vec<String> {
    let content = rollout_content(content);
    if let Some(assigned) = inventory.with_assigned_rollout(rollout_spec(generation), 0) {
        *inventory = assigned;
    }
    inventory.record_healthy_namespaces();
    let record = inventory.record.get_or_insert_default();
    record.rollout.begin(rollout_spec(generation), &content, 0);
    let mut keys = Vec::new();
    for namespace in namespaces {
        inventory.record_namespace(*namespace, format!("uid-of-{namespace}"));
        let key = format!("ConfigMap/{namespace}/web");
        inventory.record(key.clone(), "a");
        keys.push(key);
    }
    let wanted = keys.iter().map(String::as_str).collect();
    for key in inventory.keys_except(&wanted) {
        inventory.remove(&key);
    }
    inventory.shrink_namespaces();
    let record = inventory.record.get_or_insert_default();
    let spec = rollout_spec(generation);
    record.rollout.complete(spec, &content, 0);
    let names = inventory.namespaces().map(|(name, _)| name.to_owned());
    names.collect()
}

/// Records this step of the rollout of this content.
fn step(inventory: &mut Inventory, step: &RolloutStep, (generation, content): (i64, u8)) {
    let record = inventory.record.get_or_insert_default();
    let healthy = || {
        let request = ContentRequest::default();
        HealthyContent::new(rollout_content(content), "uid", request, &requesters())
    };
    let spec = rollout_spec(generation);
    record.rollout.record(step, (spec, 0), "", healthy);
}

#[test]
fn namespaces_of_healthy_content_stay_recorded_until_other_content_is_healthy() {
    let mut inventory = Inventory::new("web");
    assert_eq!(install(&mut inventory, (1, 1), &["a", "n"]), ["a", "n"]);
    step(&mut inventory, &RolloutStep::RecordHealthy, (1, 1));
    // The objects in namespace `n` are pruned. The new content is never healthy.
    assert_eq!(install(&mut inventory, (2, 2), &["a"]), ["a", "n"]);
    assert!(inventory.owns_namespace("n", "uid-of-n"));
    assert!(!inventory.owns_namespace("n", "recreated"));
    assert!(!inventory.owns_namespace("other", ""));
    let bytes = inventory.encode().unwrap();
    assert_eq!(Inventory::decode(&bytes).unwrap(), inventory);
    // Namespaces of other content that was not healthy do not accumulate.
    assert_eq!(install(&mut inventory, (3, 3), &["b"]), ["a", "b", "n"]);
    assert_eq!(install(&mut inventory, (4, 4), &["c"]), ["a", "c", "n"]);
    assert_eq!(install(&mut inventory, (5, 4), &["d"]), ["a", "d", "n"]);
    step(&mut inventory, &RolloutStep::RecordHealthy, (5, 4));
    // The same spec is installed again, for example after a change of the class.
    assert_eq!(install(&mut inventory, (5, 4), &["d"]), ["d"]);
    assert_eq!(install(&mut inventory, (6, 5), &["e"]), ["d", "e"]);
}

#[test]
fn namespaces_of_healthy_content_stay_recorded_after_an_automatic_rollback() {
    let mut inventory = Inventory::new("web");
    install(&mut inventory, (1, 1), &["a", "n"]);
    step(&mut inventory, &RolloutStep::RecordHealthy, (1, 1));
    assert_eq!(install(&mut inventory, (2, 2), &["b"]), ["a", "b", "n"]);
    step(&mut inventory, &RolloutStep::RollBack, (2, 2));
    assert_eq!(install(&mut inventory, (2, 1), &["a", "n"]), ["a", "n"]);
    assert!(inventory.is_healthy_content_installed());
    assert_eq!(install(&mut inventory, (3, 3), &["c"]), ["a", "c", "n"]);
}

#[test]
fn key_is_the_text_of_an_object_id() {
    let id = |group: &str, namespace: Option<&str>| ObjectId {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: "Thing".to_owned(),
        namespace: namespace.map(str::to_owned),
        name: "x.example.com".to_owned(),
    };
    for id in [
        id("", None),
        id("example.com", None),
        id("example.com", Some("team-a")),
    ] {
        let key = id.to_string();
        let (kind, namespace, name) = parts(&key).unwrap();
        assert_eq!(
            (kind.group.as_str(), kind.kind.as_str(), namespace, name),
            id.identity()
        );
    }
    assert_eq!(parts("ConfigMap"), None);
    assert_eq!(parts("ConfigMap/a/b/c"), None);
}

proptest! {
    #[test]
    fn unwanted_returns_all_recorded_objects_that_are_not_wanted(
        recorded in proptest::collection::btree_set("[a-c]{1,3}", 0..20),
        wanted in proptest::collection::btree_set("[a-c]{1,3}", 0..20),
    ) {
        let mut inventory = Inventory::new("web");
        for key in &recorded {
            inventory.record(key.clone(), "u");
        }
        let wanted_keys: HashSet<&str> = wanted.iter().map(String::as_str).collect();
        let unwanted: BTreeSet<String> = inventory.keys_except(&wanted_keys).into_iter().collect();
        prop_assert_eq!(unwanted, recorded.difference(&wanted).cloned().collect());
    }
}

#[test]
fn field_of_earlier_versions_is_read_and_not_written() {
    let text = r#"{"version":1,"deployment":"web","createdNamespaces":["Namespace/web"]}"#;
    let inventory: Inventory = serde_json::from_str(text).unwrap();
    assert_eq!(inventory, Inventory::new("web"));
    let written = serde_json::to_string(&inventory).unwrap();
    assert!(!written.contains("createdNamespaces"), "{written}");
}
