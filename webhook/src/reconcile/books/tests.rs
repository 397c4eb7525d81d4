//! What of a deployment counts as drifted, suspect or touched, by what watches tell.

use serde_json::json;

use super::*;

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
    books.changed(&users, KEY, Some(&seen(6, "a")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert!(books.drifted("web").is_empty());
    assert_eq!(books.suspects("web", now).0, [KEY.to_owned()].into());
    books.verified("web", KEY, left(6, "a"), now);
    assert_eq!(books.suspects("web", now), (BTreeSet::new(), None));
    // The same state once more is no news; another write is verified after a pause.
    books.changed(&users, KEY, Some(&seen(6, "a")));
    assert_eq!(books.suspects("web", now), (BTreeSet::new(), None));
    books.changed(&users, KEY, Some(&seen(7, "a")));
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
    books.changed(&["web".to_owned()], KEY, Some(&other));
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
    books.changed(&users, "ConfigMap/n/x", Some(&seen(4, "b")));
    books.changed(&users, "ConfigMap/n/x", Some(&seen(5, "a")));
    books.changed(&users, "ConfigMap/n/other", None);
    assert!(woken.try_recv().is_err());
    books.changed(&users, "ConfigMap/n/x", Some(&seen(6, "b")));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(books.drifted("web").len(), 1);
    // A value may be another one under the same entry: drift stays drift until we have applied.
    books.changed(&users, "ConfigMap/n/x", Some(&seen(7, "a")));
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
    books.changed(&users, "ConfigMap/n/x", Some(&seen(9, "b")));
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
    books.changed(&["web".to_owned()], key, Some(&moved));
    assert_eq!(woken.try_recv().unwrap(), "web");
    assert_eq!(books.drifted("web").len(), 0);
}
