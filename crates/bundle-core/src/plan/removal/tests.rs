//! Cases of a removal, and properties of the order of its steps.

use proptest::prelude::*;

use super::*;
use crate::plan::retry::RetryPolicy;

const DELETED: i64 = 1_800_000_000_000;
const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");
const WEBHOOK: (&str, &str) = (
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
);

fn id((group, kind): (&str, &str), namespace: Option<&str>, name: &str) -> ObjectId {
    ObjectId {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

/// Returns objects of each phase, in no particular order.
fn content() -> Vec<ObjectId> {
    vec![
        id(("", "Namespace"), None, "team-a"),
        id(("", "Namespace"), None, "team-b"),
        id(("", "ServiceAccount"), Some("team-a"), "web"),
        id(("", "ConfigMap"), Some("team-a"), "web"),
        id(CRD, None, "queues.shop.example.com"),
        id(("shop.example.com", "Queue"), Some("team-b"), "one"),
        id(("shop.example.com", "Queue"), Some("team-b"), "two"),
        id(("apps", "Deployment"), Some("team-a"), "web"),
        id(WEBHOOK, None, "web"),
    ]
}

fn held() -> Obstacle {
    Obstacle::Finalizers(vec!["example.com/hold".to_owned()])
}

fn refused() -> Obstacle {
    Obstacle::NotAllowed("ana may not delete it".to_owned())
}

/// Deletes objects step by step while the objects of `stay` remain, and returns the remaining
/// objects as text.
fn rest(stay: &[&ObjectId], obstacle: &Obstacle) -> Vec<String> {
    let obstacles = stay
        .iter()
        .map(|id| ((*id).clone(), obstacle.clone()))
        .collect();
    let mut left = content();
    loop {
        let step: Vec<ObjectId> = next_step(&left, &obstacles).into_iter().cloned().collect();
        if step.is_empty() {
            return left.iter().map(ToString::to_string).collect();
        }
        left.retain(|id| !step.contains(id));
    }
}

#[test]
fn remaining_object_keeps_only_its_dependencies() {
    let all = content();
    for obstacle in [held(), refused()] {
        let rest = |index: usize| rest(&[&all[index]], &obstacle);
        assert_eq!(rest(3), ["Namespace/team-a", "ConfigMap/team-a/web"]);
        assert_eq!(rest(7), ["Namespace/team-a", "Deployment.apps/team-a/web"]);
        assert_eq!(rest(1), ["Namespace/team-b"]);
        assert_eq!(
            rest(4),
            ["CustomResourceDefinition.apiextensions.k8s.io/queues.shop.example.com"]
        );
        // The controller must handle the finalizers of its custom resource, so the controller
        // remains. Other custom resources are deleted.
        let with_queue = rest(5);
        assert_eq!(with_queue.len(), all.len() - 1);
        assert!(!with_queue.contains(&"Queue.shop.example.com/team-b/two".to_owned()));
        // If the controller were deleted before the webhook registration, the registration would
        // block requests.
        let with_webhook = rest(8);
        assert_eq!(with_webhook.len(), all.len() - 2);
        assert!(!with_webhook.iter().any(|key| key.starts_with("Queue")));
    }
    assert!(self::rest(&[], &held()).is_empty());
}

#[test]
fn only_dependencies_wait_for_an_object_that_is_being_deleted() {
    let all = content();
    let waits = |left: &[usize], going: &[usize], refused: &[usize]| {
        let ids = |picks: &[usize]| -> Vec<&ObjectId> { picks.iter().map(|&n| &all[n]).collect() };
        let (going, refused) = (ids(going), ids(refused));
        let obstacles = (going.iter().map(|id| ((*id).clone(), held())))
            .chain(refused.iter().map(|id| ((*id).clone(), self::refused())))
            .collect();
        waits_for(ids(left), |id| going.contains(&id), &obstacles)
    };
    // A finalizer delays the deletion of a custom resource. Its definition and its controller wait
    // for this deletion.
    assert!(waits(&[4, 5, 7], &[5], &[]));
    assert!(!waits(&[5], &[5], &[]));
    // No object waits for a custom resource that cannot be deleted.
    assert!(!waits(&[4, 5, 7], &[], &[5]));
    assert!(!waits(&[4, 5, 6, 7], &[6], &[5]));
    // A namespace waits for objects that are being deleted in it, and not for objects that remain.
    assert!(waits(&[0, 3], &[3], &[]));
    assert!(!waits(&[0, 2, 3], &[3], &[2]));
}

#[test]
fn order_without_obstacles_is_the_reverse_of_the_phases() {
    let all = content();
    let first: Vec<String> = next_step(&all, &BTreeMap::new())
        .into_iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        first,
        [
            "Queue.shop.example.com/team-b/one",
            "Queue.shop.example.com/team-b/two"
        ]
    );
}

#[test]
fn deletion_is_accepted_if_reviewed_recorded_or_admitted_later() {
    let unknown = ObservedDeletion {
        deleted: DELETED,
        is_recorded: false,
        enforced_since: None,
        admitted: None,
    };
    let enforced = |since| ObservedDeletion {
        enforced_since: Some(since),
        ..unknown
    };
    let admitted = |time| ObservedDeletion {
        admitted: Some(time),
        ..unknown
    };
    for (deletion, expected) in [
        (unknown, false),
        (enforced(DELETED), true),
        (enforced(DELETED - 1), true),
        (enforced(DELETED + 1), false),
        (admitted(DELETED - 1), false),
        (admitted(DELETED + ADMITTED_AFTER - 1), false),
        (admitted(DELETED + ADMITTED_AFTER), true),
        (
            ObservedDeletion {
                is_recorded: true,
                ..unknown
            },
            true,
        ),
    ] {
        assert_eq!(deletion.is_accepted(), expected, "{deletion:?}");
    }
}

#[test]
fn unreviewed_deletion_names_the_command_once_it_can_be_admitted() {
    let deletion = ObservedDeletion {
        deleted: DELETED,
        is_recorded: false,
        enforced_since: None,
        admitted: None,
    };
    let early = deletion.check(DELETED + 1, "`admit`").unwrap_err();
    assert_eq!((early.reason, early.retry), (REMOVING, RetryPolicy::Soon));
    assert!(!early.message.contains("`admit`"), "{}", early.message);
    let late = deletion.check(DELETED + ADMITTED_AFTER, "`admit`");
    let late = late.unwrap_err();
    assert_eq!((late.reason, late.retry), (REFUSED, RetryPolicy::Slowly));
    assert!(late.message.contains("run `admit`:"), "{}", late.message);
    let accepted = ObservedDeletion {
        is_recorded: true,
        ..deletion
    };
    assert_eq!(accepted.check(DELETED, "`admit`"), Ok(()));
}

#[test]
fn message_has_objects_finalizers_and_next_steps() {
    let all = content();
    let mut obstacles = BTreeMap::from([(all[3].clone(), held())]);
    let admit = "`kubectl annotate …`";
    assert_eq!(
        message(1, &obstacles, admit),
        "1 object is left; waiting for finalizers of other controllers: ConfigMap/team-a/web (example.com/hold)"
    );
    // The API server removes its own finalizer together with the custom resources.
    let widgets = id(CRD, None, "widgets.example.com");
    let cleanup = Obstacle::Finalizers(vec![CLEANUP.to_owned()]);
    let emptied = BTreeMap::from([(widgets, cleanup)]);
    assert_eq!(
        message(1, &emptied, admit),
        "1 object is left; waiting until the API server has deleted all custom resources: CustomResourceDefinition.apiextensions.k8s.io/widgets.example.com"
    );
    let mixed = Obstacle::Finalizers(vec![CLEANUP.to_owned(), "example.com/hold".to_owned()]);
    assert!(!mixed.is_cleanup() && !Obstacle::Finalizers(Vec::new()).is_cleanup());
    obstacles.insert(all[7].clone(), refused());
    let text = message(3, &obstacles, admit);
    for part in [
        "3 objects are left",
        "Deployment.apps/team-a/web: ana may not delete it",
        admit,
        "spec.deletion.objects: Orphan",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let many = (0..12)
        .map(|n| {
            (
                id(("", "ConfigMap"), Some("a"), &format!("c{n:02}")),
                refused(),
            )
        })
        .collect();
    assert!(message(12, &many, admit).contains("; and 2 more"));
}

proptest! {
    #[test]
    fn deletes_objects_without_dependants_and_none_with_an_obstacle(picks in proptest::collection::vec(0_usize..9, 0..6)) {
        let all = content();
        let stay: Vec<&ObjectId> = picks.iter().map(|&pick| &all[pick]).collect();
        let left = rest(&stay, &held());
        for id in &stay {
            prop_assert!(left.contains(&id.to_string()));
            if let Some(namespace) = &id.namespace {
                let namespace = format!("Namespace/{namespace}");
                prop_assert!(left.contains(&namespace));
            }
        }
        let binding = stay.iter().any(|id| id.group == "shop.example.com" || id.kind == WEBHOOK.1);
        if !binding {
            prop_assert!(left.len() <= 2 * stay.len());
        }
    }
}
