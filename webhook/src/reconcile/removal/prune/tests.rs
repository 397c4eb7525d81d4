//! Objects that a prune keeps, and those that it names and waits for.

use kube::core::discovery::ApiResource;
use serde_json::Value;

use super::*;
use crate::reconcile::api::discovery::Kind;

const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");
const QUEUE: (&str, &str) = ("shop.example.com", "Queue");

fn kind((group, kind): (&str, &str)) -> Kind {
    Kind {
        resource: ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        },
        namespaced: true,
    }
}

fn present(of: (&str, &str), namespace: Option<&str>, name: &str) -> Present {
    let id = ObjectId {
        group: of.0.to_owned(),
        version: "v1".to_owned(),
        kind: of.1.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    Present {
        key: id.to_string(),
        id,
        kind: kind(of),
        uid: "u".to_owned(),
        held_by: Vec::new(),
    }
}

fn item(of: (&str, &str), namespace: &str) -> Item {
    let Present { id, key, kind, .. } = present(of, Some(namespace), "x");
    Item {
        phase: Phase::of(&id.group, &id.kind),
        id,
        key,
        kind,
        value: Value::Null,
        custom: false,
    }
}

#[test]
fn namespace_and_definition_of_objects_of_the_content_stay() {
    let unwanted = [
        present(("", "Namespace"), None, "team-a"),
        present(("", "Namespace"), None, "team-b"),
        present(CRD, None, "queues.shop.example.com"),
        present(CRD, None, "topics.shop.example.com"),
        present(("", "ConfigMap"), Some("team-a"), "team-a"),
    ];
    let kept = needed(&unwanted, &[item(QUEUE, "team-a")]);
    let kept: Vec<String> = kept.iter().map(|kept| kept.id.to_string()).collect();
    assert_eq!(
        kept,
        [
            "Namespace/team-a",
            "CustomResourceDefinition.apiextensions.k8s.io/queues.shop.example.com"
        ]
    );
    assert!(needed(&unwanted, &[]).is_empty());
}

#[test]
fn objects_that_stay_are_named_and_only_those_going_are_waited_for() {
    let config = present(("", "ConfigMap"), Some("team-a"), "web");
    let namespace = present(("", "Namespace"), None, "team-a");
    let refused = Obstacle::NotAllowed("ana may not delete it".to_owned());
    let held = Obstacle::Finalizers(vec!["example.com/hold".to_owned()]);
    let stayed = |obstacle: &Obstacle| Stayed {
        present: vec![config.clone(), namespace.clone()],
        obstacles: [(config.id.clone(), obstacle.clone())].into(),
    };
    let kept = stayed(&refused);
    assert!(kept.result(&[], "x").is_ok());
    assert_eq!(
        kept.warnings(&[]),
        [
            "ConfigMap/team-a/web is no longer part of the content and stays: ana may not delete it",
            "Namespace/team-a is no longer part of the content and stays: objects that stay need it",
        ]
    );
    let error = stayed(&held).result(&[], "x").unwrap_err();
    assert!(error.message.contains("to go: ConfigMap/team-a/web"));
    // Nothing needs that it goes.
    let last = Stayed {
        present: vec![namespace.clone()],
        obstacles: BTreeMap::new(),
    };
    let going = [namespace];
    assert!(last.result(&going, "x").is_ok() && last.warnings(&going).is_empty());
}
