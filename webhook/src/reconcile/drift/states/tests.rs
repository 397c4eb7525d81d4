//! Tests of the drift states of objects after watch events.

use bundle_core::diagnostic::codes;
use bundle_core::plan::restores::RestoreFailure;
use bundle_core::plan::steps::AppliedContent;
use bundle_core::plan::summary::Coverage;
use serde_json::json;

use super::*;
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::error::RetryPolicy;

const KEY: &str = "ConfigMap/n/x";

/// Returns the state of an object after a write with resourceVersion `revision`. `text` is the
/// content of the controller's entry in `managedFields`.
fn state(text: &str, revision: &str) -> ObjectState {
    let fields = json!({ text: {} });
    let entry = drift::FieldsEntry {
        manager: "m",
        operation: "Apply",
        subresource: "",
        api_version: "v1",
        time: Some(1),
        fields: &fields,
    };
    ObjectState {
        fingerprint: drift::Fingerprint::of("m", [entry], &BTreeMap::new(), &[]),
        revision: drift::ObjectRevision::of(drift::ObjectRevisionParts {
            group: "",
            kind: "ConfigMap",
            generation: None,
            resource_version: revision,
            rest: "",
        }),
    }
}

fn applied_state(version: u64, text: &str) -> AppliedState {
    AppliedState {
        state: Some(state(text, &version.to_string())),
        version,
        request: None,
    }
}

fn seen(version: u64, text: &str) -> ObservedObject {
    ObservedObject {
        uid: "u".to_owned(),
        version,
        state: state(text, &version.to_string()),
        created: None,
        mark: None,
        writer: None,
    }
}

fn content_key(digest: &str) -> ContentKey {
    ContentKey::from(format!("{digest} installer - spec uid"))
}

fn recording(keys: &[&str]) -> Arc<Inventory> {
    let mut inventory = Inventory::new("web");
    for key in keys {
        inventory.record(*key, "u");
    }
    Arc::new(inventory)
}

fn states() -> (InstalledStates, mpsc::UnboundedReceiver<String>) {
    let (wake, woken) = mpsc::unbounded_channel();
    let states = InstalledStates::new(wake);
    states.set_inventory("web", recording(&[KEY]));
    states.begin_apply("web");
    let objects = [(KEY.to_owned(), applied_state(5, "a"))].into();
    let key = content_key("sha256:1");
    states.finish_apply("web", &key, objects, &BTreeMap::new());
    (states, woken)
}

#[test]
fn write_without_change_of_the_own_entry_is_verified_with_growing_delay() {
    let (states, mut woken) = states();
    let users = ["web".to_owned()];
    let now = Instant::now() + Duration::from_secs(1);
    states.evaluate_event(&users, KEY, &Observation::Present(seen(6, "a")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert!(states.drifted("web").is_empty());
    assert_eq!(states.suspects("web", now).0, [KEY.to_owned()].into());
    states.record_verified("web", KEY, applied_state(6, "a"), now);
    assert_eq!(states.suspects("web", now), (BTreeSet::new(), None));
    // An event without a new write has no effect. The next write is verified after a delay.
    states.evaluate_event(&users, KEY, &Observation::Present(seen(6, "a")));
    assert_eq!(states.suspects("web", now), (BTreeSet::new(), None));
    states.evaluate_event(&users, KEY, &Observation::Present(seen(7, "a")));
    let (due, next) = states.suspects("web", now);
    assert!(due.is_empty() && next.is_some(), "{due:?} {next:?}");
    let later = now + Duration::from_secs(1);
    assert_eq!(states.suspects("web", later).0, [KEY.to_owned()].into());
}

#[test]
fn dry_run_verifies_a_write_only_in_a_later_second() {
    let (states, _woken) = states();
    let users = ["web".to_owned()];
    states.evaluate_event(&users, KEY, &Observation::Present(seen(6, "a")));
    let after = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
    for _ in 0..2 {
        states.postpone_verifications("web");
        assert!(states.suspects("web", after(1)).0.is_empty());
        assert_eq!(states.suspects("web", after(3)).0, [KEY.to_owned()].into());
    }
    states.record_verified("web", KEY, applied_state(6, "a"), Instant::now());
    states.postpone_verifications("web");
    assert!(states.suspects("web", after(60)).0.is_empty());
}

#[test]
fn content_with_unwatched_objects_is_found_again_in_the_next_reconcile() {
    let (states, mut woken) = states();
    states.begin_reconcile("web");
    states.end_reconcile("web");
    let installed = Some(content_key("sha256:1"));
    assert_eq!(states.content("web"), installed);

    states.begin_reconcile("web");
    states.mark_unwatched("web");
    assert_eq!(states.content("web"), installed);
    states.end_reconcile("web");
    assert_eq!(states.content("web"), None);
    // No object was restored, so no definition can be new and no reconcile is necessary.
    assert!(woken.try_recv().is_err());

    states.begin_reconcile("web");
    states.mark_unwatched("web");
    states.record_restored("web", KEY, applied_state(6, "a"));
    states.end_reconcile("web");
    assert_eq!(woken.try_recv().unwrap(), "web");
}

#[test]
fn object_with_another_uid_counts_as_drifted() {
    let (states, _woken) = states();
    let mut other = seen(6, "a");
    other.uid = "other".to_owned();
    other.state = state("a", "5");
    states.evaluate_event(&["web".to_owned()], KEY, &Observation::Present(other));
    assert_eq!(states.drifted("web").len(), 1);
    assert!(states.owns("web", KEY, "u") && !states.owns("web", KEY, "other"));
}

#[test]
fn unrecorded_objects_have_no_owner() {
    let (states, _woken) = states();
    let mut users = HashSet::from(["web".to_owned(), "unknown".to_owned()]);
    assert_eq!(states.recording_deployments(&users, KEY), ["web"]);
    assert_eq!(
        states.recording_deployments(&users, "ConfigMap/n/other"),
        [""; 0]
    );
    users.remove("web");
    assert_eq!(states.recording_deployments(&users, KEY), [""; 0]);
    assert!(states.is_recorded(KEY) && !states.is_recorded("ConfigMap/n/other"));
    assert!(states.inventory("web").has(KEY) && states.inventory("unknown").is_empty());
}

#[test]
fn own_writes_wake_no_deployment_and_later_foreign_writes_do() {
    let (states, mut woken) = states();
    let users = ["web".to_owned()];
    states.evaluate_event(&users, "ConfigMap/n/x", &Observation::Present(seen(4, "b")));
    states.evaluate_event(&users, "ConfigMap/n/x", &Observation::Present(seen(5, "a")));
    states.evaluate_event(&users, "ConfigMap/n/other", &Observation::Gone(0));
    assert!(woken.try_recv().is_err());
    states.evaluate_event(&users, "ConfigMap/n/x", &Observation::Present(seen(6, "b")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(states.drifted("web").len(), 1);
    // Values can differ from the content even if the entry is again the same as after the last
    // apply. Therefore the object stays drifted until it is applied.
    states.evaluate_event(&users, "ConfigMap/n/x", &Observation::Present(seen(7, "a")));
    assert_eq!(states.drifted("web").len(), 1);
    states.record_restored("web", "ConfigMap/n/x", applied_state(8, "a"));
    assert_eq!(states.drifted("web").len(), 0);
}

#[test]
fn object_missing_from_a_listing_counts_as_gone() {
    let (states, mut woken) = states();
    let kind = Kind {
        resource: kube::core::discovery::ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(
            &(),
        ),
        namespaced: true,
    };
    let users = ["web".to_owned()];
    states.evaluate_list(&users, &kind, Some("elsewhere"), &HashMap::new());
    assert!(woken.try_recv().is_err());
    states.evaluate_list(&users, &kind, None, &HashMap::new());
    assert_eq!(
        states.drifted("web").into_keys().collect::<Vec<_>>(),
        ["ConfigMap/n/x"]
    );
}

#[test]
fn events_during_an_apply_are_evaluated_at_its_end() {
    let (states, mut woken) = states();
    let users = ["web".to_owned()];
    states.begin_apply("web");
    states.evaluate_event(&users, "ConfigMap/n/x", &Observation::Present(seen(9, "b")));
    assert!(woken.try_recv().is_err());
    assert_eq!(states.content("web"), None);
    let left = applied_state(8, "a");
    let table = [("ConfigMap/n/x".to_owned(), seen(9, "b"))].into();
    let key = content_key("sha256:2");
    states.finish_apply(
        "web",
        &key,
        [("ConfigMap/n/x".to_owned(), left)].into(),
        &table,
    );
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(states.content("web"), Some(key));
}

#[test]
fn status_change_of_a_workload_leads_to_a_health_check_and_is_no_drift() {
    let (states, mut woken) = states();
    let key = "Deployment.apps/n/x";
    states.set_inventory("web", recording(&[key]));
    states.finish_apply(
        "web",
        &content_key("d"),
        [(key.to_owned(), applied_state(1, "a"))].into(),
        &BTreeMap::new(),
    );
    assert_eq!(states.take_touched("web").len(), 1);
    let mut moved = seen(2, "a");
    moved.state = state("a", "1");
    states.evaluate_event(&["web".to_owned()], key, &Observation::Present(moved));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(states.drifted("web").len(), 0);
}

const OTHER: &str = "ConfigMap/n/y";

/// Returns the states of two installed objects that another actor has changed.
fn two_drifted() -> InstalledStates {
    let (states, _) = states();
    states.set_inventory("web", recording(&[KEY, OTHER]));
    let objects = [KEY, OTHER].map(|key| (key.to_owned(), applied_state(5, "a")));
    let installed = content_key("sha256:1");
    states.finish_apply("web", &installed, objects.into(), &BTreeMap::new());
    for key in [KEY, OTHER] {
        states.evaluate_event(
            &["web".to_owned()],
            key,
            &Observation::Present(seen(6, "b")),
        );
    }
    states
}

fn keys(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[test]
fn contested_object_delays_no_other() {
    let states = two_drifted();
    for version in 0..20 {
        states.record_restored("web", KEY, applied_state(10 + 2 * version, "a"));
        states.evaluate_event(
            &["web".to_owned()],
            KEY,
            &Observation::Present(seen(11 + 2 * version, "b")),
        );
    }
    assert_eq!(states.restorable("web"), keys(&[OTHER]));
    assert_eq!(states.contested("web"), [KEY]);
    assert_eq!(states.next_restore("web"), Some(Duration::ZERO));
    states.record_restored("web", OTHER, applied_state(7, "a"));
    let next = states.next_restore("web").unwrap();
    assert!(next > Duration::from_secs(20), "{next:?}");
}

#[test]
fn failed_attempts_count_until_the_object_is_deleted() {
    let states = two_drifted();
    for _ in 0..20 {
        states.record_restore_failure("web", [&KEY.to_owned()], RestoreFailure::Invalid);
    }
    assert_eq!(states.restorable("web"), keys(&[OTHER]));
    assert!(states.missing("web").is_empty());
    states.evaluate_event(&["web".to_owned()], KEY, &Observation::Gone(0));
    assert_eq!(states.restorable("web"), keys(&[KEY, OTHER]));
    assert_eq!(states.missing("web"), [KEY]);
}

#[test]
fn error_of_a_restore_is_kept_while_its_object_is_drifted() {
    let states = two_drifted();
    states.record_restore_failure("web", [&KEY.to_owned()], RestoreFailure::Refused);
    let error = ReconcileError::new(
        codes::install::APPLY_FAILED,
        "ReconcileFailed",
        "no",
        RetryPolicy::Slowly,
    );
    states.keep_restore_error("web", Some(&error));
    states.record_restored("web", OTHER, applied_state(7, "a"));
    states.keep_restore_error("web", None);
    let kept = states.restore_error("web").unwrap();
    assert_eq!(kept.message, "no");
    assert!(matches!(kept.retry, RetryPolicy::At(_)), "{kept:?}");
    states.record_restored("web", KEY, applied_state(7, "a"));
    states.keep_restore_error("web", None);
    assert_eq!(states.restore_error("web"), None);
}

#[test]
fn error_of_a_restore_names_all_objects_that_could_not_be_restored() {
    let states = two_drifted();
    let error = |message: &str| {
        ReconcileError::new(
            codes::install::OBJECT_REJECTED,
            "ReconcileFailed",
            message,
            RetryPolicy::Slowly,
        )
    };
    for key in [KEY, OTHER] {
        states.record_restore_failure("web", [&key.to_owned()], RestoreFailure::Refused);
        states.keep_restore_error("web", Some(&error(&format!("{key}: no"))));
    }
    let kept = |states: &InstalledStates| states.restore_error("web").unwrap().message;
    assert_eq!(
        kept(&states),
        format!("{OTHER}: no; also not restored: {KEY}")
    );
    // The longer name `{KEY}-2` in the message does not count as the name of object `KEY`.
    let longer = format!("{OTHER}: no, nor {KEY}-2");
    states.keep_restore_error("web", Some(&error(&longer)));
    assert_eq!(kept(&states), format!("{longer}; also not restored: {KEY}"));
    // This error names no object.
    states.keep_restore_error("web", Some(&error("no")));
    assert_eq!(kept(&states), "no");
    states.keep_restore_error("web", Some(&error(&format!("{OTHER}: no"))));
    states.record_restored("web", KEY, applied_state(7, "a"));
    states.keep_restore_error("web", None);
    assert_eq!(kept(&states), format!("{OTHER}: no"));
}

#[test]
fn objects_of_an_interrupted_installation_and_of_the_former_content_are_observed() {
    let states = two_drifted();
    for key in [KEY, OTHER] {
        states.record_restored("web", key, applied_state(7, "a"));
    }
    states.begin_apply("web");
    let applied = HashMap::from([(KEY.to_owned(), applied_state(9, "new"))]);
    let nothing = (BTreeSet::new(), BTreeMap::new());
    let (second, third) = (content_key("sha256:2"), content_key("sha256:3"));
    states.record_interrupted("web", &second, applied, &nothing.0, &nothing.1);
    assert_eq!(states.coverage("web", true), Coverage::AppliedOnly);
    assert_eq!(states.content("web"), None);
    let partial = states.partially_applied("web", &second);
    assert_eq!(partial, Some(keys(&[KEY])));
    assert!(!states.lacks_former_objects("web"));
    // Another actor writes an object of the new content and an object of the previous content.
    for key in [KEY, OTHER] {
        states.evaluate_event(
            &["web".to_owned()],
            key,
            &Observation::Present(seen(12, "evil")),
        );
    }
    assert_eq!(states.restorable("web"), keys(&[KEY, OTHER]));
    // Now a third content is requested. The first object has the values of the second content, so
    // its state is removed.
    states.begin_apply("web");
    states.record_interrupted("web", &third, HashMap::new(), &nothing.0, &nothing.1);
    assert_eq!(states.partially_applied("web", &third), Some(keys(&[])));
    assert!(states.lacks_former_objects("web"));
    assert!(!states.has_state("web", KEY) && states.has_state("web", OTHER));
    assert_eq!(states.restorable("web"), keys(&[OTHER]));
}

#[test]
fn resumed_installation_knows_only_some_former_objects_until_it_applies_objects() {
    let states = two_drifted();
    let (second, third) = (content_key("sha256:2"), content_key("sha256:3"));
    let nothing = (BTreeSet::new(), BTreeMap::new());
    states.resume_installation("new", &second);
    assert!(states.is_resumed("new") && states.lacks_former_objects("new"));
    assert_eq!(states.partially_applied("new", &second), Some(keys(&[])));
    let content = states.applied_content("new", &second);
    assert_eq!(content, AppliedContent::Unknown);
    states.add_former_objects("new", HashMap::new(), &nothing.1, &nothing.0);
    assert!(!states.lacks_former_objects("new"));
    states.begin_apply("new");
    states.record_interrupted("new", &second, HashMap::new(), &nothing.0, &nothing.1);
    assert!(!states.is_resumed("new") && states.lacks_former_objects("new"));
    // An installation of this process is not resumed.
    states.resume_installation("new", &third);
    assert!(!states.is_resumed("new"));
}

#[test]
fn invalid_installation_is_delayed_until_one_of_its_objects_changes() {
    let states = two_drifted();
    let invalid = ReconcileError {
        objects: vec![KEY.to_owned()],
        ..ReconcileError::new(
            codes::install::INVALID_OBJECT,
            "InstallFailed",
            "no",
            RetryPolicy::Rarely,
        )
    };
    let attempt = |generation| InstallationAttempt {
        content: ContentKey::default(),
        generation,
        admitted: None,
    };
    let delayed_error = |generation| states.delayed_error("web", &attempt(generation));
    states.delay_installation("web", attempt(1), invalid);
    let held = delayed_error(1).unwrap();
    assert!(matches!(held.retry, RetryPolicy::At(_)), "{held:?}");
    assert_eq!(delayed_error(2), None);
    states.evaluate_event(&["web".to_owned()], OTHER, &Observation::Gone(0));
    assert!(delayed_error(1).is_some());
    states.evaluate_event(&["web".to_owned()], KEY, &Observation::Gone(0));
    assert_eq!(delayed_error(1), None);
}

/// Returns many object keys of one kind and one namespace.
fn many_keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("ConfigMap/n/{number:05}"))
        .collect()
}

/// Returns states in which BundleDeployment `web` has installed the objects `keys`.
fn states_with(keys: &[String]) -> InstalledStates {
    let (states, _woken) = states();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    states.set_inventory("web", recording(&names));
    states.begin_apply("web");
    let left = applied_state(5, "a");
    let objects = keys.iter().map(|key| (key.clone(), left)).collect();
    let key = content_key("sha256:1");
    states.finish_apply("web", &key, objects, &BTreeMap::new());
    states
}

#[test]
fn many_deleted_objects_are_not_searched_in_the_list_of_invalid_objects_one_by_one() {
    let keys = many_keys(50_000);
    let states = states_with(&keys);
    let invalid = ReconcileError {
        objects: keys.iter().rev().cloned().collect(),
        ..ReconcileError::new(
            codes::install::INVALID_OBJECT,
            "InstallFailed",
            "no",
            RetryPolicy::Rarely,
        )
    };
    let attempt = InstallationAttempt {
        content: ContentKey::default(),
        generation: 1,
        admitted: None,
    };
    states.delay_installation("web", attempt.clone(), invalid);
    assert!(states.delayed_error("web", &attempt).is_some());
    let kind = Kind {
        resource: kube::core::discovery::ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(
            &(),
        ),
        namespaced: true,
    };
    states.evaluate_list(&["web".to_owned()], &kind, None, &HashMap::new());
    assert_eq!(states.missing("web").len(), keys.len());
    assert_eq!(states.delayed_error("web", &attempt), None);
}

#[test]
fn restore_of_one_object_does_not_visit_the_histories_of_all_objects() {
    let keys = many_keys(50_000);
    let states = states_with(&keys);
    for key in &keys {
        states.record_restored("web", key, applied_state(6, "a"));
    }
    let histories = states.with("web", |state| state.restores.len());
    assert_eq!(histories, keys.len());
    // Old histories are removed after the interval.
    states.with("web", |state| {
        state.remove_quiet_restores(Duration::from_secs(24 * 60 * 60));
    });
    let histories = states.with("web", |state| state.restores.len());
    assert_eq!(histories, 0);
}

#[test]
fn recorded_entries_of_a_watch_are_found_without_a_list_of_all_objects() {
    let keys = many_keys(50_000);
    let states = states_with(&keys);
    for _ in 0..5_000 {
        let entries = [(keys[0].clone(), 1), ("ConfigMap/n/other".to_owned(), 2)];
        let mut entries = HashMap::from(entries);
        states.retain_recorded(&mut entries);
        assert_eq!(entries, HashMap::from([(keys[0].clone(), 1)]));
    }
}

#[test]
fn long_message_of_a_failed_restore_is_searched_only_at_its_start() {
    let keys = many_keys(2_000);
    let states = states_with(&keys);
    states.mark_drifted("web", keys.iter().cloned().collect());
    states.record_restore_failure("web", &keys, RestoreFailure::Refused);
    let rest = "missing permissions ".repeat(1 << 18);
    let message = format!("{}: no; {rest}", keys[7]);
    let error = ReconcileError::new(
        codes::install::OBJECT_REJECTED,
        "ReconcileFailed",
        message.as_str(),
        RetryPolicy::Slowly,
    );
    states.keep_restore_error("web", Some(&error));
    let kept = states.restore_error("web").unwrap().message;
    let added = kept.strip_prefix(&message).unwrap();
    assert!(added.starts_with("; also not restored: ConfigMap/n/00000; "));
    assert!(added.ends_with("; and 1979 more"), "{added}");
}

#[test]
fn object_that_is_deleted_during_its_restore_stays_drifted() {
    let users = ["web".to_owned()];
    for (told, is_lost) in [
        (Observation::Gone(8), true),
        (Observation::Gone(0), true),
        (Observation::Present(seen(8, "c")), true),
        // The event is older than the restore, so the object is not drifted.
        (Observation::Gone(7), false),
        (Observation::Present(seen(7, "b")), false),
    ] {
        let (states, mut woken) = states();
        states.evaluate_event(&users, KEY, &Observation::Present(seen(6, "b")));
        states.begin_reconcile("web");
        // The event arrives before the controller has recorded its own write.
        states.evaluate_event(&users, KEY, &told);
        while woken.try_recv().is_ok() {}
        states.record_restored("web", KEY, applied_state(7, "a"));
        assert_eq!(
            states.drifted("web").len(),
            usize::from(is_lost),
            "{told:?}"
        );
        assert_eq!(woken.try_recv().is_ok(), is_lost, "{told:?}");
    }
}

#[test]
fn object_that_is_deleted_during_verification_or_installation_is_drifted() {
    let users = ["web".to_owned()];
    let (states, _woken) = states();
    states.begin_reconcile("web");
    states.evaluate_event(&users, KEY, &Observation::Gone(8));
    states.record_verified("web", KEY, applied_state(7, "a"), Instant::now());
    assert_eq!(states.missing("web"), [KEY]);
    states.end_reconcile("web");
    states.record_restored("web", KEY, applied_state(9, "a"));
    assert_eq!(states.missing("web"), [""; 0]);

    states.begin_reconcile("web");
    states.begin_apply("web");
    states.evaluate_event(&users, KEY, &Observation::Gone(12));
    let objects: HashMap<String, AppliedState> = [(KEY.to_owned(), applied_state(11, "a"))].into();
    let key = content_key("sha256:2");
    states.finish_apply("web", &key, objects.clone(), &BTreeMap::new());
    assert_eq!(states.missing("web"), [KEY]);

    states.begin_reconcile("web");
    states.begin_apply("web");
    states.evaluate_event(&users, KEY, &Observation::Gone(14));
    states.record_interrupted(
        "web",
        &content_key("sha256:3"),
        [(KEY.to_owned(), applied_state(13, "a"))].into(),
        &BTreeSet::new(),
        &[(KEY.to_owned(), seen(13, "a"))].into(),
    );
    assert_eq!(states.missing("web"), [KEY]);
}
