//! What of a deployment counts as drifted, suspect or touched, by what watches tell.

use bundle_core::diagnostic::codes;
use bundle_core::plan::backoff::RestoreFailure;
use bundle_core::plan::summary::Coverage;
use serde_json::json;

use super::*;
use crate::reconcile::error::Retry;

const KEY: &str = "ConfigMap/n/x";

/// The state of an object that our entry `text` is in, after the write `revision`.
fn state(text: &str, revision: &str) -> ObjectState {
    let fields = json!({ text: {} });
    let entry = drift::Entry {
        manager: "m",
        operation: "Apply",
        subresource: "",
        api_version: "v1",
        time: Some(1),
        fields: &fields,
    };
    ObjectState {
        fingerprint: drift::Fingerprint::of("m", [entry], &BTreeMap::new(), &[]),
        revision: drift::Revision::of(drift::RevisionParts {
            group: "",
            kind: "ConfigMap",
            generation: None,
            resource_version: revision,
            rest: "",
        }),
    }
}

fn left(version: u64, text: &str) -> Left {
    Left {
        state: Some(state(text, &version.to_string())),
        version,
    }
}

fn seen(version: u64, text: &str) -> Seen {
    Seen {
        uid: "u".to_owned(),
        version,
        state: state(text, &version.to_string()),
        created: None,
        mark: None,
        writer: None,
    }
}

fn recording(keys: &[&str]) -> Arc<Inventory> {
    let mut inventory = Inventory::new("web");
    for key in keys {
        inventory.record(*key, "u");
    }
    Arc::new(inventory)
}

fn books() -> (Books, mpsc::UnboundedReceiver<String>) {
    let (wake, woken) = mpsc::unbounded_channel();
    let books = Books::new(wake);
    books.set_inventory("web", recording(&[KEY]));
    books.begin("web");
    let objects = [(KEY.to_owned(), left(5, "a"))].into();
    books.settle("web", "sha256:1", objects, &BTreeMap::new());
    (books, woken)
}

#[test]
fn a_write_that_leaves_our_entry_alone_is_verified_once_and_then_ever_more_rarely() {
    let (books, mut woken) = books();
    let users = ["web".to_owned()];
    let now = Instant::now() + Duration::from_secs(1);
    books.changed(&users, KEY, &Told::Seen(seen(6, "a")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert!(books.drifted("web").is_empty());
    assert_eq!(books.suspects("web", now).0, [KEY.to_owned()].into());
    books.verified("web", KEY, left(6, "a"), now);
    assert_eq!(books.suspects("web", now), (BTreeSet::new(), None));
    // The same state once more is no news; another write is verified after a pause.
    books.changed(&users, KEY, &Told::Seen(seen(6, "a")));
    assert_eq!(books.suspects("web", now), (BTreeSet::new(), None));
    books.changed(&users, KEY, &Told::Seen(seen(7, "a")));
    let (due, next) = books.suspects("web", now);
    assert!(due.is_empty() && next.is_some(), "{due:?} {next:?}");
    let later = now + Duration::from_secs(1);
    assert_eq!(books.suspects("web", later).0, [KEY.to_owned()].into());
}

#[test]
fn an_object_with_another_uid_is_not_ours_whatever_it_looks_like() {
    let (books, _woken) = books();
    let mut other = seen(6, "a");
    other.uid = "other".to_owned();
    other.state = state("a", "5");
    books.changed(&["web".to_owned()], KEY, &Told::Seen(other));
    assert_eq!(books.drifted("web").len(), 1);
    assert!(books.owns("web", KEY, "u") && !books.owns("web", KEY, "other"));
}

#[test]
fn objects_that_no_inventory_has_are_nobodys() {
    let (books, _woken) = books();
    let users = ["web".to_owned(), "unknown".to_owned()];
    assert_eq!(books.recorders(&users, KEY), ["web"]);
    assert_eq!(books.recorders(&users, "ConfigMap/n/other"), [""; 0]);
    assert_eq!(books.recorders(&users[1..], KEY), [""; 0]);
    assert!(books.is_recorded(KEY) && !books.is_recorded("ConfigMap/n/other"));
}

#[test]
fn our_own_writes_wake_nobody_and_later_ones_of_others_do() {
    let (books, mut woken) = books();
    let users = ["web".to_owned()];
    books.changed(&users, "ConfigMap/n/x", &Told::Seen(seen(4, "b")));
    books.changed(&users, "ConfigMap/n/x", &Told::Seen(seen(5, "a")));
    books.changed(&users, "ConfigMap/n/other", &Told::Gone(0));
    assert!(woken.try_recv().is_err());
    books.changed(&users, "ConfigMap/n/x", &Told::Seen(seen(6, "b")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(books.drifted("web").len(), 1);
    // A value may be another one under the same entry: drift stays drift until we have applied.
    books.changed(&users, "ConfigMap/n/x", &Told::Seen(seen(7, "a")));
    assert_eq!(books.drifted("web").len(), 1);
    books.healed("web", "ConfigMap/n/x", left(8, "a"));
    assert_eq!(books.drifted("web").len(), 0);
}

#[test]
fn object_missing_from_a_listing_counts_as_gone() {
    let (books, mut woken) = books();
    let kind = Kind {
        resource: kube::core::discovery::ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
        },
        namespaced: true,
    };
    let users = ["web".to_owned()];
    books.listed(&users, &kind, Some("elsewhere"), &HashMap::new());
    assert!(woken.try_recv().is_err());
    books.listed(&users, &kind, None, &HashMap::new());
    assert_eq!(
        books.drifted("web").into_keys().collect::<Vec<_>>(),
        ["ConfigMap/n/x"]
    );
}

#[test]
fn while_we_write_nothing_counts_and_what_came_in_meanwhile_is_not_lost() {
    let (books, mut woken) = books();
    let users = ["web".to_owned()];
    books.begin("web");
    books.changed(&users, "ConfigMap/n/x", &Told::Seen(seen(9, "b")));
    assert!(woken.try_recv().is_err());
    assert_eq!(books.content("web"), None);
    let left = left(8, "a");
    let table = [("ConfigMap/n/x".to_owned(), seen(9, "b"))].into();
    books.settle(
        "web",
        "sha256:2",
        [("ConfigMap/n/x".to_owned(), left)].into(),
        &table,
    );
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(books.content("web").as_deref(), Some("sha256:2"));
}

#[test]
fn a_workload_that_moves_is_looked_at_and_is_no_drift() {
    let (books, mut woken) = books();
    let key = "Deployment.apps/n/x";
    books.set_inventory("web", recording(&[key]));
    books.settle(
        "web",
        "d",
        [(key.to_owned(), left(1, "a"))].into(),
        &BTreeMap::new(),
    );
    assert_eq!(books.take_touched("web").len(), 1);
    let mut moved = seen(2, "a");
    moved.state = state("a", "1");
    books.changed(&["web".to_owned()], key, &Told::Seen(moved));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(books.drifted("web").len(), 0);
}

const OTHER: &str = "ConfigMap/n/y";

/// Two installed objects, and somebody who has changed both.
fn two_drifted() -> Books {
    let (books, _) = books();
    books.set_inventory("web", recording(&[KEY, OTHER]));
    let objects = [KEY, OTHER].map(|key| (key.to_owned(), left(5, "a")));
    books.settle("web", "sha256:1", objects.into(), &BTreeMap::new());
    for key in [KEY, OTHER] {
        books.changed(&["web".to_owned()], key, &Told::Seen(seen(6, "b")));
    }
    books
}

fn keys(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[test]
fn object_that_is_fought_over_delays_no_other() {
    let books = two_drifted();
    for version in 0..20 {
        books.healed("web", KEY, left(10 + 2 * version, "a"));
        books.changed(
            &["web".to_owned()],
            KEY,
            &Told::Seen(seen(11 + 2 * version, "b")),
        );
    }
    assert_eq!(books.restorable("web"), keys(&[OTHER]));
    assert_eq!(books.fought("web"), [KEY]);
    assert_eq!(books.next_restore("web"), Some(Duration::ZERO));
    books.healed("web", OTHER, left(7, "a"));
    let next = books.next_restore("web").unwrap();
    assert!(next > Duration::from_secs(20), "{next:?}");
}

#[test]
fn attempts_that_failed_count_until_the_object_is_deleted() {
    let books = two_drifted();
    for _ in 0..20 {
        books.not_restored("web", [&KEY.to_owned()], RestoreFailure::Invalid);
    }
    assert_eq!(books.restorable("web"), keys(&[OTHER]));
    assert!(books.missing("web").is_empty());
    books.changed(&["web".to_owned()], KEY, &Told::Gone(0));
    assert_eq!(books.restorable("web"), keys(&[KEY, OTHER]));
    assert_eq!(books.missing("web"), [KEY]);
}

#[test]
fn error_of_a_restore_is_kept_while_its_object_is_out_of_line() {
    let books = two_drifted();
    books.not_restored("web", [&KEY.to_owned()], RestoreFailure::Refused);
    let error = Trouble::new(
        codes::install::APPLY_FAILED,
        "ReconcileFailed",
        "no",
        Retry::Slowly,
    );
    books.keep_restore_error("web", Some(&error));
    books.healed("web", OTHER, left(7, "a"));
    books.keep_restore_error("web", None);
    let kept = books.restore_error("web").unwrap();
    assert_eq!(kept.message, "no");
    assert!(matches!(kept.retry, Retry::At(_)), "{kept:?}");
    books.healed("web", KEY, left(7, "a"));
    books.keep_restore_error("web", None);
    assert_eq!(books.restore_error("web"), None);
}

#[test]
fn interrupted_installation_is_looked_at_beside_the_former_content() {
    let books = two_drifted();
    for key in [KEY, OTHER] {
        books.healed("web", key, left(7, "a"));
    }
    books.begin("web");
    let applied = HashMap::from([(KEY.to_owned(), left(9, "new"))]);
    let nothing = (BTreeSet::new(), BTreeMap::new());
    books.interrupt("web", "sha256:2", applied, &nothing.0, &nothing.1);
    assert_eq!(books.coverage("web", true), Coverage::Partly);
    assert_eq!(books.content("web"), None);
    assert_eq!(books.applied_partly("web", "sha256:2"), Some(keys(&[KEY])));
    assert!(!books.lacks_former("web"));
    // Later writes of others, of both contents.
    for key in [KEY, OTHER] {
        books.changed(&["web".to_owned()], key, &Told::Seen(seen(12, "evil")));
    }
    assert_eq!(books.restorable("web"), keys(&[KEY, OTHER]));
    // Another content is wanted by now: what the values of the first object are to be is not known.
    books.begin("web");
    books.interrupt("web", "sha256:3", HashMap::new(), &nothing.0, &nothing.1);
    assert_eq!(books.applied_partly("web", "sha256:3"), Some(keys(&[])));
    assert!(books.lacks_former("web"));
    assert!(!books.knows("web", KEY) && books.knows("web", OTHER));
    assert_eq!(books.restorable("web"), keys(&[OTHER]));
}

#[test]
fn installation_that_is_invalid_is_held_until_one_of_its_objects_changes() {
    let books = two_drifted();
    let invalid = Trouble {
        objects: vec![KEY.to_owned()],
        ..Trouble::new(
            codes::install::INVALID_OBJECT,
            "InstallFailed",
            "no",
            Retry::Rarely,
        )
    };
    books.hold("web", "key", invalid);
    let held = books.held("web", "key").unwrap();
    assert!(matches!(held.retry, Retry::At(_)), "{held:?}");
    assert_eq!(books.held("web", "other"), None);
    books.changed(&["web".to_owned()], OTHER, &Told::Gone(0));
    assert!(books.held("web", "key").is_some());
    books.changed(&["web".to_owned()], KEY, &Told::Gone(0));
    assert_eq!(books.held("web", "key"), None);
}

#[test]
fn object_that_is_deleted_while_it_is_restored_stays_out_of_line() {
    let users = ["web".to_owned()];
    for (told, is_lost) in [
        (Told::Gone(8), true),
        (Told::Gone(0), true),
        (Told::Seen(seen(8, "c")), true),
        // From before the restore.
        (Told::Gone(7), false),
        (Told::Seen(seen(7, "b")), false),
    ] {
        let (books, mut woken) = books();
        books.changed(&users, KEY, &Told::Seen(seen(6, "b")));
        books.begin_reconcile("web");
        // The watch may be faster than the answer to our own write, and slower than the write of somebody else.
        books.changed(&users, KEY, &told);
        while woken.try_recv().is_ok() {}
        books.healed("web", KEY, left(7, "a"));
        assert_eq!(books.drifted("web").len(), usize::from(is_lost), "{told:?}");
        assert_eq!(woken.try_recv().is_ok(), is_lost, "{told:?}");
    }
}

#[test]
fn object_that_is_deleted_while_it_is_verified_or_installed_is_out_of_line() {
    let users = ["web".to_owned()];
    let (books, _woken) = books();
    books.begin_reconcile("web");
    books.changed(&users, KEY, &Told::Gone(8));
    books.verified("web", KEY, left(7, "a"), Instant::now());
    assert_eq!(books.missing("web"), [KEY]);
    books.end_reconcile("web");
    books.healed("web", KEY, left(9, "a"));
    assert_eq!(books.missing("web"), [""; 0]);

    books.begin_reconcile("web");
    books.begin("web");
    books.changed(&users, KEY, &Told::Gone(12));
    let objects: HashMap<String, Left> = [(KEY.to_owned(), left(11, "a"))].into();
    books.settle("web", "sha256:2", objects.clone(), &BTreeMap::new());
    assert_eq!(books.missing("web"), [KEY]);

    books.begin_reconcile("web");
    books.begin("web");
    books.changed(&users, KEY, &Told::Gone(14));
    books.interrupt(
        "web",
        "sha256:3",
        [(KEY.to_owned(), left(13, "a"))].into(),
        &BTreeSet::new(),
        &[(KEY.to_owned(), seen(13, "a"))].into(),
    );
    assert_eq!(books.missing("web"), [KEY]);
}
