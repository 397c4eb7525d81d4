use serde_json::Value;

use super::*;
use crate::review::approval_terms;
use crate::service_account::ServiceAccount;

fn content(digest: &str) -> ContentKeyPrefix {
    let account = ServiceAccount::parse("team-a", "deployer").unwrap();
    ContentKeyPrefix::new(digest, &account, None)
}

fn decider(uid: &str, more: &Value, spec: &Value) -> Decider {
    let mut class = json!({"provisioner": "core.rukpak.io/plain"});
    for (key, value) in more.as_object().into_iter().flatten() {
        class[key] = value.clone();
    }
    let mut class = Class::parse("one", &class).unwrap();
    class.uid = uid.to_owned();
    Decider::new(&class, &approval_terms(spec))
}

fn plain(uid: &str) -> Decider {
    decider(uid, &json!({}), &json!({}))
}

fn object(name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("a".to_owned()),
        name: name.to_owned(),
    }
}

#[test]
fn decision_counts_only_for_the_same_class_and_terms() {
    let approval = json!({"approval": {"mode": "Required"}});
    let one = plain("u");
    for more in [
        json!({"authorization": "Class"}),
        approval.clone(),
        json!({"approval": {"mode": "Required", "by": "AnotherPerson"}}),
        json!({"signatures": "Required"}),
        json!({"sources": {"types": ["image"]}}),
        json!({"sources": {"hosts": ["a"]}}),
        json!({"sources": {"privateAddresses": "Allow"}}),
        json!({"sources": {"insecureHosts": ["a"]}}),
        json!({"targets": {"namespaces": ["a"]}}),
        json!({"targets": {"clusterScoped": "Deny"}}),
        json!({"serviceAccount": {"namespace": "a", "name": "b"}}),
    ] {
        assert_ne!(decider("u", &more, &json!({})), one, "{more}");
    }
    assert_ne!(plain("v"), one);
    // Explicit default values do not change the terms. `requesterCheck` is not part of the terms,
    // because it applies to each later change.
    for more in [
        json!({"authorization": "Requester", "targets": {}}),
        json!({"sources": {"insecureHosts": []}}),
        json!({"requesterCheck": "AccessReview"}),
    ] {
        assert_eq!(decider("u", &more, &json!({})), one, "{more}");
    }
    // If the class requires approval, settings of the BundleDeployment are part of the terms.
    let adopt = json!({"collision": "Adopt"});
    assert_eq!(decider("u", &json!({}), &adopt), one);
    let approved = decider("u", &approval, &json!({}));
    assert_ne!(decider("u", &approval, &adopt), approved);
}

/// Columns: decider of the installed content, deciders of installations that started later, and
/// `true` if the second class authorized the objects.
type Row<'a> = (Option<Option<&'a Decider>>, &'a [&'a Decider], bool);

#[test]
fn class_authorized_objects_only_if_it_authorized_all_their_content() {
    let (one, two) = (plain("1"), plain("2"));
    let table: [Row<'_>; 11] = [
        (None, &[], false),
        (None, &[&two], true),
        (None, &[&one, &two], false),
        (None, &[&two, &one, &two], false),
        (Some(None), &[], false),
        (Some(None), &[&two], false),
        (Some(None), &[&two, &two], false),
        (Some(Some(&one)), &[&two], false),
        (Some(Some(&two)), &[], true),
        (Some(Some(&two)), &[&two, &two], true),
        (Some(Some(&two)), &[&one, &two, &two], false),
    ];
    for (installed, began, expected) in table {
        let mut decisions = Decisions::default();
        if let Some(Some(by)) = installed {
            let installed = content("installed");
            decisions.conclude(&installed, by, std::iter::empty(), &BTreeSet::new());
        }
        let former = installed.map(|_| content("installed"));
        for (index, by) in began.iter().enumerate() {
            let new = content(&format!("new{index}"));
            decisions.begin(&new, by, former.as_ref(), installed.is_some());
            assert!(decisions.is_decided(&new, by));
        }
        let found = decisions.objects(&two).has(&object("x"));
        assert_eq!(found, expected, "{installed:?} {began:?}");
        let of_installed = decisions.is_decided(&content("installed"), &two);
        assert_eq!(of_installed, installed == Some(Some(&two)));
    }
}

#[test]
fn objects_from_content_of_another_class_stay_undecided() {
    let (one, two) = (plain("1"), plain("2"));
    let keys = ["ConfigMap/a/new", "ConfigMap/a/old"];
    let wanted = BTreeSet::from(["ConfigMap/a/new"]);
    let mut decisions = Decisions::default();
    decisions.conclude(
        &content("old"),
        &one,
        keys[1..].iter().copied(),
        &BTreeSet::from([keys[1]]),
    );
    for digest in ["new", "newer"] {
        let new = content(digest);
        decisions.begin(&new, &two, Some(&content("old")), true);
        decisions.conclude(&new, &two, keys.iter().copied(), &wanted);
        let objects = decisions.objects(&two);
        assert!(objects.has(&object("new")), "{digest}");
        assert!(!objects.has(&object("old")), "{digest}");
        assert_eq!(decisions.objects(&one), DecidedObjects::None);
    }
    // If the content of the class contains an object, the class has authorized this object.
    let both = content("both");
    decisions.conclude(&both, &two, keys.iter().copied(), &BTreeSet::from(keys));
    assert_eq!(decisions.objects(&two), DecidedObjects::ALL);
}

#[test]
fn decisions_round_trip() {
    let mut decisions = Decisions::default();
    decisions.begin(&content("a"), &plain("1"), None, true);
    let text = serde_json::to_string(&decisions).unwrap();
    assert_eq!(serde_json::from_str::<Decisions>(&text).unwrap(), decisions);
}
